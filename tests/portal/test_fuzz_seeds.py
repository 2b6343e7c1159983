"""The stored seeds of tools/fuzz.py: inputs that broke a parser, and one valid input of each kind."""

from pathlib import Path

import pytest

from tools import fuzz_targets

SEEDS = Path(__file__).parents[1] / "fuzz_seeds"
FILES = sorted(path for path in SEEDS.glob("*/*") if path.is_file())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_parser_accepts_or_refuses_it(path: Path) -> None:
    fuzz_targets.TARGETS[path.parent.name](path.read_bytes())


def test_every_parser_has_seeds() -> None:
    assert {path.parent.name for path in FILES} == fuzz_targets.TARGETS.keys()
