"""Which nodes an automatic run leaves out: those under repair, in maintenance, excluded or not schedulable."""

from collections.abc import Iterable
from datetime import datetime

from kcover import lifecycle
from kcover.decisions import guards
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.rescue.models import Rescue

ACTOR = "system"  # requests automatic runs


def automatic(run: CheckRun) -> bool:
    """Returns whether the portal began the run by itself."""
    return run.asked_by == ACTOR


def why_skipped(cluster: Cluster, nodes: Iterable[Node], *, now: datetime) -> dict[str, str]:
    """The reason to leave a node out now, by node name; eligible nodes have no entry."""
    windows = [window for window in queries.maintenance(cluster, now=now) if window.starts_at <= now]
    rows = Rescue.objects.filter(cluster=cluster, state__in=lifecycle.OPEN_RESCUE)
    in_rescue = set(rows.values_list("node", flat=True))
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
