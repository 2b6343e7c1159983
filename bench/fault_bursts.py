"""Rate guard: how many real faults it holds, and which bursts it catches, on a public trace of 400 GPU servers.

``python -m bench.fault_bursts [FILE ...] [--from DAY]`` replays other files, or other days. On each day the guard knows
the days before it, as in the portal.
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from bench.result import Result
from kcover.decisions.guards import FaultHistory, chance

TRACE = Path(__file__).parent / "traces" / "infinitehbd_days_0_200.csv"
NODES = 400
FIT_UNTIL = 100.0  # the prior was fitted to the days before
LEARNS = 180  # days, as in the portal
BURST = 8  # nodes within ten minutes
HARDWARE = "Hardware Failure"
START = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Outage:
    """A node became unavailable."""

    at: datetime
    node: str
    hardware: bool

    @property
    def day(self) -> int:
        return (self.at - START).days


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """``held``: hardware faults that reached a limit; ``held_alone`` are those of them outside of bursts.

    ``caught``: of ``bursts`` (their sizes in nodes), those in which the guard held something.
    """

    hardware: int
    held: int
    held_alone: int
    bursts: list[int]
    caught: list[int]


def events(paths: Iterable[Path]) -> list[dict[str, str]]:
    """The rows of trace files; their columns are in bench/traces/README.md."""
    return [row for path in paths for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]


def read(paths: Iterable[Path]) -> list[Outage]:
    """The outages of trace files, in order of time."""
    found = [
        Outage(START + timedelta(days=float(row["day"])), row["node"], row["level"] == HARDWARE)
        for row in events(paths)
        if row["event"] == "start"
    ]
    return sorted(found, key=lambda outage: (outage.at, outage.node))


def judge(outages: Sequence[Outage], *, since: float) -> Judged:
    """Replays the outages from day ``since``; each day is judged by what the days before it taught."""
    held: set[int] = set()
    judged = [place for place, outage in enumerate(outages) if outage.at >= START + timedelta(days=since)]
    pasts: dict[int, FaultHistory] = {}
    for place in judged:
        now = outages[place]
        past = pasts.setdefault(now.day, learned(outages, day=now.day))
        for window in chance.WINDOWS:
            faulty = {other.node for other in outages[: place + 1] if other.at > now.at - window}
            if len(faulty) >= chance.limit(NODES, window=window, past=past):
                held.add(place)
    groups = [group for group in _bursts(outages, judged) if len({outages[place].node for place in group}) >= BURST]
    in_bursts = {place for group in groups for place in group}
    hardware = {place for place in judged if outages[place].hardware}
    return Judged(
        hardware=len(hardware),
        held=len(hardware & held),
        held_alone=len(hardware & held - in_bursts),
        bursts=[len(group) for group in groups],
        caught=[len(group) for group in groups if held.intersection(group)],
    )


def learned(outages: Sequence[Outage], *, day: int) -> FaultHistory:
    """The data that the guard has at the beginning of a day."""
    days = min(day, LEARNS)
    before = [(one.at, one.node) for one in outages if day - days <= one.day < day]
    return chance.observe(before, node_hours=NODES * 24 * days)


def _bursts(outages: Sequence[Outage], places: Sequence[int]) -> list[list[int]]:
    """Runs of outages that are less than ten minutes apart."""
    groups = [[place] for place in places[:1]]
    for before, place in pairwise(places):
        if outages[place].at - outages[before].at < chance.WINDOWS[0]:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def measure(_scale: float) -> Result:
    """The days to which nothing was fitted."""
    found = judge(read([TRACE]), since=FIT_UNTIL)
    return Result(
        name="Rate guard on a public trace",
        command="make bench ARGS=fault-bursts",
        conditions=f"InfiniteHBD trace of {NODES} GPU servers. The prior was fitted to days 0 to {FIT_UNTIL:.0f}; the "
        "days from there to 200 are judged, each by what the days before it taught.",
        rows=rows(found),
    )


def rows(found: Judged) -> list[tuple[str, str, str]]:
    """The figures as rows of a result."""
    share = found.held_alone / found.hardware if found.hardware else 0.0
    return [
        ("hardware faults", f"{found.hardware}", ""),
        ("held, outside of bursts", f"{found.held_alone} ({share:.1%})", "≤ 2 %"),
        ("held, in bursts too", f"{found.held}", ""),
        (f"bursts of {BURST} nodes or more within 10 min", ", ".join(map(str, found.bursts)) or "none", ""),
        ("bursts caught", ", ".join(map(str, found.caught)) or "none", "all"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.fault_bursts", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[TRACE])
    parser.add_argument("--from", dest="since", type=float, default=FIT_UNTIL, help="the first day that is judged")
    options = parser.parse_args()
    for label, figure, goal in rows(judge(read(options.files), since=options.since)):
        print(f"{label}: {figure}{f' (goal: {goal})' if goal else ''}")
