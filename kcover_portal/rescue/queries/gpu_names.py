"""The names of GPUs: faults and requests name one by its UUID or by its PCI address."""

from collections.abc import Mapping

from kcover.faults import xid
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident


def of_fault(fault: Incident, slots: Mapping[str, str]) -> dict[str, str] | None:
    """The GPU that a fault names, by ``gpu_uuid`` or ``pci``; None if it names none. ``slots``: of its node.

    A source may have named the GPU by its number only. Its incident has the slot, but no UUID.
    """
    slot = xid.slot(fault.device) if not fault.alias else None
    uuid = fault.gpu_uuid or slots.get(slot or "", "") or (fault.device if fault.device.startswith("GPU-") else "")
    if not uuid and (fault.kind != "xid" or slot is None):
        return None
    return {"gpu_uuid": uuid} if uuid else {"pci": fault.device}


def key(gpu: Mapping[str, str], slots: Mapping[str, str]) -> str:
    """The UUID of a GPU, or its slot as long as the inventory does not name its UUID."""
    slot = xid.slot(gpu.get("pci")) or ""
    return gpu.get("gpu_uuid") or slots.get(slot) or slot


def slots_of(node: Node) -> dict[str, str]:
    """The UUID of the GPU in each slot of the node."""
    gpus = Gpu.objects.filter(node=node)
    return {slot: gpu.uuid for gpu in gpus if (slot := xid.slot(gpu.pci)) is not None}
