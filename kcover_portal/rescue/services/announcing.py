"""Telling the cluster's own Events what was seen and done. An Event that fails never stops anything."""

import logging
from datetime import datetime

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.actions.outcome import Done, Outcome
from kcover_portal.rescue.models import Rescue, Step

log = logging.getLogger(__name__)


def incident(seen: Incident, *, now: datetime) -> None:
    """The Event ``XidError`` on the node, in KCE's words (interfaces, section 6)."""
    if seen.announced_at is not None or seen.kind not in ("xid", "sxid") or seen.node is None:
        return
    word = "Xid" if seen.kind == "xid" else "SXid"
    message = f"GPU {word} error, pci:{seen.device}, {seen.kind}:{seen.code}, log: {_rest(seen)}"
    if _emit(seen.cluster, seen.node, f"incident-{seen.pk}", f"{word}Error", message, warning=True, now=now):
        Incident.objects.filter(pk=seen.pk).update(announced_at=now)


def step(rescue: Rescue, done: Step, outcome: Outcome, *, now: datetime) -> None:
    """One Event per finished step."""
    ok = isinstance(outcome, Done)
    reason = f"Rescue{done.name.capitalize()}{'' if ok else type(outcome).__name__}"
    message = f"rescue {rescue.pk}, step {done.index + 1} {done.name}: {done.because}"
    name = f"rescue-{rescue.pk}-{done.index}-{done.attempts}"
    _emit(rescue.cluster, rescue.node, name, reason, message, warning=not ok, now=now)


def _rest(seen: Incident) -> str:
    """What the kernel printed after the code."""
    _, found, rest = seen.message.partition(f"): {seen.code}, ")
    return rest if found else seen.message


def _emit(cluster: Cluster, node: Node, name: str, reason: str, message: str, *, warning: bool, now: datetime) -> bool:
    mode, _ = fleet.mode_now(cluster)  # the row that the worker read may be older than a pause
    if mode in fleet.SILENT or not node.known:
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
        log.warning("%s: the Event %s was not taken: %s", cluster.name, reason, error)
        return False
    return True
