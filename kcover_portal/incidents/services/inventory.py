"""Joins the names of a device to those that the node's inventory has for it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kcover.faults import device, xid
from kcover.faults.device import Device, Known
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.services.source_fault import SourceFault, device_of
from kcover_portal.lib.prepared import Prepared


def located(node: Node, seen: Sequence[SourceFault]) -> list[SourceFault]:
    """The faults with the slot and the UUID of their GPU, as agents name it. One query if one of them lacks one.

    A GPU that is named by its number only gets no UUID: after a reboot that lost a GPU, the number is another GPU's.
    """
    if all(one.pci or not device_of(one) for one in seen):
        return list(seen)
    known = known_gpus(node)
    return [_located(one, known) for one in seen]


def _located(one: SourceFault, known: Sequence[Known]) -> SourceFault:
    found = device.joined(device_of(one), known)
    if one.pci or one.gpu_uuid:
        return replace(one, pci=one.pci or found.slot or None, gpu_uuid=found.uuid or None)
    return replace(one, pci=found.slot or None, by_number=bool(found.slot))


def names_of(passed: Device, known: Sequence[Known]) -> frozenset[str]:
    """Every name of the device, with those of the inventory; none for the node as a whole."""
    return passed.names | device.joined(passed, known).names if passed else frozenset()


def known_gpus(node: Node) -> list[Known]:
    """The GPUs of the agent's last inventory of this machine; none if it is of the machine before it."""
    since = node.machine_since
    rows = [(index, uuid, pci) for index, uuid, pci, at in _GPUS.rows(node=node.pk) if since is None or at >= since]
    return [Known(index, uuid, xid.slot(pci) or "") for index, uuid, pci in rows]


_GPUS: Prepared[tuple[int, str, str, datetime]] = Prepared(
    lambda node: Gpu.objects.order_by().filter(node=node).values_list("index", "uuid", "pci", "seen_at"), node=int
)
