"""Kubernetes Events about faults and steps. An Event that cannot be written never stops anything."""

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Overruled, Replaced, StartOver

log = logging.getLogger(__name__)

BATCH_EVENTS = 8  # Events between two looks at the mode
# The last part of the reason of a step's Event; the first part is the action's ``event_reason``.
ENDS: dict[type[Outcome], str] = {
    Done: "",
    Hold: "Held",
    Failed: "Failed",
    StartOver: "StartedOver",
    Overruled: "TakenBack",
    Replaced: "MachineReplaced",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """An Event about a node that is not written yet."""

    node: Node
    draft: port.EventDraft


def write_incidents(incident_ids: Sequence[int], *, threads: Executor | None = None, now: datetime) -> None:
    """Writes the Event ``XidError`` about the nodes of incidents of one cluster, each once, in KCE's wording.

    See docs/interfaces.md, section 6.
    """
    rows = Incident.objects.select_related("node", "cluster").filter(pk__in=incident_ids, announced_at=None)
    new = list(rows.filter(kind__in=("xid", "sxid"), node__isnull=False))
    for cluster in {row.cluster_id: row.cluster for row in new}.values():
        announced = [row for row in new if row.cluster_id == cluster.pk]
        written = write(cluster, [_of_incident(row, now=now) for row in announced], threads=threads)
        for row, ok in zip(announced, written, strict=True):
            if ok:  # one at a time, as a report locks the incidents of its nodes in an order of its own
                Incident.objects.filter(pk=row.pk).update(announced_at=now)


def of_step(rescue: Rescue, done: Step, outcome: Outcome, *, now: datetime) -> NodeEvent:
    """The Event of a finished step."""
    ok = isinstance(outcome, Done)
    reason = f"{done.spec.event_reason}{ENDS[type(outcome)]}"
    message = f"rescue {rescue.pk}, step {done.index + 1} {done.name}: {outcome.reason}"
    name = f"rescue-{rescue.pk}-{done.index}-{done.attempts}"
    return _event(rescue.cluster, rescue.node, name, reason, message, warning=not ok, now=now)


def write(cluster: Cluster, events: Sequence[NodeEvent], *, threads: Executor | None = None) -> list[bool]:
    """Writes Events, side by side with ``threads``. Returns which were written.

    A few at a time: the mode is read before each group, and the rest is given up once a whole group has failed.
    """
    written: list[bool] = []
    while len(written) < len(events):
        group = events[len(written) : len(written) + BATCH_EVENTS]
        mode, _ = fleet.mode_now(cluster)  # read again: the worker's row may be older than a pause
        done = [] if mode in fleet.MODES_WITHOUT_WRITES else _write(cluster, group, threads)
        if not any(done):
            return written + [False] * (len(events) - len(written))
        written += done
    return written


def _write(cluster: Cluster, events: Sequence[NodeEvent], threads: Executor | None) -> list[bool]:
    try:
        kube = fleet.connect(cluster)
    except port.KubeError as error:
        log.warning("%s: %d Events could not be written: %s", cluster.name, len(events), error)
        return []
    each = partial(_emit, kube, cluster.name)
    return list(threads.map(each, events) if threads is not None else map(each, events))


def _of_incident(seen: Incident, *, now: datetime) -> NodeEvent:
    assert seen.node is not None  # the caller selected it
    name = "Xid" if seen.kind == "xid" else "SXid"
    message = f"GPU {name} error, pci:{seen.device}, {seen.kind}:{seen.code}, log: {_rest(seen)}"
    return _event(seen.cluster, seen.node, f"incident-{seen.pk}", f"{name}Error", message, warning=True, now=now)


def _rest(seen: Incident) -> str:
    """The part of the kernel's message after the code."""
    line = seen.line
    return line.text(seen.message) if line.name == (seen.kind, seen.code) else seen.message


def _event(
    cluster: Cluster, node: Node, name: str, reason: str, message: str, *, warning: bool, now: datetime
) -> NodeEvent:
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
    return NodeEvent(node=node, draft=draft)


def _emit(kube: port.Cluster, cluster: str, event: NodeEvent) -> bool:
    if not event.node.in_cluster:
        return False
    try:
        kube.emit(event.draft)
    except port.KubeError as error:
        log.warning("%s: the Event %s could not be written: %s", cluster, event.draft.reason, error)
        return False
    return True
