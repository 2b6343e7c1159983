"""What every test may rely on: a fixed time, the same examples, the long tests last, nothing left running."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import psutil
import pytest
from django.db import connection
from django.utils import translation
from pytest_django import DjangoDbBlocker

from tests.portal.ledger import tampering

BROWSER = Path(__file__).parent / "browser"
CRASH = Path(__file__).parent / "crash"
# The same examples in every run, however slow the machine is; others where TEST_SEED is set.
hypothesis.settings.register_profile("suite", derandomize="TEST_SEED" not in os.environ, deadline=None)
hypothesis.settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the browser tests and puts them last: Playwright keeps an event loop running, which async tests refuse.
    The crash share goes before them, so that the longest parts end side by side."""
    for item in items:
        if item.path.is_relative_to(BROWSER):
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: (item.path.is_relative_to(BROWSER), item.path.is_relative_to(CRASH)))


@pytest.fixture
def now() -> datetime:
    """A fixed moment, aware, in UTC; later moments are ``now + timedelta(...)``."""
    return datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _language_of_its_own() -> Iterator[None]:
    """A request's language stays with its thread until the next request: the next test may be none."""
    yield
    translation.deactivate()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Lets tests flush the guarded ledger, and PostgreSQL drop the test database: pool threads of asgiref and Celery
    keep their connections."""
    with tampering.flush_empties_the_ledger():
        yield
    with django_db_blocker.unblock():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Fails the run when its tests left processes behind: each would disturb what runs next on this machine."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    _gone, left = psutil.wait_procs(left, timeout=5)
    commands = [f"{process.pid}: {command}" for process in left if (command := _command(process))]
    assert not commands, "left running: " + "; ".join(commands)


def _command(process: psutil.Process) -> str:
    """The command line; empty where the process is gone or is multiprocessing's tracker, which lives as long as we."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    return "" if "multiprocessing.resource_tracker" in command else command
