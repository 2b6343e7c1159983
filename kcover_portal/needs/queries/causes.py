"""What needs attention, one entry a cause: the worst first, and among those the oldest."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from django.db.models import Max

from kcover import need_causes, reasons
from kcover.needs import Need
from kcover.nodes import topology
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster
from kcover_portal.needs.models import NeedAct
from kcover_portal.needs.queries import sentences
from kcover_portal.needs.queries.items import Item, OpenRepairs, parts
from kcover_portal.needs.queries.responses import Handling, acts_of
from kcover_portal.rescue.models import Rescue

MAX_READ = 2000  # rows of one kind; ``Found.left_out`` counts the others
# Where each kind is in the list: a request ends without an answer; faults that are not urgent come later.
ORDER: Final = (
    *(Need.LEDGER, Need.APPROVAL, Need.STORM, Need.INCIDENT, Need.RESCUE, Need.JOB, Need.REPAIR),
    *(Need.PART, Need.WATCH, Need.SOURCE),
)
REPAIRABLE: Final = (Need.INCIDENT, Need.RESCUE)  # a repair may be what they need
URGENT = need_causes.rank("degraded")
LATER_THAN_REPAIRS = ORDER.index(Need.REPAIR) + 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One cause and its rows: a fault on six nodes is one entry.

    ``what``, ``why``: reasons. ``meaning``, ``advice``: texts of NVIDIA's catalog in English, or "". ``advice`` is left
    out where a rule calls a person with an instruction of its own. ``place``: what all of its nodes share, as (domain,
    value). ``further``: of a fault, how many other open faults each node has, by the node's key. ``until``: when the
    first request for approval expires, or the first date of a repair.
    """

    id: str
    kind: Need
    cluster: Cluster
    items: tuple[Item, ...]
    nodes: tuple[str, ...]
    severity: str
    since: datetime | None
    until: datetime | None
    what: reasons.Reason
    why: tuple[reasons.Reason, ...]
    nature: str = ""  # of a fault: why nothing handles it (``sentences.why_unhandled``)
    meaning: str = ""
    advice: str = ""
    place: tuple[str, str] | None = None
    further: Mapping[int, int] = field(default_factory=dict)
    handling: Handling = field(default_factory=Handling)
    repairs: OpenRepairs = field(default_factory=lambda: OpenRepairs(()), compare=False)

    @property
    def members(self) -> tuple[str, ...]:
        """Its nodes; without nodes, its rows."""
        return self.nodes or tuple(sorted(":".join(item.about) for item in self.items))

    @property
    def others(self) -> int:
        """How many further open faults its nodes have together."""
        return sum(self.further.get(item.row.node_id, 0) for item in self.items) if self.further else 0

    @property
    def snoozed(self) -> bool:
        """Returns whether it is out of sight now."""
        return self.handling.snoozed_until is not None


@dataclass(frozen=True, slots=True)
class Found:
    """The entries, and of each kind how many rows were too many to read."""

    entries: Sequence[Entry]
    left_out: Mapping[Need, int]

    @property
    def open(self) -> list[Entry]:
        """Those that are not snoozed."""
        return [entry for entry in self.entries if not entry.snoozed]


@dataclass(slots=True)
class _Draft:
    """A cause while its rows are gathered."""

    kind: Need
    key: str
    nature: str = ""
    items: list[Item] = field(default_factory=list)
    why: dict[str, reasons.Reason] = field(default_factory=dict)  # by code: the same answer of other nodes is left out


def entries(scope: Scope, clusters: Sequence[Cluster], *, now: datetime) -> Found:
    """Everything in the scope that needs attention. ``clusters``: those that are at least partly in the scope."""
    found = parts(scope, clusters, limit=MAX_READ, now=now)
    drafts: dict[str, _Draft] = {}
    faults = Counter(item.row.node_id for item in found[Need.INCIDENT][1])
    for kind, (_number, items) in found.items():
        for item, nature, why in _explained(kind, items):
            key = need_causes.identity(kind, item.cluster.pk, *_cause(kind, item, nature))
            draft = drafts.setdefault(key, _Draft(kind, key, nature))
            draft.items.append(item)
            for reason in why:
                draft.why.setdefault(reason.code, reason)
    acts = acts_of(list(drafts)) if drafts else {}
    places = (item.place for kind in REPAIRABLE for item in found[kind][1])
    repairs = OpenRepairs(place.pk for place in places if place is not None)
    made = [
        replace(_entry(draft, acts.get(draft.key, ()), faults, now=now), repairs=repairs) for draft in drafts.values()
    ]
    left_out = {kind: number - len(items) for kind, (number, items) in found.items() if number > len(items)}
    return Found(sorted(made, key=urgency), left_out)


