"""Kubernetes Events about faults and steps. An Event that cannot be written never stops anything."""

import logging
from datetime import datetime

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Overruled, Replaced, StartOver

log = logging.getLogger(__name__)

# The last part of the reason of a step's Event; the first part is the action's ``event_reason``.
ENDS: dict[type[Outcome], str] = {
    Done: "",
    Hold: "Held",
    Failed: "Failed",
    StartOver: "StartedOver",
    Overruled: "TakenBack",
    Replaced: "MachineReplaced",
}


def incident(seen: Incident, *, now: datetime) -> None:
    """Writes the Event ``XidError`` about the node, in KCE's wording (docs/interfaces.md, section 6)."""
    if seen.announced_at is not None or seen.kind not in ("xid", "sxid") or seen.node is None:
        return
    name = "Xid" if seen.kind == "xid" else "SXid"
    message = f"GPU {name} error, pci:{seen.device}, {seen.kind}:{seen.code}, log: {_rest(seen)}"
    if _emit(seen.cluster, seen.node, f"incident-{seen.pk}", f"{name}Error", message, warning=True, now=now):
        Incident.objects.filter(pk=seen.pk).update(announced_at=now)


def step(rescue: Rescue, done: Step, outcome: Outcome, *, now: datetime) -> None:
    """Writes one Event per finished step."""
    ok = isinstance(outcome, Done)
    reason = f"{done.spec.event_reason}{ENDS[type(outcome)]}"
    message = f"rescue {rescue.pk}, step {done.index + 1} {done.name}: {outcome.reason}"
    name = f"rescue-{rescue.pk}-{done.index}-{done.attempts}"
    _emit(rescue.cluster, rescue.node, name, reason, message, warning=not ok, now=now)


def _rest(seen: Incident) -> str:
    """The part of the kernel's message after the code."""
    _, found, remainder = seen.message.partition(f"): {seen.code}, ")
    return remainder if found else seen.message


def _emit(cluster: Cluster, node: Node, name: str, reason: str, message: str, *, warning: bool, now: datetime) -> bool:
    mode, _ = fleet.mode_now(cluster)  # read again: the worker's row may be older than a pause
    if mode in fleet.SILENT or not node.in_cluster:
        return False
    draft = port.EventDraft(
        name=f"kcover-{name}",
        namespace=cluster.event_namespace,
        reason=reason,
        message=message[:1000],
        type="Warning" if warning else "Normal",
        involved_kind="Node",
        involved_name=node.name,
        involved_uid=node.uid,
        at=now,
    )
    try:
        fleet.connect(cluster).emit(draft)
    except port.KubeError as error:
        log.warning("%s: the Event %s could not be written: %s", cluster.name, reason, error)
        return False
    return True
