"""How rescues ended: success, automation, false isolations, and steps."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from kcover import actions
from kcover.reports.intervals import Share
from kcover.reports.records import Fault, Isolation, Records, Work
from kcover.reports.survival import Lasted, Times, times

IN_SERVICE: Final = ("healed", "done")  # outcomes of rescues whose node works again
QUIET: Final = timedelta(hours=24)  # without a fault after the return, an isolation was not needed
AGAIN: Final = timedelta(hours=24)  # within which another reboot of the node is a second one
REBOOTS: Final = actions.names(lambda spec: spec.ends_boot)
MENDING: Final = actions.names(lambda spec: spec.mends or spec.gives_node_away)


@dataclass(frozen=True, slots=True)
class StepEnds:
    """How the runs of one step ended. Those that people skipped or cancelled do not count."""

    name: str
    done: int
    failed: int

    @property
    def success(self) -> Share:
        """The share that was done."""
        return Share(self.done, self.done + self.failed)


def is_success(work: Work) -> bool:
    """Whether the rescue returned its node to work, or did all it had to do on a node in service."""
    return work.state == "succeeded" and work.outcome in IN_SERVICE


def ended_in(works: Iterable[Work], since: datetime, until: datetime) -> list[Work]:
    """The automatic rescues that ended in the period by themselves. Cancelled ones and acts by hand do not count."""
    return [
        work
        for work in works
        if not work.by_hand
        and work.state in ("succeeded", "failed")
        and work.open.until is not None
        and since <= work.open.until < until
    ]


def automation(works: Iterable[Work], since: datetime, until: datetime) -> Share:
    """Of the rescues that returned their nodes to work, those in which no person did anything."""
    found = [
        work for work in works if is_success(work) and work.open.until is not None and since <= work.open.until < until
    ]
    return Share(sum(not work.by_hand and not work.touched for work in found), len(found))


def false_isolations(records: Records, since: datetime, until: datetime) -> Share:
    """Of the isolations by automatic rescues that ended in the period, those that were not needed.

    The node was returned without a repair, and had no fault in the 24 hours after it.
    """
    faults = _opened(records.faults)
    desk = {repair.node for repair in records.repairs}
    ended = [
        one
        for one in records.isolations
        if not one.work.by_hand and one.time.until is not None and since <= one.time.until < until
    ]
    return Share(sum(_was_false(one, records, faults, desk) for one in ended), len(ended))


def _was_false(one: Isolation, records: Records, faults: dict[int, list[datetime]], desk: set[int]) -> bool:
    assert one.time.until is not None
    if any(run.name in MENDING and run.state == "done" for run in one.work.runs):
        return False
    if one.node in desk and any(
        repair.node == one.node
        and repair.time.since < one.time.until
        and (repair.time.until or one.time.until) > one.time.since
        for repair in records.repairs
    ):
        return False
    after = faults.get(one.node, [])
    place = bisect_left(after, one.time.until)
    return place == len(after) or after[place] >= one.time.until + QUIET


def second_reboots(works: Iterable[Work], since: datetime, until: datetime) -> Share:
    """Of the reboots that ended in the period, those that followed another one of the same node within 24 hours.

    ``works`` before the period count as what was followed. Power cycles are reboots.
    """
    ends = sorted(
        (work.node, run.time.until)
        for work in works
        for run in work.runs
        if run.name in REBOOTS and run.state == "done" and run.time.until is not None and run.time.until < until
    )
    again = {(node, at) for (before, earlier), (node, at) in pairwise(ends) if before == node and at - earlier <= AGAIN}
    return Share(sum(at >= since for _, at in again), sum(at >= since for _, at in ends))


def steps(works: Iterable[Work], since: datetime, until: datetime) -> list[StepEnds]:
    """How the steps that ended in the period ended, in the fixed order of plans."""
    ends: Counter[tuple[str, str]] = Counter()
    for work in works:
        for run in work.runs:
            if run.time.until is not None and since <= run.time.until < until:
                ends[run.name, run.state] += 1
    found = [StepEnds(spec.name, ends[spec.name, "done"], ends[spec.name, "failed"]) for spec in actions.in_order()]
    return [one for one in found if one.done or one.failed]


def approval_waits(works: Iterable[Work], since: datetime, until: datetime) -> Times:
    """How long rescues that were opened in the period waited for approvals."""
    return times(Lasted(wait) for work in works if since <= work.open.since < until for wait in work.approvals)


def detection(faults: Iterable[Fault]) -> Times:
    """How long it took from the line in the node's log to the incident. Faults whose time is not known are left out.

    Both clocks are involved, so a fault may seem to be found before it happened: that counts as at once.
    """
    found = [fault for fault in faults if fault.happened_at is not None]
    zero = timedelta(0)
    return times(Lasted(max(zero, one.open.since - one.happened_at)) for one in found if one.happened_at is not None)


def restart_times(restarts: Sequence[tuple[datetime, timedelta]], since: datetime, until: datetime) -> Times:
    """How long restarts of training jobs took that were ordered in the period."""
    return times(Lasted(took) for at, took in restarts if since <= at < until)


def _opened(faults: Iterable[Fault]) -> dict[int, list[datetime]]:
    found: dict[int, list[datetime]] = {}
    for fault in faults:
        found.setdefault(fault.node, []).append(fault.open.since)
    return {node: sorted(times_) for node, times_ in found.items()}
