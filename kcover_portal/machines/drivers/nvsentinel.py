"""NVSentinel's janitor: an object RebootNode in the cluster asks it to reboot a machine through its cloud.

The object's name is made from the request and the boot that must end, so a request that is made twice is one object. It
names the node only; the portal has compared the machine with the node before. The power cannot be read.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.machines.drivers.values import Machine, Switched

NAME: Final = "NVSentinel"
POWER_CYCLE, TEST = "power.cycle", "test"


def ask(machine: Machine, document: Mapping[str, Any], *, action: str, delivery: str) -> Switched:
    """Creates the RebootNode, or with TEST only looks whether the janitor's objects are installed."""
    assert machine.cluster is not None  # of every driver whose objects are in a cluster
    node, accepted = str(document["node"]), reasons.of("janitor_accepted", host=NAME)
    try:
        if action == TEST:
            machine.cluster.custom_objects(port.REBOOT_NODE)
            return Switched(taken=True, reason=accepted)
        name = object_name(delivery, str(document["uid"]), str(document["boot_id"]))
        made = machine.cluster.create_object(port.REBOOT_NODE, name, {"nodeName": node, "force": False})
    except port.NotFound:
        return Switched(reason=reasons.of("janitor_missing", host=NAME, kind=port.REBOOT_NODE.kind))
    except port.Unavailable as error:
        because = (
            error.why if isinstance(error.why, reasons.Reason) else reasons.of("host_unreachable", error=error.why)
        )
        return Switched(unclear=error.ambiguous, later=not error.ambiguous, reason=because)
    except port.Conflict as error:  # also after it took effect; a repeated request finds the object by its name
        return Switched(later=True, reason=reasons.of("host_unreachable", error=str(error)))
    except port.KubeError as error:
        return Switched(reason=reasons.of("host_unreachable", error=str(error)))
    if made.spec.get("nodeName") != node:  # an object of this name that is not ours
        return Switched(reason=reasons.of("janitor_object_differs", host=NAME, object=made.name))
    return Switched(taken=True, reason=accepted)


def object_name(delivery: str, *about: str) -> str:
    """The name of an object for one request: at most 63 characters, of a DNS label."""
    digest = hashlib.sha256("/".join(about).encode()).hexdigest()[:10]
    return f"kcover-{delivery}"[:52].rstrip("-") + f"-{digest}"
