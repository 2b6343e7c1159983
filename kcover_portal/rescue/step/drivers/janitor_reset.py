"""NVSentinel's janitor resets a GPU: it stops the services that use the GPUs, resets one, and starts them again.

An object GPUReset without a selector would reset every GPU of the node, so it always names exactly one.
"""

import re
from typing import Final

from kcover import reasons
from kcover.reasons import Reason
from kcover_portal.kube import port
from kcover_portal.machines.drivers import nvsentinel
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import Reset

UUID: Final = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
PCI: Final = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}")
SUCCEEDED, FAILED = "Succeeded", "Failed"  # phases of a GPUReset


def refusal(context: Context) -> Reason | None:
    """None: whether the janitor is there shows at the request."""
    return None


def ask(context: Context, *, key: str, gpu: dict[str, str]) -> Reason:
    """Creates the object, once for each key. Raises RefusedByServer for a GPU that the janitor cannot name."""
    selector = _selector(gpu)
    if selector is None:
        raise port.RefusedByServer(reasons.of("janitor_gpu_unnamed", host=nvsentinel.NAME))
    spec = {"nodeName": context.node.name, "selector": selector}
    made = context.kube.create_object(port.GPU_RESET, _name(context, key), spec)
    if any(made.spec.get(name) != value for name, value in spec.items()):  # the server may add defaults
        raise port.RefusedByServer(reasons.of("janitor_object_differs", host=nvsentinel.NAME, object=made.name))
    return reasons.of("janitor_accepted", host=nvsentinel.NAME)


def ended(context: Context, *, key: str) -> Reset | None:
    """The result by the object's phase; None while it has none. An object that is gone proves nothing."""
    name = _name(context, key)
    found = next((one for one in context.kube.custom_objects(port.GPU_RESET) if one.name == name), None)
    if found is None:
        return Reset(done=False, reason=reasons.of("janitor_reset_failed", host=nvsentinel.NAME, phase="-"))
    if found.phase not in (SUCCEEDED, FAILED) and not found.completed:
        return None
    if found.phase == SUCCEEDED:
        return Reset(done=True, reason=reasons.of("janitor_reset_done", host=nvsentinel.NAME))
    return Reset(done=False, reason=reasons.of("janitor_reset_failed", host=nvsentinel.NAME, phase=found.phase or "-"))


def _selector(gpu: dict[str, str]) -> dict[str, list[str]] | None:
    uuid, pci = gpu.get("gpu_uuid", ""), PCI.match(gpu.get("pci", ""))
    if UUID.fullmatch(uuid):
        return {"uuids": [uuid]}
    return {"pciBusIDs": [f"{pci[0]}.0"]} if pci else None


def _name(context: Context, key: str) -> str:
    return nvsentinel.object_name(key, context.rescue.node_uid)
