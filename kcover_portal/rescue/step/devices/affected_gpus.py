"""The GPUs that the faults of a rescue name."""

from dataclasses import dataclass

from django.db.models import Q

from kcover.faults import xid
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.queries import gpu_names
from kcover_portal.rescue.step.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedGpus:
    """``gpus``: each as the agent identifies it, by ``gpu_uuid`` or ``pci``. ``unnamed``: a fault that names none."""

    gpus: tuple[dict[str, str], ...]
    unnamed: Incident | None = None


def find(context: Context) -> AffectedGpus:
    """The GPUs that the open faults of the node name, as far as hardware or this rescue is concerned."""
    about = Incident.objects.filter(Q(rescues=context.rescue) | Q(is_user_fault=False), node=context.node)
    faults = about.filter(state=Incident.State.OPEN).distinct()
    slots = gpu_names.slots_of(context.node)
    found: dict[str, dict[str, str]] = {}
    for fault in faults:
        gpu = gpu_names.of_fault(fault, slots)
        if gpu is None:
            return AffectedGpus(gpus=(), unnamed=fault)
        found[gpu.get("gpu_uuid") or str(xid.slot(fault.device))] = gpu
    return AffectedGpus(gpus=tuple(found.values()))
