"""The share of the longest tests that one run has.

The commit chooses it, so that commits take turns and a run can be repeated. `make verify` runs all shares.
``TEST_SHARE`` overrides the commit: ``all``, or the number of a share.
"""

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

VARIABLE = "TEST_SHARE"
ALL = "all"


def in_share(number: int, *, shares: int) -> bool:
    """Returns whether this run has the test with this number; one number in ``shares`` is in each share."""
    chosen = os.environ.get(VARIABLE) or str(_commit())
    if chosen == ALL:
        return True
    if not chosen.isdecimal():
        raise ValueError(f"{VARIABLE}={chosen}: write all, or the number of a share")
    return number % shares == int(chosen) % shares


def leave_out(config: pytest.Config, items: list[pytest.Item], is_left: Callable[[pytest.Item], bool]) -> None:
    """Takes the tests for which ``is_left`` holds out of ``items``; pytest's summary counts them as deselected."""
    left = [item for item in items if is_left(item)]
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [item for item in items if item not in gone]


@functools.cache
def _commit() -> int:
    """The commit as a number; 0 outside of a repository."""
    command = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return int(found.stdout or "0", 16)
