"""Every invariant of docs/invariants.md is a named test, ``test_inv_NN_...``, and the page names no other."""

import ast
import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "invariants.md"
NUMBERS = re.compile(r"test_inv((?:_\d\d)+)_")
STATEMENT = re.compile(r"^(\d+)\. ", re.MULTILINE)
NAME = re.compile(r"`(test_inv_\w+)`")


def in_code() -> dict[int, set[str]]:
    """The test functions of each invariant; a name may carry several numbers."""
    named = defaultdict(set)
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_inv_"):
                numbers = NUMBERS.match(node.name)
                assert numbers, f"{file.name}: {node.name} has no number"
                for number in numbers[1].strip("_").split("_"):
                    named[int(number)].add(node.name)
    return named


def on_the_page() -> dict[int, set[str]]:
    """The tests that the page names below each statement."""
    _, *parts = STATEMENT.split(PAGE.read_text(encoding="utf-8"))
    return {int(number): set(NAME.findall(text)) for number, text in zip(parts[::2], parts[1::2], strict=True)}


def test_the_page_counts_to_56() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [int(number) for number in STATEMENT.findall(text)] == list(range(1, 57))


def test_every_invariant_has_a_test_and_every_test_has_an_invariant() -> None:
    assert in_code().keys() == on_the_page().keys()


def test_every_test_that_the_page_names_exists_under_that_number() -> None:
    code = in_code()
    missing = {number: tests - code[number] for number, tests in on_the_page().items() if tests - code[number]}
    assert missing == {}


def test_the_page_names_a_test_for_every_invariant() -> None:
    assert [number for number, tests in on_the_page().items() if not tests] == []
