"""Find the device of a GPU in the ResourceSlices of its node.

Only an unambiguous match counts: exactly one device has the GPU's UUID or PCI address. A GPU that is split into parts
is not isolated by itself, and neither is one whose slot is published with another UUID.
"""

from collections.abc import Mapping, Sequence

from kcover import reasons
from kcover.faults import xid
from kcover_portal.fleet.models import Gpu
from kcover_portal.kube import port, resource_slices
from kcover_portal.kube.resource_slices import Device
from kcover_portal.rescue.step.context import Context

MAX_NAMES_SHOWN = 8


def find(context: Context, gpu: Mapping[str, str]) -> Device | reasons.Reason:
    """The device of the GPU, named by ``gpu_uuid`` or ``pci``; or why there is no such device. Raises KubeError."""
    published = resource_slices.devices(_slices(context.kube, context.node.name))
    if not published:
        return reasons.of("device_unpublished", node=context.node.name)
    uuid, pci = gpu.get("gpu_uuid", ""), gpu.get("pci", "")
    if uuid:
        row = Gpu.objects.filter(node=context.node, uuid=uuid).first()
        pci = row.pci if row is not None else ""
    return choose(published, node=context.node.name, uuid=uuid, pci=pci)


def choose(published: Sequence[Device], *, node: str, uuid: str, pci: str) -> Device | reasons.Reason:
    """The only device with this UUID or in this slot; or why it is not certain. "": unknown."""
    slot, gpu = xid.slot(pci), uuid or pci
    found = [one for one in published if _is_of(one, uuid) or (slot is not None and xid.slot(one.pci) == slot)]
    if not found:
        return reasons.of("device_missing", node=node, gpu=gpu)
    if len(found) > 1:
        names = ", ".join(sorted(one.name for one in found)[:MAX_NAMES_SHOWN])
        return reasons.of("device_split", node=node, gpu=gpu, count=len(found), devices=names)
    device = found[0]
    if device.parent or device.uuid.startswith("MIG-"):
        return reasons.of("device_split", node=node, gpu=gpu, count=1, devices=device.name)
    if uuid and device.uuid and device.uuid.lower() != uuid.lower():
        return reasons.of("device_differs", node=node, pci=pci, found=device.uuid)
    return device


def _is_of(device: Device, uuid: str) -> bool:
    return bool(uuid) and uuid.lower() in (device.uuid.lower(), device.parent.lower())


def _slices(kube: port.Cluster, node: str) -> list[port.CustomObject]:
    """The slices of the node, by the newest version of the API that has any."""
    return next((found for kind in port.RESOURCE_SLICES if (found := kube.custom_objects(kind, node=node))), [])
