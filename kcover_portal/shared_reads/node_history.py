"""The last 30 days of a node, from the rows that the apps below keep. The number of statements is constant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q

from kcover import actors, audit
from kcover.nodes import node_history
from kcover.nodes.node_history import NODE, Happening, Kind, Mark, Out, Span
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.fleet.models import ForeignCordon, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs.models import Repair
from kcover_portal.reports import rescues as reports
from kcover_portal.reports.records import STOPS
from kcover_portal.rescue.models import Rescue, Step

MAX_ROWS: Final = 1000  # of each kind that are read, the newest
COMMANDS: Final = "command:"  # actors of manage.py
VERDICTS: Final = (Validation.State.PASSED, Validation.State.FAILED, Validation.State.ERROR)
REPAIR_DATES: Final = tuple(f"{state}_at" for state in Repair.State.values)


@dataclass(frozen=True, slots=True)
class Lane:
    """The node (``gpu`` None) or one of its GPUs: marks in order of kind and day, and times out of service."""

    gpu: Gpu | None
    marks: Sequence[Mark]
    spans: Sequence[Span]

    @property
    def kinds(self) -> list[tuple[Kind, list[Mark]]]:
        """The marks by kind, without kinds that have none."""
        return [(kind, found) for kind in Kind if (found := [mark for mark in self.marks if mark.kind is kind])]


@dataclass(frozen=True, slots=True)
class History:
    """The lanes: the node first, then its GPUs in order. ``complete``: False if older rows were left out."""

    since: datetime
    until: datetime
    complete: bool
    lanes: Sequence[Lane]


def of(node: Node, *, now: datetime) -> History:
    """The history of a node that the reader may see."""
    since, until = node_history.window(now)
    gpus = list(node.devices.all())
    lanes = _Lanes(gpus)
    faults = list(_faults(node, since=since, until=until))
    rescues = list(Rescue.objects.filter(node=node, opened_at__lt=until).filter(_open_after(since))[:MAX_ROWS])
    repairs = list(Repair.objects.filter(node=node, reported_at__lt=until).filter(_open_after(since))[:MAX_ROWS])
    people = list(_people(node, since=since, until=until))
    verdicts = list(_verdicts(node, since=since, until=until))
    happenings = [
        *(_fault(one, lanes) for one in faults),
        *(_rescue(one) for one in rescues),
        *(_act(one) for one in people),
        *(_verification(one) for one in rescues if one.verified is not None and one.closed_at is not None),
        *(_verdict(one) for one in verdicts),
        *(moved for one in repairs for moved in _moves(one, lanes)),
    ]
    out = [
        *(
            Span(lanes.of(one.gpu_uuid, one.device), Out.FAULT, one.opened_at, one.closed_at)
            for one in _stopping(faults)
        ),
        *node_history.isolations(_isolations(node, until=until)),
        *(Span(lanes.with_serial(one), Out.REPAIR, one.reported_at, one.closed_at) for one in repairs),
        *(Span(NODE, Out.OTHERS, began, ended) for began, ended in _cordons(node, since=since)),
    ]
    marks = node_history.marks(happenings, since=since)
    spans = node_history.spans(out, since=since, until=until)
    return History(
        since,
        until,
        max(len(faults), len(rescues), len(repairs), len(people), len(verdicts)) < MAX_ROWS,
        [
            Lane(gpu, [mark for mark in marks if mark.lane == name], [one for one in spans if one.lane == name])
            for gpu, name in [(None, NODE), *((gpu, gpu.uuid) for gpu in gpus)]
        ],
    )


class _Lanes:
    """The lane of a fault or a repair. What names no GPU of the node's last inventory is the node's."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._lanes = {name: gpu.uuid for gpu in gpus for name in (gpu.uuid, _slot(gpu.pci)) if name}
        self._serials = {gpu.serial: gpu.uuid for gpu in gpus if gpu.serial}

    def of(self, uuid: str, device: str) -> str:
        return self._lanes.get(uuid or device) or self._lanes.get(_slot(device), NODE)

    def with_serial(self, repair: Repair) -> str:
        return self._serials.get(repair.part_serial, NODE) if repair.part_kind == "gpu" else NODE


def _slot(address: str) -> str:
    """A PCI address without the function."""
    return address.rsplit(".", 1)[0].lower()


def _open_after(since: datetime) -> Q:
    return Q(closed_at=None) | Q(closed_at__gte=since)


def _faults(node: Node, *, since: datetime, until: datetime) -> Iterable[Incident]:
    rows = Incident.objects.filter(node=node, opened_at__lt=until).filter(_open_after(since))
    columns = ("kind", "code", "gpu_uuid", "device", "severity", "is_user_fault", "state", "opened_at", "closed_at")
    return rows.only(*columns)[:MAX_ROWS]


