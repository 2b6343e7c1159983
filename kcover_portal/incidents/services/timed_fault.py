"""Faults that are told some time after they happened: by a source, or by a test that the portal judges at its end."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.faults import fault

STATES = ("alert", "condition")  # kinds of which all faults last
LASTING = (*STATES, "gpud")  # kinds of which some do


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedFault(fault.Fault):
    """A fault with a time of its own, by which its boot is chosen.

    ``earliest``: it did not happen before, less the error of the clock; None: at ``seen_at``. ``by_node_clock``: its
    times are those of the node's clock. ``late_seconds``: it was told so long after its own time, and its boot was
    over or the fault was repaired; None: in time. ``doubt``: of a state that lasts; for so long after the start of a
    boot it may be one of the boot before. ``doubt_until``, ``doubt_boot``: until when that is open, about which boot.
    ``unheard``: nobody has stated it in this boot, so that it never counts.
    ``uptime``: for how long the kernel that told of it had run; None: unknown.
    ``decide_from``: of a state that may be of before a repair: if it still stands then, it is a new one.
    """

    earliest: datetime | None = None
    by_node_clock: bool = False
    uptime: timedelta | None = None
    late_seconds: float | None = None
    doubt: timedelta | None = None
    doubt_until: datetime | None = None
    doubt_boot: str = ""
    unheard: bool = False
    decide_from: datetime | None = None


def earliest_of(seen: fault.Fault) -> datetime | None:
    """The time before which the fault did not happen; None: when it is stored."""
    return seen.earliest if isinstance(seen, TimedFault) else None


def late_seconds_of(seen: fault.Fault) -> float | None:
    """By how much it was told late, after its boot was over; None: in time."""
    return seen.late_seconds if isinstance(seen, TimedFault) else None


def are_late(seen: Sequence[fault.Fault]) -> bool:
    """Returns whether all of it was told after its boot was over, so that it says nothing about the present one."""
    return all(late_seconds_of(one) is not None for one in seen)


def is_in_doubt(seen: fault.Fault) -> bool:
    """Returns whether it is a state that was told for the boot before only because its time is not certain."""
    return isinstance(seen, TimedFault) and seen.doubt_until is not None


def last_seen(seen: Sequence[fault.Fault], *, now: datetime) -> datetime:
    """When an incident of these faults was last seen: now, or the own time of what was told late."""
    if not are_late(seen):
        return now
    return max(now - timedelta(seconds=late_seconds_of(one) or 0.0) for one in seen)
