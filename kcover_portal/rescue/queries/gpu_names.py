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


def may_be_on(fault: Incident, gpu: Mapping[str, str], slots: Mapping[str, str]) -> bool:
    """Returns whether the fault may be on this GPU, however a source named it.

    What cannot be compared may be: a number, or a slot and a UUID that no inventory brings together.
    """
    name = fault.device.partition(" ")[0]  # without its part, such as a link
    uuid, slot = _both(fault.gpu_uuid or (name if name.startswith("GPU-") else ""), xid.slot(name) or "", slots)
    if not (uuid or slot):
        return name == "gpu"
    other_uuid, other_slot = _both(gpu.get("gpu_uuid", ""), xid.slot(gpu.get("pci")) or "", slots)
    if uuid and other_uuid:
        return uuid == other_uuid
    return slot == other_slot or not (slot and other_slot)


def _both(uuid: str, slot: str, slots: Mapping[str, str]) -> tuple[str, str]:
    """UUID and slot of a GPU, each from the inventory if it is not known."""
    return uuid or slots.get(slot, ""), slot or next(
        (one for one, known in slots.items() if uuid and known == uuid), ""
    )


def key(gpu: Mapping[str, str], slots: Mapping[str, str]) -> str:
    """The UUID of a GPU, or its slot as long as the inventory does not name its UUID."""
    slot = xid.slot(gpu.get("pci")) or ""
    return gpu.get("gpu_uuid") or slots.get(slot) or slot


def slots_of(node: Node) -> dict[str, str]:
    """The UUID of the GPU in each slot of the node."""
    gpus = Gpu.objects.filter(node=node)
    return {slot: gpu.uuid for gpu in gpus if (slot := xid.slot(gpu.pci)) is not None}
