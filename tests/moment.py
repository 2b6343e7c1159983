"""The moment at which tests in this process run, so that views, services and tests agree on the time.

Tests of the portal build a world at ``START``, and views ask the process for the time. So the fixture ``_moment`` of
``tests/portal_fixtures.py`` moves the clock of the process to ``START``, from where it runs on. A world whose own clock
is moved takes it along (``move_to``). Other processes keep the true clock.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

import time_machine

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)

_clocks: list[time_machine.Traveller] = []  # the innermost one is last


@contextlib.contextmanager
def starting_at(start: datetime) -> Iterator[None]:
    """Moves the clock of this process to ``start``; it runs on from there until the block ends."""
    with time_machine.travel(start.timestamp(), tick=True) as clock:  # a number, as a datetime also sets the time zone
        _clocks.append(clock)
        try:
            yield
        finally:
            _clocks.pop()


def move_to(moment: datetime) -> None:
    """Moves the clock of this process, if a test has it moved; it runs on from there."""
    if _clocks:
        _clocks[-1].move_to(moment.timestamp())
