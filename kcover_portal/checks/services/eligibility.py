"""The nodes that an automatic run leaves out: those under repair, in maintenance, excluded or not schedulable."""

from collections.abc import Iterable
from datetime import datetime

from kcover import reasons
from kcover.decisions import guards
from kcover.plans import lifecycle
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.rescue.models import Rescue

MAX_ACTOR = 200  # characters
AUTOMATIC = (CheckRun.Requester.SCHEDULE, CheckRun.Requester.JOB)


def automatic(run: CheckRun) -> bool:
    """Returns whether the portal began the run by itself."""
    return run.requester_kind in AUTOMATIC


def actor_of_job(namespace: str, name: str) -> str:
    """The requester of the run after this job has ended."""
    return f"job {namespace}/{name}"[:MAX_ACTOR]


def why_skipped(cluster: Cluster, nodes: Iterable[Node], *, now: datetime) -> dict[str, reasons.Reason]:
    """The reason to leave a node out now, by node name; eligible nodes have no entry."""
    windows = [window for window in queries.maintenance(cluster, now=now) if window.starts_at <= now]
    rows = Rescue.objects.filter(cluster=cluster, state__in=lifecycle.OPEN_RESCUE)
    in_rescue = set(rows.values_list("node", flat=True))
    found = {node.name: _reason(node, windows, in_rescue=node.pk in in_rescue) for node in nodes}
    return {name: why for name, why in found.items() if why is not None}


def _reason(node: Node, windows: Iterable[Maintenance], *, in_rescue: bool) -> reasons.Reason | None:
    if node.unschedulable:
        return reasons.of("node_cordoned")
    if not node.ready:
        return reasons.of("node_not_ready")
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        return reasons.of("node_excluded_by_label", label=guards.EXCLUDE_LABEL)
    if in_rescue:
        return reasons.of("node_in_rescue")
    for window in windows:
        if window.covers(node):
            until = reasons.moment(window.ends_at)
            return reasons.of("node_in_maintenance", until=until, why=window.reason[:400])
    return None
