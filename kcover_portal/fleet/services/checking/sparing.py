"""Nodes that a run which no person asked for leaves alone: somebody is at work on them, or they are not fit for it."""

from collections.abc import Iterable
from datetime import datetime

from kcover import guards, lifecycle
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckRun, Cluster, Maintenance, Node

ACTOR = "system"  # who asks for such a run


def automatic(run: CheckRun) -> bool:
    """Whether the run began by itself."""
    return run.asked_by == ACTOR


def spared(cluster: Cluster, nodes: Iterable[Node], *, now: datetime) -> dict[str, str]:
    """Why a node of the cluster is left alone now, by its name; the others are not named."""
    windows = [one for one in queries.maintenance(cluster, now=now) if one.starts_at <= now]
    rows = Node.objects.filter(cluster=cluster, rescues__state__in=lifecycle.OPEN_RESCUE)
    in_rescue = set(rows.values_list("pk", flat=True))
    reasons = {node.name: _reason(node, windows, in_rescue=node.pk in in_rescue) for node in nodes}
    return {name: why for name, why in reasons.items() if why}


def _reason(node: Node, windows: Iterable[Maintenance], *, in_rescue: bool) -> str:
    if node.unschedulable:
        return "it is cordoned"
    if not node.ready:
        return "it is not Ready"
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        return f"it carries {guards.EXCLUDE_LABEL}=true"
    if in_rescue:
        return "a rescue of it is open"
    for window in windows:
        if window.node == node.name if window.node else window.pool in ("", node.pool):
            return f"maintenance until {window.ends_at:%Y-%m-%d %H:%M} UTC: {window.reason}"[:500]
    return ""
