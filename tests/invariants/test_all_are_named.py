"""Every invariant is a named test: ``test_inv_NN_...``."""

import ast
from pathlib import Path

INVARIANTS = 48


def test_every_invariant_has_a_test_of_its_number() -> None:
    named: dict[int, list[str]] = {number: [] for number in range(1, INVARIANTS + 1)}
    for file in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_inv_"):
                number = node.name.removeprefix("test_inv_")[:2]
                assert number.isdigit(), f"{file.name}: {node.name} names no number"
                assert int(number) in named, f"{file.name}: there is no invariant {number}"
                named[int(number)].append(node.name)
    assert [number for number, tests in named.items() if not tests] == []
