"""In a whole run one worker of four has PostgreSQL, and the others SQLite.

A test on PostgreSQL takes a third more CPU and twice the time, most of it for the same statements. So the commit
chooses the files that are there (tests/share.py): SHARES and OTHER_SHARES. Each file that has a test with the mark
``postgres`` always is. Tests that start a product choose its database themselves: any worker can run them.
"""

import contextlib
import functools
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import share
from tests.places import place_of

ROOT = Path(__file__).resolve().parents[1]
# Of the files in a folder, one in so many is on PostgreSQL. All are odd: shares of tests are 2, 4 or 8, and the same
# commit chooses both, so that each share of a file's tests is on each database in some run.
SHARES = {"tests/invariants/": 3, "tests/portal/ledger/": 3, "tests/portal/rescue/": 5}
OTHER_SHARES = 7
ALWAYS_ON_POSTGRES = ("tests/invariants/test_inv_crash.py", "tests/invariants/test_state_machine.py")
MARK = "mark.postgres("  # of a test that needs PostgreSQL
SPLIT = "TEST_DATABASES_SPLIT"  # set by the process that starts the workers, which inherit it
REPEATED_ON = "TEST_REPEATED_ON"  # the database of a repeated test (tests/repeat_red.py)
DATABASE = "KCOVER_DATABASE_URL"
POSTGRES, SQLITE, NONE, WAITS = "postgres", "sqlite", "none", "waits"


def split(config: pytest.Config) -> None:
    """Lets the workers of a whole run have different databases; who names tests has them all on PostgreSQL."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if "PYTEST_XDIST_WORKER" not in os.environ and whole and (config.getoption("numprocesses", 0) or 0) > 1:
        os.environ[SPLIT] = "yes"


def is_whole() -> bool:
    """Returns whether this is a whole run on several workers, not one of tests that somebody named."""
    return SPLIT in os.environ


def are_split() -> bool:
    """Returns whether the workers of this run have different databases. If it has all shares, each has PostgreSQL."""
    has_all = os.environ.get(share.VARIABLE) == share.ALL
    return is_whole() and not has_all and os.environ.get(DATABASE, "").startswith("postgres")


def of_worker(worker: str) -> str:
    """The database of the worker ``gw0``, ``gw1`` and so on."""
    return SQLITE if _number(worker) % 4 else POSTGRES


def _number(worker: str) -> int:
    return int(worker.removeprefix("gw"))


@contextlib.contextmanager
def settings_read_it() -> Iterator[None]:
    """Django's settings, which are read within, have the database of this worker. Products that tests start do not."""
    worker, url = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get(DATABASE)
    chosen = os.environ.get(REPEATED_ON) or (POSTGRES if worker is None else of_worker(worker))
    if url is None or not are_split() or chosen == POSTGRES:
        yield
        return
    del os.environ[DATABASE]
    try:
        yield
    finally:
        os.environ[DATABASE] = url


@functools.cache
def of_file(path: str) -> str:
    """The database of the tests of a file, by its path from the root; ``NONE`` and ``WAITS`` run on any worker."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.startswith(ALWAYS_ON_POSTGRES) or MARK in text:
        return POSTGRES
    if not path.startswith(("tests/portal/", "tests/invariants/")) and "django_db" not in text:
        return NONE if place_of(ROOT / path) < 0 else WAITS
    shares = next((number for folder, number in SHARES.items() if path.startswith(folder)), OTHER_SHARES)
    return POSTGRES if share.in_share(zlib.crc32(path.encode()), shares=shares) else SQLITE


class Queues:
    """The scopes of xdist that wait for a worker, each in the queue of its database."""

    def __init__(self, scopes: Iterable[str], *, split: bool) -> None:
        self._split = split
        self._queues: dict[str, deque[str]] = {name: deque() for name in (POSTGRES, SQLITE, NONE, WAITS)}
        for scope in scopes:
            path = scope.partition("::")[0]
            self._queues[of_file(path) if path.endswith(".py") else WAITS].append(scope)

    def next_for(self, worker: str) -> str | None:
        """Takes the next scope for this worker; None if all that is left needs PostgreSQL, which it does not have.

        Every second worker begins with the end of the tests that wait, while the others have the processor. A worker on
        PostgreSQL that would be idle in the end takes tests from those on SQLite.
        """
        waits_first = _number(worker) % 2 == 1
        if self._split and of_worker(worker) == POSTGRES:
            order = (POSTGRES, NONE, WAITS, SQLITE)
        else:
            order = (WAITS, SQLITE, NONE) if waits_first else (SQLITE, NONE, WAITS)
            order = order if self._split else (*order, POSTGRES)
        for name in order:
            if queue := self._queues[name]:
                return queue.pop() if name == WAITS and waits_first else queue.popleft()
        return None
