"""The verdict on one run of a workload, and how each report changes a run.

A run is keyed by namespace, workload and the uid of its owner. Only a complete run has a verdict on slow nodes; a node
that failed its own checks is abnormal at once. Isolation goes through the storm guard: in a job in which every pair
contains a bad node, all nodes are flagged, and the reports cannot distinguish them.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kcover import reasons
from kcover.preflight.report import Report, expected_batches

# From kcover's example. Its later default of 10 min counts from the last report; this one counts from the first.
COLLECT_TIMEOUT = timedelta(minutes=30)

STATES = ("waiting", "complete", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The reports received so far, one for each node. ``size`` is the expected number."""

    size: int
    first_at: datetime
    reports: Mapping[str, Report]

    @property
    def complete(self) -> bool:
        """True if every node has reported."""
        return len(self.reports) >= self.size


# What a report does to a run. counted: it is the first of its node. replaced: it replaces the node's earlier one.
# same: nothing. restarted: it begins a new run, and the earlier run ends.
CHANGES = ("counted", "replaced", "same", "restarted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """The run with the report, what the report changed (one of CHANGES), and why a new run was begun."""

    run: Run
    change: str
    because: reasons.Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a run.

    ``abnormal`` is known at once, ``slow`` and ``suspects`` once the run is complete. ``suspects`` are the two nodes of
    a job of two, which cannot be distinguished. ``slots``: how many of ``expected_slots`` each normal node ran. Names
    are sorted.
    """

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
        """The nodes to make unschedulable."""
        return tuple(sorted({*self.abnormal, *self.slow}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The input of ``classify``: its size, the time of its first report, and how many reports it has."""

    size: int
    first_at: datetime
    received: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportChange:
    """The effect of a report on a run. ``name``: one of CHANGES. ``over``: the run had expired and ended without it."""

    name: str
    because: reasons.Reason | None = None
    over: bool = False


def classify(
    summary: RunSummary | None,
    earlier: Report | None,
    report: Report,
    *,
    now: datetime,
    within: timedelta = COLLECT_TIMEOUT,
) -> ReportChange:
    """The effect of the report on the run. ``summary``: None without a run; ``earlier``: the node's previous report."""
    if summary is None:
        return ReportChange(name="counted")
    complete = summary.received >= summary.size
    if not complete and now >= summary.first_at + within:
        return ReportChange(name="restarted", over=True)
    if earlier == report:
        return ReportChange(name="same")
    if report.size != summary.size:
        dropped = reasons.of(
            "preflight_size", node=report.node, size=report.size, before=summary.size, received=summary.received
        )
        return ReportChange(name="restarted", because=dropped)
    if complete:
        return ReportChange(name="restarted", because=reasons.of("preflight_again", node=report.node))
    return ReportChange(name="counted" if earlier is None else "replaced")


def receive(run: Run | None, report: Report, *, now: datetime, within: timedelta = COLLECT_TIMEOUT) -> Received:
    """The run after the report. The time to collect counts from the first report and is never extended."""
    new_run = Run(size=report.size, first_at=now, reports={report.node: report})
    if run is None:
        return Received(run=new_run, change="counted")
    summary = RunSummary(size=run.size, first_at=run.first_at, received=len(run.reports))
    change = classify(summary, run.reports.get(report.node), report, now=now, within=within)
    if change.name == "same":
        return Received(run=run, change="same")
    if change.name == "restarted":
        because = _expiry(run, within=within) if change.over else change.because
        return Received(run=new_run, change="restarted", because=because)
    return Received(run=replace(run, reports={**run.reports, report.node: report}), change=change.name)


def expired(run: Run, *, now: datetime, within: timedelta = COLLECT_TIMEOUT) -> bool:
    """Return whether the run is incomplete and its time to collect is over."""
    return not run.complete and now >= run.first_at + within


def evaluate(run: Run, *, now: datetime, within: timedelta = COLLECT_TIMEOUT) -> Verdict:
    """The verdict on the run now. It does not depend on the order of reports, or on which node reported a pair."""
    abnormal = {node: report for node, report in run.reports.items() if report.failed_checks}
    because = [
        reasons.of("preflight_abnormal", node=node, checks=", ".join(report.failed_checks))
        for node, report in sorted(abnormal.items())
    ]
    verdict = Verdict(
        state="complete" if run.complete else "expired" if expired(run, now=now, within=within) else "waiting",
        received=len(run.reports),
        expected=run.size,
        expected_slots=expected_batches(run.size),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """The nodes for which a complete run disproves an earlier verdict, ``abnormal`` or ``slow``."""

    abnormal: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()


def cleared(run: Run, verdict: Verdict) -> Cleared:
    """The nodes that a complete run clears.

    A node is no longer abnormal if both of its checks ran and passed. It is no longer slow if it ran every expected
    slot and none failed, whichever node reported it. An incomplete run, and a check that did not run, prove nothing.
    """
    if verdict.state != "complete":
        return Cleared()
    normal = {node: report for node, report in run.reports.items() if node not in verdict.abnormal}
    outcomes = _outcomes(normal)
    return Cleared(
        abnormal=frozenset(node for node, report in normal.items() if report.passed_checks),
        slow=frozenset(
            node
            for node in normal
            if len(outcomes[node]) >= verdict.expected_slots and not any(outcomes[node].values())
        ),
    )


def _outcomes(normal: Mapping[str, Report]) -> Mapping[str, Mapping[int, bool]]:
    """For each node: the slots it ran against a node that is not abnormal, and whether each slot failed.

    A pair counts for both of its nodes, whichever reported it, and failed if either reports it. An address that two
    nodes claim is ignored, because its owner would be a guess. So is what a report says about a peer that names another
    peer in this slot, or that the report names in several: a schedule has each pair once, so a false report fails at
    most one slot of a node.
    """
    claims = Counter(address for report in normal.values() for address in report.addresses)
    owners = {address: node for node, report in normal.items() for address in report.addresses if claims[address] == 1}
    pairs: dict[str, dict[int, set[str]]] = {node: defaultdict(set) for node in normal}  # node -> slot -> peers
    told: list[tuple[str, str, int, bool]] = []  # reporter, peer, slot, and whether it failed
    for node, report in normal.items():
        for batch in report.batches:
            ends = {owners.get(batch.own), owners.get(batch.peer)}
            peer = next(iter(ends - {node, None}), None)
            if node in ends and peer is not None:
                pairs[node][batch.slot].add(peer)
                told.append((node, peer, batch.slot, batch.failed))
    outcomes: dict[str, dict[int, bool]] = defaultdict(dict)
    for node, peer, slot, failed in told:
        once = sum(peer in peers for peers in pairs[node].values()) == 1
        agrees = node in pairs[peer][slot] if slot in pairs[peer] else once
        for end in (node, peer) if agrees else (node,):
            outcomes[end][slot] = outcomes[end].get(slot, False) or failed
    return outcomes


def _expiry(run: Run, *, within: timedelta) -> reasons.Reason:
    return reasons.of(
        "preflight_expired",
        received=len(run.reports),
        expected=run.size,
        within=reasons.span(within),
        nodes=", ".join(sorted(run.reports)),
    )