def _stopping(faults: Iterable[Incident]) -> Iterable[Incident]:
    return (one for one in faults if one.severity == STOPS and not one.is_user_fault)


def _people(node: Node, *, since: datetime, until: datetime) -> Iterable[Entry]:
    named = Q(actor__startswith=actors.USER) | Q(actor__startswith=actors.TOKEN) | Q(actor__startswith=COMMANDS)
    rows = Entry.objects.filter(named, cluster=node.cluster.name, node=node.name, at__gte=since, at__lt=until)
    return rows.order_by("-pk")[:MAX_ROWS]


def _verdicts(node: Node, *, since: datetime, until: datetime) -> Iterable[ValidatedNode]:
    rows = ValidatedNode.objects.filter(node=node, state__in=VERDICTS)
    rows = rows.filter(validation__finished_at__gte=since, validation__finished_at__lt=until)
    return rows.select_related("validation").order_by("-pk")[:MAX_ROWS]


def _isolations(node: Node, *, until: datetime) -> Iterable[tuple[datetime, bool]]:
    """When the portal began (True) and ended (False) to keep work away; also before the window, as it may last."""
    steps = reports.changing(Step.objects.filter(rescue__node=node, finished_at__lt=until)).order_by("-finished_at")
    for at, name in steps.values_list("finished_at", "name")[:MAX_ROWS]:
        if at is not None:
            yield at, name in reports.ISOLATING
    entries = Entry.objects.filter(cluster=node.cluster.name, node=node.name, at__lt=until)
    entries = entries.filter(verb__in=(reports.MARKS_GONE, reports.MARKS_FOUND)).order_by("-pk")
    for at, verb in entries.values_list("at", "verb")[:MAX_ROWS]:
        yield at, verb == reports.MARKS_FOUND


def _cordons(node: Node, *, since: datetime) -> Iterable[tuple[datetime, datetime | None]]:
    rows = ForeignCordon.objects.filter(Q(ended_at=None) | Q(ended_at__gte=since), node=node).order_by("-began_at")
    return rows.values_list("began_at", "ended_at")[:MAX_ROWS]


def _fault(one: Incident, lanes: _Lanes) -> Happening:
    return Happening(
        at=one.opened_at,
        lane=lanes.of(one.gpu_uuid, one.device),
        kind=Kind.FAULT,
        about="incident",
        id=one.pk,
        code=f"{one.kind} {one.code}",
        state=one.state,
        bad=one.severity == STOPS and not one.is_user_fault,
    )


def _rescue(one: Rescue) -> Happening:
    return Happening(
        at=one.opened_at,
        lane=NODE,
        kind=Kind.PORTAL,
        about="rescue",
        id=one.pk,
        code=one.code,
        state=one.outcome or one.state,
        by=one.rule or one.requested_by,
        rescue=one.pk,
        bad=one.state == Rescue.State.FAILED or one.needs_human,
    )


def _verification(one: Rescue) -> Happening:
    assert one.closed_at is not None
    return Happening(
        at=one.closed_at,
        lane=NODE,
        kind=Kind.PROOF,
        about="rescue",
        id=one.pk,
        code="verify",
        state="passed" if one.verified else "failed",
        rescue=one.pk,
        bad=not one.verified,
    )


def _verdict(one: ValidatedNode) -> Happening:
    validation = one.validation
    assert validation.finished_at is not None
    return Happening(
        at=validation.finished_at,
        lane=NODE,
        kind=Kind.PROOF,
        about="validation",
        id=validation.pk,
        code=validation.profile,
        state=one.state,
        by=validation.requested_by,
        rescue=validation.rescue_id,
        bad=one.state != Validation.State.PASSED,
    )


def _act(one: Entry) -> Happening:
    act = audit.known_act(one)
    return Happening(
        at=one.at,
        lane=NODE,
        kind=Kind.PERSON,
        about="entry",
        id=one.sequence,
        code=one.verb,
        by=one.actor,
        rescue=one.rescue,
        title=None if act is None else act.title(),
    )


def _moves(one: Repair, lanes: _Lanes) -> Iterable[Happening]:
    """Its states that are dated; those outside of the window have no day."""
    for state, field in zip(Repair.State.values, REPAIR_DATES, strict=True):
        at = getattr(one, field)
        if at is not None:
            yield Happening(
                at=at,
                lane=lanes.with_serial(one),
                kind=Kind.REPAIR,
                about="repair",
                id=one.pk,
                code=one.part_kind,
                state=state,
                by=one.vendor,
                rescue=one.rescue_id,
            )
