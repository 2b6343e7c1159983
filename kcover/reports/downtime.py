"""GPU time lost: the times in which GPUs did no work, cut so that each moment has one cause, phase and policy.

A node is out of service while the portal isolates it: all its GPUs are lost. Before that, a fault that stops a GPU
takes that GPU, and one that stops the node takes all. A moment is counted once, however many faults are open.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, TypeVar

from kcover.actions import ACTIONS, Stage
from kcover.reports.records import Fault, Isolation, Place, Records, Repair, Run, Span, Work

T = TypeVar("T", Fault, Work, Isolation, Repair, Run, Span)


class Phase(StrEnum):
    """What a node without service waited for, in the order in which it usually happens."""

    NO_RESCUE = "no_rescue"  # a fault is open and no rescue handles it
    WAITING = "waiting"  # a rescue waits for a person, a guard or its turn
    ISOLATE = "isolate"
    MOVE = "move"
    REPAIR = "repair"
    PROVE = "prove"
    RETURN = "return"
    AFTER_RESCUE = "after_rescue"  # the rescue ended and left the node isolated
    DESK = "desk"  # at the repair desk


OF_STAGES: Final[Mapping[Stage, Phase]] = {
    Stage.KEEP_AWAY: Phase.ISOLATE,
    Stage.NOTIFY: Phase.MOVE,
    Stage.MOVE: Phase.MOVE,
    Stage.REPAIR: Phase.REPAIR,
    Stage.PROVE: Phase.PROVE,
    Stage.RETURN: Phase.RETURN,
    Stage.HAND_OVER: Phase.WAITING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """So many GPUs of a node were lost from ``since`` to ``until``. ``cause`` "": people isolated it."""

    place: Place
    since: datetime
    until: datetime
    gpus: int
    cause: str
    policy: str
    rule: str
    phase: Phase

    @property
    def gpu_time(self) -> timedelta:
        """GPUs times time."""
        return self.gpus * (self.until - self.since)


@dataclass(slots=True)
class _Node:
    """What was recorded about one node."""

    faults: list[Fault] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    isolations: list[Isolation] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)


def lost(records: Records, *, since: datetime, until: datetime) -> list[Lost]:
    """The lost GPU time between two times, node by node, in order of time; pieces of a node never overlap."""
    nodes: dict[int, _Node] = {}
    for fault in records.faults:
        if fault.stops:
            nodes.setdefault(fault.node, _Node()).faults.append(fault)
    for work in records.works:
        nodes.setdefault(work.node, _Node()).works.append(work)
    for isolation in records.isolations:
        nodes.setdefault(isolation.node, _Node()).isolations.append(isolation)
    for repair in records.repairs:
        nodes.setdefault(repair.node, _Node()).repairs.append(repair)
    return [
        piece
        for place in records.places
        if place.node in nodes and place.gpus
        for piece in _of_node(place, nodes[place.node], since=since, until=until)
    ]


def _of_node(place: Place, node: _Node, *, since: datetime, until: datetime) -> Iterator[Lost]:
    """The pieces of one node. It cannot be lost before its cluster listed it, or after it is gone."""
    since = max(since, place.listed.since)
    until = min(until, place.listed.until or until)
    if since >= until:
        return
    changes: dict[datetime, _Change] = defaultdict(_Change, {since: _Change(), until: _Change()})
    _note(changes, ((one, one.open) for one in sorted(node.faults, key=lambda one: one.open.since)), since, until)
    _note(changes, ((one, one.open) for one in sorted(node.works, key=lambda one: one.open.since)), since, until)
    _note(changes, ((one, one.time) for one in node.isolations), since, until)
    _note(changes, ((one, one.time) for one in node.repairs), since, until)
    _note(changes, ((run, run.time) for work in node.works for run in work.runs), since, until)
    _note(changes, ((span, span) for work in node.works for span in work.held), since, until)
    now = _Now()
    for begins, ends in pairwise(sorted(changes)):
        now.apply(changes[begins])
        gpus = now.gpus_out_of(place)
        if gpus:
            cause, work = now.blame()
            policy, rule = (work.policy, work.rule) if work is not None else ("", "")
            phase = now.phase()
            yield Lost(
                place=place, since=begins, until=ends, gpus=gpus, cause=cause, policy=policy, rule=rule, phase=phase
            )


@dataclass(slots=True)
class _Change:
    begun: list[object] = field(default_factory=list)
    ended: list[object] = field(default_factory=list)


def _note(changes: dict[datetime, _Change], spans: Iterable[tuple[T, Span]], since: datetime, until: datetime) -> None:
    for one, span in spans:
        begins, ends = max(span.since, since), min(span.until or until, until)
        if begins < ends:
            changes[begins].begun.append(one)
            changes[ends].ended.append(one)


class _Now:
    """What is going on at a moment; each in the order in which it began."""

    def __init__(self) -> None:
        self._faults: dict[int, Fault] = {}
        self._works: dict[int, Work] = {}
        self._isolations: dict[int, Isolation] = {}
        self._repairs: dict[int, Repair] = {}
        self._runs: dict[int, Run] = {}
        self._holds: dict[int, Span] = {}
        self._of: Mapping[type, dict[int, Any]] = {
            Fault: self._faults,
            Work: self._works,
            Isolation: self._isolations,
            Repair: self._repairs,
            Run: self._runs,
            Span: self._holds,
        }
        self._devices: Counter[str] = Counter()

    def apply(self, change: _Change) -> None:
        """Ends and begins what ends and begins at this moment."""
        for one in change.ended:
            del self._of[type(one)][id(one)]
            if isinstance(one, Fault):
                self._devices[one.device] -= 1
                if not self._devices[one.device]:
                    del self._devices[one.device]
        for one in change.begun:
            self._of[type(one)][id(one)] = one
            if isinstance(one, Fault):
                self._devices[one.device] += 1

    def gpus_out_of(self, place: Place) -> int:
        """The GPUs that do no work."""
        if self._isolations or "" in self._devices:
            return place.gpus
        return min(place.gpus, len(self._devices))

    def blame(self) -> tuple[str, Work | None]:
        """The cause, and the rescue that has the policy: of the isolation, else of the fault open for longest."""
        cause = next((fault.cause for fault in self._faults.values()), "")
        for isolation in self._isolations.values():
            return isolation.work.cause or cause, isolation.work
        return cause, next(iter(self._works.values()), None)

    def phase(self) -> Phase:
        """What the node waits for."""
        if self._works:
            if self._holds or not self._runs:
                return Phase.WAITING
            latest = next(reversed(self._runs.values()))
            return OF_STAGES[ACTIONS[latest.name].place[0]]
        if self._repairs:
            return Phase.DESK
        return Phase.AFTER_RESCUE if self._isolations else Phase.NO_RESCUE


def isolations(events: Sequence[tuple[datetime, Work, bool]], *, gone: datetime | None = None) -> list[Isolation]:
    """The isolations of one node, from the events that began (True) and ended (False) them, in order of time.

    An isolated node that another rescue isolates again stays the first one's. ``gone``: when the node was removed.
    """
    found: list[Isolation] = []
    since: tuple[datetime, Work] | None = None
    for at, work, isolates in events:
        if isolates and since is None:
            since = at, work
        elif not isolates and since is not None:
            found.append(Isolation(work.node, Span(since[0], at), since[1]))
            since = None
    if since is not None:
        found.append(Isolation(since[1].node, Span(since[0], gone), since[1]))
    return found
