"""Shared by all tests: a fixed time, reproducible Hypothesis examples, the order of tests, no leftover processes.

Nothing here imports Django: `make unit` runs tests/kcover and tests/agents without it.
"""

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import hypothesis
import psutil
import pytest

from tests import moment
from tests.places import TESTS, place_of

# The same examples in every run and no deadline on a slow machine; TEST_SEED=... chooses other examples.
hypothesis.settings.register_profile("suite", derandomize="TEST_SEED" not in os.environ, deadline=None)
hypothesis.settings.register_profile("unit", parent=hypothesis.settings.get_profile("suite"), max_examples=15)
hypothesis.settings.load_profile("suite")
# jsonschema would compile 38 grammars at its import, a second in each process, for a format that no schema here has.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
gc.set_threshold(50_000, 20, 100)  # as in production (kcover_portal/config/gc_tuning.py), also where Django is left out
atexit.register(gc.freeze)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from scanning all of Django and all tests again and again."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the fixtures of Django's tests unless Django was left out (`make unit`)."""
    if "DJANGO_SETTINGS_MODULE" in os.environ:  # set by pytest-django, from pyproject.toml
        config.pluginmanager.import_plugin("tests.portal_fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the browser tests, and puts the tests that wait behind all others (tests/isolation.py)."""
    places: dict[Path, int] = {}
    for item in items:
        if item.path not in places:
            places[item.path] = place_of(item.path)
        if item.path.is_relative_to(TESTS / "browser"):
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: places[item.path])


@pytest.fixture
def now() -> datetime:
    """A fixed moment, aware, in UTC; later moments are ``now + timedelta(...)``."""
    return moment.START


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_running() -> Iterator[None]:
    """Fails the run if its tests left processes behind: they would disturb the next run on this machine."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = [process for process in psutil.Process().children(recursive=True) if process not in before]
    _gone, left = psutil.wait_procs(left, timeout=5)
    commands = [f"{process.pid}: {command}" for process in left if (command := _command(process))]
    assert not commands, "left running: " + "; ".join(commands)


def _command(process: psutil.Process) -> str:
    """The command line; empty if the process is gone or is multiprocessing's tracker, which ends with this process."""
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return ""
    return "" if "multiprocessing.resource_tracker" in command else command
