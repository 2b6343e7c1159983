"""Probation after a repair, replayed on a public trace of 400 GPU servers.

``python -m bench.probation_replay [FILE ...] [--from DAY]`` replays other files, or other days. The length of each
probation is chosen from the returns before it, as in the portal.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Final

from bench import fault_bursts
from bench.fault_bursts import FIT_UNTIL, NODES, TRACE
from bench.result import Result
from kcover.nodes import probation

LONG_OUTAGE: Final = timedelta(days=7)
REMINDER_EFFECTS: Final = (0.25, 0.5, 0.75)  # assumed shares of the time beyond LONG_OUTAGE that reminders save
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Times since the beginning of the trace. ``back``: None if the node had not returned when the trace ended.

    ``again``: the node's next fault after it returned, None if it had none.
    """

    fault_class: str
    failed: timedelta
    back: timedelta | None
    again: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """``hit``: of ``returns``, those with a new fault in the first 24 h after their probation; ``without``: the same
    without probations. ``caught``: those with a fault during it. ``probation``: the share of node hours in it.
    """

    returns: int
    hit: int
    without: int
    caught: int
    probation: float
    lengths: Sequence[timedelta]


def read(paths: Iterable[Path]) -> tuple[list[Outage], timedelta]:
    """The outages of trace files in the order of their times, and the time of the last event."""
    events: dict[str, list[tuple[timedelta, bool, str]]] = {}
    for row in fault_bursts.events(paths):
        at = timedelta(days=float(row["day"]))
        events.setdefault(row["node"], []).append((at, row["event"] == "start", row["class"]))
    found = [outage for mine in events.values() for outage in _outages(sorted(mine, key=itemgetter(0)))]
    return sorted(found, key=lambda one: one.failed), max(at for mine in events.values() for at, _, _ in mine)


def _outages(events: Sequence[tuple[timedelta, bool, str]]) -> Iterable[Outage]:
    for place, (at, is_start, fault_class) in enumerate(events):
        if not is_start:
            continue
        later = events[place + 1 :]
        back = next((when for when, starts, _ in later if not starts), None)
        again = next((when for when, starts, _ in later if starts and back is not None and when >= back), None)
        yield Outage(fault_class=fault_class, failed=at, back=back, again=again)


def replay(outages: Sequence[Outage], *, since: timedelta, until: timedelta) -> Replayed:
    """Replays the returns from ``since`` on."""
    returned = sorted((one for one in outages if one.back is not None), key=lambda one: one.back or until)
    hit = without = caught = 0
    spent, lengths = timedelta(0), []
    for one in returned:
        assert one.back is not None
        if one.back < since:
            continue
        length = probation.choose(one.fault_class, learned(returned, now=one.back)).length
        lasted = None if one.again is None else one.again - one.back
        lengths.append(length)
        spent += min(length, until - one.back, *(() if lasted is None else (lasted,)))
        if lasted is not None:
            caught += lasted < length
            hit += length <= lasted < length + probation.WINDOW
            without += lasted < probation.WINDOW
    share = spent / (NODES * (until - since))
    return Replayed(
        returns=len(lengths), hit=hit, without=without, caught=caught, probation=share, lengths=sorted(lengths)
    )


def learned(returned: Sequence[Outage], *, now: timedelta) -> list[probation.Return]:
    """The returns that the portal knows at a time of the trace, by the time of the return."""
    found = []
    for one in returned:
        if one.back is not None and now - probation.LEARNS < one.back < now:
            repeated = one.again is not None and one.again < now
            end = one.again if repeated and one.again is not None else now
            found.append(probation.Return(one.fault_class, end - one.back, repeated))
    return found


def reminders(outages: Sequence[Outage], *, since: timedelta, until: timedelta) -> list[tuple[str, str, str]]:
    """Down time in long outages, and down time in all if reminders saved a part of the time beyond LONG_OUTAGE."""
    lasted = [(one.back or until) - one.failed for one in outages if one.failed >= since]
    total = sum(lasted, timedelta(0))
    long = [one for one in lasted if one > LONG_OUTAGE]
    beyond = sum((one - LONG_OUTAGE for one in long), timedelta(0))
    rows = [
        ("outages", f"{len(lasted)}, {total / DAY:,.0f} node days", ""),
        (
            f"of more than {LONG_OUTAGE.days} days",
            f"{len(long)}, {sum(long, timedelta(0)) / total:.0%} of down time",
            "",
        ),
    ]
    for effect in REMINDER_EFFECTS:
        left = total - effect * beyond
        rows.append(
            (
                f"down time if reminders save {effect:.0%} of it beyond",
                f"{left / DAY:,.0f} node days ({left / total:.0%})",
                "",
            )
        )
    return rows


def rows(paths: Iterable[Path], *, since: float) -> list[tuple[str, str, str]]:
    """The figures as rows of a result."""
    outages, until = read(paths)
    found = replay(outages, since=timedelta(days=since), until=until)
    hours = [length / timedelta(hours=1) for length in found.lengths]
    return [
        ("returns", f"{found.returns}", ""),
        ("a new fault in the first 24 h, without probation", _share(found.without, found.returns), ""),
        ("a new fault in the first 24 h after probation", _share(found.hit, found.returns), "≤ 3 %"),
        ("a new fault during probation", _share(found.caught, found.returns), ""),
        ("node hours in probation", f"{found.probation:.2%}", "≤ 1.5 %"),
        ("length: least, median, most", f"{hours[0]:.0f}, {hours[len(hours) // 2]:.0f}, {hours[-1]:.0f} h", ""),
        *reminders(outages, since=timedelta(days=since), until=until),
    ]


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})"


def measure(_scale: float) -> Result:
    """The days to which nothing was fitted."""
    return Result(
        name="Probation on a public trace",
        command="make bench ARGS=probation",
        conditions=f"InfiniteHBD trace of {NODES} GPU servers. The prior was fitted to days 0 to {FIT_UNTIL:.0f}; the "
        "returns from there to day 200 are judged. The length of each probation is chosen from the returns before it.",
        rows=rows([TRACE], since=FIT_UNTIL),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.probation_replay", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[TRACE])
    parser.add_argument("--from", dest="since", type=float, default=FIT_UNTIL, help="the first day that is judged")
    options = parser.parse_args()
    for label, figure, goal in rows(options.files, since=options.since):
        print(f"{label}: {figure}{f' (goal: {goal})' if goal else ''}")
