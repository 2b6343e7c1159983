"""A pytest plug-in (``-p tests.moved_clock``): the whole run happens at another time; `make dates` uses it.

``TEST_CLOCK`` names the time: ``+40d`` (days from now) or ``2028-02-29T23:58`` (UTC). Python's clock is moved before
anything of the portal is imported, in each xdist worker too, and runs on from there. A test whose other half has the
true clock is left out; ``LEFT_OUT`` or the mark ``real_clock`` names that half. Debian's faketime is no way: with it
sockets of the test servers fail with OSError 22.
"""

import os
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests import moment
from tests.share import leave_out

VARIABLE = "TEST_CLOCK"
# Folders, and what else takes part in their tests and has the true clock. A smaller place has the mark ``real_clock``.
LEFT_OUT = {
    "tests/browser": "Chromium and the processes of the product",
    "tests/crash": "the processes of the product",
    "tests/story": "the processes of the product",
}


def moved_to(text: str, *, now: datetime) -> datetime:
    """The time that ``text`` names; raises ValueError with what to write instead."""
    if found := re.fullmatch(r"\+(\d{1,5})d", text):
        return now + timedelta(days=int(found[1]))
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{VARIABLE}={text}: write +40d or 2028-02-29T23:58") from None


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Moves the clock: pytest-django imports the settings right after this."""
    clock = moment.starting_at(moved_to(os.environ[VARIABLE], now=datetime.now(UTC)))
    clock.__enter__()
    early_config.add_cleanup(lambda: clock.__exit__(None, None, None))


def pytest_report_header() -> str:
    return f"clock: {datetime.now(UTC):%F %T} UTC; left out: {', '.join(LEFT_OUT)}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of ``LEFT_OUT``, and those with the mark ``real_clock``."""
    folders = tuple(LEFT_OUT)
    leave_out(
        config, items, lambda item: item.nodeid.startswith(folders) or bool(item.get_closest_marker("real_clock"))
    )
