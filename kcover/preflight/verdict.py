"""The verdict on one run of a workload, and how a run grows report by report.

A run is keyed by namespace, workload and its owner's uid. Its reports are complete or there is no verdict on slowness;
a node that failed its own checks is abnormal at once. What follows (isolation) goes through the storm guard: a job in
which every pair touches a bad node flags all of them, and nothing in the reports can tell them apart.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kcover import reasons
from kcover.preflight.reading import Report, batches_of

# kcover's example; its later default of 10 min counts from the last report, ours is fixed from the first.
COLLECTED_WITHIN = timedelta(minutes=30)

STATES = ("waiting", "complete", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The reports so far, one a node. ``size`` is how many there will be."""

    size: int
    first_at: datetime
    reports: Mapping[str, Report]

    @property
    def complete(self) -> bool:
        """Whether every node has reported."""
        return len(self.reports) >= self.size


# What a report did to a run. counted: the first of its node. replaced: instead of the node's earlier one.
# same: nothing. restarted: a new run begins with it, and the earlier one is over.
CHANGES = ("counted", "replaced", "same", "restarted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The run with the report, and what the report changed; ``because`` says why a run began anew."""

    run: Run
    change: str
    because: reasons.Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run comes to. ``abnormal`` is known at once, ``slow`` and ``suspects`` (the two nodes of a job of two,
    which cannot be told apart) when the run is complete. ``slots``: how many each node that is judged ran, of
    ``expected_slots``. Names are sorted."""

    state: str
    received: int
    expected: int
    expected_slots: int
    abnormal: tuple[str, ...]
    slow: tuple[str, ...]
    suspects: tuple[str, ...]
    slots: Mapping[str, int]
    because: tuple[reasons.Reason, ...]

    @property
    def isolate(self) -> tuple[str, ...]:
        """The nodes to be made unschedulable."""
        return tuple(sorted({*self.abnormal, *self.slow}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What must be known of a run to take one more report in: its size, its first report's time, how many came."""

    size: int
    first_at: datetime
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a report does to a run: one of CHANGES; ``over``: the run's time was up, so that it ended without it."""

    name: str
    because: reasons.Reason | None = None
    over: bool = False


def change(
    head: Head | None, earlier: Report | None, report: Report, *, now: datetime, within: timedelta = COLLECTED_WITHIN
) -> Change:
    """What the report does to the run, of which ``earlier`` is the one that this node sent before."""
    if head is None:
        return Change(name="counted")
    complete = head.received >= head.size
    if not complete and now >= head.first_at + within:
        return Change(name="restarted", over=True)
    if earlier == report:
        return Change(name="same")
    if report.size != head.size:
        dropped = reasons.of(
            "preflight_size", node=report.node, size=report.size, before=head.size, received=head.received
        )
        return Change(name="restarted", because=dropped)
    if complete:
        return Change(name="restarted", because=reasons.of("preflight_again", node=report.node))
    return Change(name="counted" if earlier is None else "replaced")


def receive(run: Run | None, report: Report, *, now: datetime, within: timedelta = COLLECTED_WITHIN) -> Received:
    """The run after the report. The time to collect counts from the first report, and nothing extends it."""
    begun = Run(size=report.size, first_at=now, reports={report.node: report})
    if run is None:
        return Received(run=begun, change="counted")
    head = Head(size=run.size, first_at=run.first_at, received=len(run.reports))
    found = change(head, run.reports.get(report.node), report, now=now, within=within)
    if found.name == "same":
        return Received(run=run, change="same")
    if found.name == "restarted":
        because = _expiry(run, within=within) if found.over else found.because
        return Received(run=begun, change="restarted", because=because)
    return Received(run=replace(run, reports={**run.reports, report.node: report}), change=found.name)


def expired(run: Run, *, now: datetime, within: timedelta = COLLECTED_WITHIN) -> bool:
    """Whether the run stayed incomplete for too long."""
    return not run.complete and now >= run.first_at + within


def judge(run: Run, *, now: datetime, within: timedelta = COLLECTED_WITHIN) -> Verdict:
    """What the run comes to now; the same whatever order its reports came in, and whichever end told of a pair."""
    abnormal = {node: report for node, report in run.reports.items() if report.failed_checks}
    because = [
        reasons.of("preflight_abnormal", node=node, checks=", ".join(report.failed_checks))
        for node, report in sorted(abnormal.items())
    ]
    verdict = Verdict(
        state="complete" if run.complete else "expired" if expired(run, now=now, within=within) else "waiting",
        received=len(run.reports),
        expected=run.size,
        expected_slots=batches_of(run.size),
        abnormal=tuple(sorted(abnormal)),
        slow=(),
        suspects=(),
        slots={},
        because=(),
    )
    if verdict.state == "expired":
        return replace(verdict, because=(*because, _expiry(run, within=within)))
    if verdict.state == "waiting":
        waiting = reasons.of("preflight_waiting", received=verdict.received, expected=verdict.expected)
        return replace(verdict, because=(*because, waiting))
    normal = {node: report for node, report in run.reports.items() if node not in abnormal}
    outcomes = _outcomes(normal)
    slots = {node: len(outcomes[node]) for node in sorted(normal)}
    needed = 1 if abnormal else verdict.expected_slots
    failed = tuple(node for node, ran in slots.items() if ran >= needed and all(outcomes[node].values()))
    if run.size == 2:
        pair = reasons.of("preflight_suspects", nodes=", ".join(failed))
        return replace(verdict, suspects=failed, slots=slots, because=(*because, *([pair] if failed else [])))
    because += [reasons.of("preflight_slow", node=node, slots=slots[node]) for node in failed]
    if not abnormal:
        because += [
            reasons.of("preflight_slots", node=node, slots=ran, expected=needed)
            for node, ran in slots.items()
            if ran < needed
        ]
    return replace(verdict, slow=failed, slots=slots, because=tuple(because))


def _outcomes(normal: Mapping[str, Report]) -> Mapping[str, Mapping[int, bool]]:
    """For each node the slots that it ran against a node that is not abnormal, and whether each of them failed.

    A pair counts for both its ends, whichever of them told of it, and failed if either says so. An address that two
    nodes claim belongs to neither, because which one is meant would be a guess.
    """
    claims = Counter(address for report in normal.values() for address in report.addresses)
    owners = {address: node for node, report in normal.items() for address in report.addresses if claims[address] == 1}
    outcomes: dict[str, dict[int, bool]] = defaultdict(dict)
    for report in normal.values():
        for batch in report.batches:
            ends = (owners.get(batch.own), owners.get(batch.peer))
            if None in ends:
                continue
            for end in filter(None, ends):
                ran = outcomes[end]
                ran[batch.slot] = ran.get(batch.slot, False) or batch.failed
    return outcomes


def _expiry(run: Run, *, within: timedelta) -> reasons.Reason:
    return reasons.of(
        "preflight_expired",
        received=len(run.reports),
        expected=run.size,
        within=reasons.span(within),
        nodes=", ".join(sorted(run.reports)),
    )
