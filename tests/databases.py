"""In a whole run every second worker has SQLite, and two thirds of the portal's test files may run there.

A test on PostgreSQL takes a third more CPU and twice the time, most of it for the same statements. The commit chooses
the third that is on PostgreSQL (tests/share.py), and half of the engine's files. The audit log and the invariants
always are, and so is each file that mentions PostgreSQL. Tests that start a product choose its database themselves: any
worker can run them.
"""

import contextlib
import functools
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.places import place_of
from tests.share import in_share

ROOT = Path(__file__).resolve().parents[1]
SHARES = {"tests/portal/rescue/": 2}  # of the files in a folder, one in so many is on PostgreSQL
OTHER_SHARES = 3
ALWAYS_ON_POSTGRES = ("tests/invariants/", "tests/portal/ledger/")
SPLIT = "TEST_DATABASES_SPLIT"  # set by the process that starts the workers, which inherit it
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
    """Returns whether the workers of this run have different databases."""
    return is_whole() and os.environ.get(DATABASE, "").startswith("postgres")


def of_worker(worker: str) -> str:
    """The database of the worker ``gw0``, ``gw1`` and so on."""
    return SQLITE if int(worker.removeprefix("gw")) % 2 else POSTGRES


@contextlib.contextmanager
def settings_read_it() -> Iterator[None]:
    """Django's settings, which are read within, have the database of this worker. Products that tests start do not."""
    worker, url = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get(DATABASE)
    if worker is None or url is None or not are_split() or of_worker(worker) == POSTGRES:
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
    in_portal = path.startswith("tests/portal/")
    if path.startswith(ALWAYS_ON_POSTGRES) or (in_portal and "postgres" in text.lower()):
        return POSTGRES
    if not in_portal and "django_db" not in text:
        return NONE if place_of(ROOT / path) < 0 else WAITS
    shares = next((number for folder, number in SHARES.items() if path.startswith(folder)), OTHER_SHARES)
    return POSTGRES if in_share(zlib.crc32(path.encode()), shares=shares) else SQLITE


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
        if of_worker(worker) == SQLITE:
            own = (WAITS, SQLITE, NONE) if self._split else (WAITS, SQLITE, NONE, POSTGRES)
        else:
            own = (POSTGRES, NONE, WAITS, SQLITE) if self._split else (POSTGRES, NONE, SQLITE, WAITS)
        for name in own:
            if queue := self._queues[name]:
                return queue.pop() if name == WAITS and of_worker(worker) == SQLITE else queue.popleft()
        return None
