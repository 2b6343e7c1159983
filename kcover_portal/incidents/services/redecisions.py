"""New decisions of open incidents, after what they were decided by has changed."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from django.db.models import QuerySet

from kcover.nodes import marks
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared


def redecide_if_labels_changed(node: Node, *, now: datetime) -> None:
    """Schedules a new decision of incidents that were decided when the node had other labels.

    A removed exclusion, or a changed label that a rule selects by, may change the answer just as a new occurrence may.
    """
    rows = _decided().filter(node=node)
    for pk in rows.exclude(decided_labels=labels_digest(node.labels)).values_list("pk", flat=True):
        if rows.filter(pk=pk).update(decide_at=now):
            doorbell.ring("rescue.decide", pk)


def decided_with_other_labels(nodes: Collection[Node]) -> set[int]:
    """The nodes (by key) with an open incident that was decided when the node had other labels."""
    labels = {node.pk: node.labels for node in nodes}
    decided: Iterable[tuple[int, str]]
    if len(labels) == 1:
        decided = _DECIDED_LABELS.rows(node=next(iter(labels)))
    else:
        decided = _decided().filter(node__in=labels).values_list("node_id", "decided_labels")
    return {node for node, digest in decided if digest != labels_digest(labels[node])}


def _decided() -> QuerySet[Incident]:
    """The open incidents that were decided by the labels of their node and are not due again."""
    rows = Incident.objects.order_by().filter(state=Incident.State.OPEN, decide_at=None, decided_at__isnull=False)
    return rows.exclude(decided_labels="")


_DECIDED_LABELS: Prepared[tuple[int, str]] = Prepared(
    lambda node: _decided().filter(node=node).values_list("node_id", "decided_labels"), node=int
)


def labels_digest(labels: Mapping[str, str]) -> str:
    """A digest of the labels, without the portal's own state label, by which no rule selects."""
    relevant = sorted((key, value) for key, value in labels.items() if key != marks.STATE_LABEL)
    return hashlib.sha256(json.dumps(relevant).encode()).hexdigest()[:16]


def redecide_cluster(cluster: Cluster, *, seen_since: datetime, now: datetime) -> int:
    """Schedules new decisions in a cluster whose rules, mode or decider changed. Returns how many.

    ``seen_since``: incidents that last occurred before this have expired (invariant 32).
    """
    rows = Incident.objects.filter(cluster=cluster, state=Incident.State.OPEN, decide_at=None, last_at__gte=seen_since)
    return rows.exclude(node=None).exclude(decided_at=None).update(decide_at=now)


def redecide_nodes(nodes: Collection[Node], *, now: datetime) -> None:
    """Schedules new decisions of all open incidents of the nodes, after what held them back has gone."""
    rows = Incident.objects.filter(node__in=nodes, state=Incident.State.OPEN)
    if nodes and rows.update(decide_at=now):
        for pk in rows.values_list("pk", flat=True):
            doorbell.ring("rescue.decide", pk)
