"""Reads of parts, and of what is known about them in other apps."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover.machines import part_serials, parts
from kcover.machines.parts import Kind, Seen
from kcover_portal.fleet.models import Gpu, Hardware, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.parts.models import Part, Placement
from kcover_portal.repairs.models import Repair

WHOLE_NODE = (Kind.BOARD, Kind.MACHINE)  # any fault of the node is one of theirs


def unrecorded() -> QuerySet[Hardware]:
    """Nodes whose inventory changed since their parts were recorded."""
    return Hardware.objects.filter(unrecorded=True)


def orphaned() -> QuerySet[Placement]:
    """Placements that did not end before the row of their node was deleted, as those of silent parked nodes are."""
    return Placement.objects.filter(node=None, until=None)


def claimed() -> QuerySet[Placement]:
    """Placements of parts that another node had, which are not decided yet."""
    return Placement.objects.filter(until=None, doubt=Placement.Doubt.CLAIMED)


def left_to_people() -> QuerySet[Placement]:
    """Placements that need attention: flagged, not reviewed, and the part is still there."""
    rows = Placement.objects.filter(flagged_at__isnull=False, reviewed_at=None, until=None)
    return rows.exclude(node__gone_at__isnull=False)


def inventory_of(hardware: Hardware) -> list[Seen]:
    """The parts with serial numbers in the node's last inventory."""
    found = [
        Seen(kind=kind, serial=serial)
        for kind, text in ((Kind.MACHINE, hardware.machine_serial), (Kind.BOARD, hardware.board_serial))
        if (serial := part_serials.known(text))
    ]
    for gpu in Gpu.objects.filter(node=hardware.node_id).order_by("index"):
        if serial := part_serials.known(gpu.serial):
            slot = gpu.pci or str(gpu.index)
            found.append(Seen(kind=Kind.GPU, serial=serial, slot=slot, device=gpu.uuid, model=gpu.model))
    for nic in hardware.nics:
        if serial := part_serials.known(nic["serial"]):
            device = nic["name"]
            found.append(Seen(kind=Kind.NIC, serial=serial, slot=nic["pci"], device=device, model=nic["model"]))
    return list({seen.key: seen for seen in found}.values())


def faults_of(placements: Iterable[Placement]) -> QuerySet[Incident]:
    """Faults of the hardware during the placements, newest first; without drills and faults of users' programs.

    A fault counts if its severity is grave. Placements in doubt have none: two nodes claim the part.
    """
    wanted = Q(pk__in=())
    for row in placements:
        if row.node_id is None or row.doubt:
            continue
        while_there = Q(node=row.node_id, opened_at__gte=row.since)
        if (until := row.ended_at) is not None:
            while_there &= Q(opened_at__lt=until)
        wanted |= while_there & _of_device(row)
    rows = Incident.objects.filter(wanted, drill=False, is_user_fault=False, severity__in=parts.GRAVE)
    return rows.select_related("cluster", "node").order_by("-opened_at", "-pk")


def _of_device(row: Placement) -> Q:
    if row.part.kind in WHOLE_NODE:
        return Q()
    address = row.slot.removesuffix(".0")
    places = {row.slot, address, f"{address}.0", row.device} - {"", ".0"}
    if row.part.kind == Kind.GPU:
        return Q(gpu_uuid=row.device) | Q(gpu_uuid="", device__in=places)
    ports = {f"{name}/{port}" for name in row.device.split(",") if name for port in (1, 2)}
    return Q(device__in=places | ports | set(filter(None, row.device.split(","))))


def repairs_of(part: Part) -> QuerySet[Repair]:
    """Repairs of the part, and those that took it out of a machine; newest first."""
    if part.kind == Kind.MACHINE:
        wanted = Q(machine_serial=part.serial) | Q(part_kind="node", removed_serial=part.serial)
    else:
        wanted = Q(part_kind=part.kind) & (Q(part_serial=part.serial) | Q(removed_serial=part.serial))
    return Repair.objects.filter(wanted).select_related("cluster", "node")


def histories(wanted: Collection[Part]) -> dict[int, list[Placement]]:
    """The placements of the parts by the part's key, newest first; without parts that have none. One query."""
    found: dict[int, list[Placement]] = {}
    rows = Placement.objects.filter(part__in=wanted).select_related("node", "part")
    for row in rows.order_by("-since", "-pk"):
        found.setdefault(row.part_id, []).append(row)
    return found


def repaired(wanted: Collection[Part]) -> set[int]:
    """The keys of the parts whose serial number a repair names, of whatever kind of part. One query."""
    serials = [part.serial for part in wanted]
    names = Q(machine_serial__in=serials) | Q(part_serial__in=serials) | Q(removed_serial__in=serials)
    columns = ("machine_serial", "part_serial", "removed_serial")
    named = {serial for row in Repair.objects.filter(names).order_by().values_list(*columns) for serial in row}
    return {part.pk for part in wanted if part.serial in named}


def last_faults(row: Placement) -> int:
    """The number of grave faults in the last days of a placement that ended."""
    until = row.ended_at
    if until is None:
        return 0
    return faults_of([row]).filter(opened_at__gte=until - parts.FAULTS_COUNT_FOR).count()


def in_slots_of(placements: Collection[Placement]) -> QuerySet[Placement]:
    """All placements in the slots of these, of whatever part of the kind; for GPUs and adapters."""
    wanted = Q(pk__in=())
    for row in placements:
        if row.slot:
            wanted |= Q(cluster=row.cluster_id, node_name=row.node_name, slot=row.slot, part__kind=row.part.kind)
    return Placement.objects.filter(wanted).select_related("part", "node", "cluster")


def with_placement(rows: QuerySet[Part], placements: QuerySet[Placement]) -> QuerySet[Part]:
    """The parts that have one of the placements."""
    return rows.filter(Exists(placements.filter(part=OuterRef("pk"))))


def new_today(node: int, *, now: datetime) -> int:
    """The number of placements that the node began within a day."""
    return Placement.objects.filter(node=node, since__gt=now - timedelta(days=1)).count()


def present_in(node: Node) -> dict[tuple[str, str, str], int]:
    """The parts in the node now by kind, serial number and slot, with the key of their row."""
    rows = Placement.objects.filter(node=node, until=None).values_list("part__kind", "part__serial", "slot", "part_id")
    return {(kind, serial, slot): pk for kind, serial, slot, pk in rows}


def placed_in(node: Node) -> QuerySet[Placement]:
    """The placements of the parts that are in the node now."""
    rows = Placement.objects.filter(node=node, until=None).select_related("part")
    return rows.order_by("part__kind", "slot", "pk")
