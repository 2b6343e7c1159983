"""To which boot a fault belongs, by its own time."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover.decisions.boots import Boot, boot_of, kernel_begun

REBOOT = datetime(2026, 11, 28, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BOOTS = (Boot("new", REBOOT), Boot("old", REBOOT - timedelta(hours=1)), Boot("first"))


@pytest.mark.parametrize(
    ("earliest", "boot"),
    [
        (REBOOT + SECOND, "new"),
        (REBOOT, "new"),
        (REBOOT - SECOND, "old"),
        (REBOOT - timedelta(hours=1), "old"),
        (REBOOT - timedelta(hours=2), "first"),
    ],
)
def test_a_fault_belongs_to_the_boot_that_surely_ran_at_its_earliest_time(earliest: datetime, boot: str) -> None:
    found = boot_of(BOOTS, earliest=earliest)
    assert found is not None
    assert found.id == boot


def test_a_boot_without_a_time_began_long_ago() -> None:
    rows = (Boot("present"), Boot("past"))
    assert boot_of(rows, earliest=REBOOT - timedelta(days=300)) == rows[0]


def test_a_fault_older_than_all_boots_belongs_to_the_oldest() -> None:
    assert boot_of(BOOTS[:2], earliest=REBOOT - timedelta(days=9)) == BOOTS[1]
    assert boot_of((), earliest=REBOOT) is None
    three = (*BOOTS[:2], Boot("first", REBOOT - timedelta(hours=3)))
    assert boot_of(three, earliest=REBOOT - timedelta(days=9)) == three[2]


def test_a_kernel_that_began_as_early_as_it_may_is_of_the_boot() -> None:
    takes = timedelta(minutes=30)
    for begun, boot in ((REBOOT - takes, BOOTS[0]), (REBOOT - takes - SECOND, BOOTS[1])):
        assert boot_of(BOOTS, earliest=REBOOT, begun=begun, takes=takes) == boot


@pytest.mark.parametrize(
    ("uptime", "boot"),
    [
        (timedelta(minutes=20), "new"),
        (timedelta(minutes=39), "new"),
        (timedelta(minutes=41), "old"),
        (timedelta(hours=1, minutes=39), "old"),
        (timedelta(hours=1, minutes=41), "first"),
        (timedelta(days=900), "first"),
    ],
)
def test_a_kernel_that_ran_longer_is_that_of_an_earlier_boot(uptime: timedelta, boot: str) -> None:
    at = REBOOT + timedelta(minutes=10)
    found = boot_of(BOOTS, earliest=at, begun=kernel_begun(at, uptime), takes=timedelta(minutes=30))
    assert found is not None
    assert found.id == boot


def test_the_clock_of_the_kernel_drifts() -> None:
    year = timedelta(days=365)
    rows = (Boot("new", REBOOT), Boot("old"))
    for drift, boot in ((timedelta(hours=8), "new"), (timedelta(hours=10), "old")):
        at = REBOOT + year
        assert boot_of(rows, earliest=at, begun=kernel_begun(at, year + drift), takes=timedelta()) == next(
            row for row in rows if row.id == boot
        )
