"""Kubernetes Events about faults and steps. An Event that cannot be written never stops anything."""

from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import datetime

from kcover_portal.fleet.services import node_events
from kcover_portal.fleet.services.node_events import NodeEvent
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Overruled, Replaced, StartOver

# The last part of the reason of a step's Event; the first part is the action's ``event_reason``.
ENDS: dict[type[Outcome], str] = {
    Done: "",
    Hold: "Held",
    Failed: "Failed",
    StartOver: "StartedOver",
    Overruled: "TakenBack",
    Replaced: "MachineReplaced",
}


def write_incidents(incident_ids: Sequence[int], *, threads: Executor | None = None, now: datetime) -> None:
    """Writes the Event ``XidError`` about the nodes of incidents of one cluster, each once, in KCE's wording.

    See docs/interfaces.md, section 6.
    """
    rows = Incident.objects.select_related("node", "cluster").filter(pk__in=incident_ids, announced_at=None)
    new = list(rows.filter(kind__in=("xid", "sxid"), node__isnull=False))
    for cluster in {row.cluster_id: row.cluster for row in new}.values():
        announced = [row for row in new if row.cluster_id == cluster.pk]
        written = node_events.write(cluster, [_of_incident(row, now=now) for row in announced], threads=threads)
        for row, ok in zip(announced, written, strict=True):
            if ok:  # one at a time, as a report locks the incidents of its nodes in an order of its own
                Incident.objects.filter(pk=row.pk).update(announced_at=now)


def of_step(rescue: Rescue, done: Step, outcome: Outcome, *, now: datetime) -> NodeEvent:
    """The Event of a finished step."""
    ok = isinstance(outcome, Done)
    reason = f"{done.spec.event_reason}{ENDS[type(outcome)]}"
    message = f"rescue {rescue.pk}, step {done.index + 1} {done.name}: {outcome.reason}"
    name = f"rescue-{rescue.pk}-{done.index}-{done.attempts}"
    return NodeEvent.about(rescue.cluster, rescue.node, name, reason, message, warning=not ok, now=now)


def _of_incident(seen: Incident, *, now: datetime) -> NodeEvent:
    assert seen.node is not None  # the caller selected it
    name = "Xid" if seen.kind == "xid" else "SXid"
    message = f"GPU {name} error, pci:{seen.device}, {seen.kind}:{seen.code}, log: {_rest(seen)}"
    return NodeEvent.about(
        seen.cluster, seen.node, f"incident-{seen.pk}", f"{name}Error", message, warning=True, now=now
    )


def _rest(seen: Incident) -> str:
    """The part of the kernel's message after the code."""
    line = seen.line
    return line.text(seen.message) if line.name == (seen.kind, seen.code) else seen.message