def entry(scope: Scope, clusters: Sequence[Cluster], key: str, *, now: datetime) -> Entry | None:
    """The entry with this id, if it is in the scope and lasts."""
    return next((one for one in entries(scope, clusters, now=now).entries if one.id == key), None)


def narrowed(one: Entry, items: Sequence[Item]) -> Entry:
    """The entry as it is about some of its rows: its sentences and times then speak of these alone."""
    if len(items) == len(one.items):
        return one
    why = {reason.code: reason for _item, _nature, why in _explained(one.kind, items) for reason in why}
    return replace(one, items=tuple(items), why=tuple(why.values()), **_told(one.kind, items))


def _explained(kind: Need, items: Sequence[Item]) -> Iterable[tuple[Item, str, tuple[reasons.Reason, ...]]]:
    """Each item with the nature of its reason, and why it waits. Of the faults of a node, only the worst."""
    if kind != Need.INCIDENT:
        yield from ((item, "", sentences.why_waiting(kind, item)) for item in items)
        return
    worst: dict[int, Item] = {}
    for item in items:  # the worst first
        worst.setdefault(item.row.node_id, item)
    stopped = _stopped(worst)
    for node, item in worst.items():
        yield item, *sentences.why_unhandled(item, stopped.get(node))


def _stopped(nodes: Iterable[int]) -> dict[int, Rescue]:
    """The newest rescue of each node, where a person denied or cancelled it."""
    wanted = list(nodes)
    if not wanted:
        return {}
    newest = Rescue.objects.filter(node__in=wanted).order_by().values("node").annotate(newest=Max("pk"))
    rows = Rescue.objects.filter(pk__in=newest.values("newest"), state=Rescue.State.CANCELLED)
    return {row.node_id: row for row in rows}


def _cause(kind: Need, item: Item, nature: str) -> tuple[str, ...]:
    """What rows of one cause have in common."""
    row = item.row
    match kind:
        case Need.INCIDENT:
            return (row.kind, row.code, nature)
        case Need.RESCUE:
            return (row.fault_kind, row.fault_code, *(reason.code for reason in item.why[:1]))
        case Need.APPROVAL:
            return (row.fault_kind, row.fault_code, row.rule or row.requested_by)
        case Need.REPAIR:
            return (row.part_kind, *(reason.code for reason in item.why[:1]))
        case _:
            return item.about


def _entry(draft: _Draft, acts: Sequence[NeedAct], faults: Mapping[int, int], *, now: datetime) -> Entry:
    first, items = draft.items[0], tuple(draft.items)
    meaning, advice = sentences.meaning(*_fault(draft.kind, first))
    is_fault = draft.kind == Need.INCIDENT
    made = Entry(
        id=draft.key,
        kind=draft.kind,
        cluster=first.cluster,
        items=items,
        why=tuple(draft.why.values()),
        nature=draft.nature,
        meaning=meaning,
        advice="" if sentences.tells_what_to_do(draft.why.values()) else advice,
        further={item.row.node_id: faults[item.row.node_id] - 1 for item in items} if is_fault else {},
        **_told(draft.kind, items),
    )
    done = Handling.of(acts, members=made.members, severity=made.severity, since=made.since, now=now)
    return replace(made, handling=done)


def _told(kind: Need, items: Sequence[Item]) -> dict[str, Any]:
    """What an entry says about its rows together."""
    first = items[0]
    nodes = tuple(dict.fromkeys(item.node for item in items if item.node))
    places = {item.node: topology.of_node(item.place.labels, item.cluster.topology) for item in items if item.place}
    shared = need_causes.shared_place(list(places.values())) if len(places) == len(nodes) else None
    return {
        "nodes": nodes or (tuple(first.row.scope) if kind == Need.STORM else ()),
        "severity": sentences.severity_of(items),
        "since": min((item.since for item in items if item.since), default=None),
        "until": min((item.until for item in items if item.until), default=None),
        "what": sentences.what(kind, first, nodes, shared),
        "place": shared,
    }


def _fault(kind: Need, item: Item) -> tuple[str, str]:
    if kind == Need.INCIDENT:
        return item.row.kind, item.row.code
    return (item.row.fault_kind, item.row.fault_code) if kind in (Need.RESCUE, Need.APPROVAL) else ("", "")


def urgency(one: Entry) -> tuple[float, int, float, str]:
    """The place of an entry among all: the lowest first. No other entry has the same."""
    place: float = ORDER.index(one.kind)
    if one.kind == Need.INCIDENT and need_causes.rank(one.severity) < URGENT:
        place = LATER_THAN_REPAIRS
    first = one.until if one.kind == Need.APPROVAL else one.since
    return place, -need_causes.rank(one.severity), first.timestamp() if first else 0.0, one.id
