"""Look up which training jobs run on faulty nodes, once two nodes of a cluster have recent faults.

A job that breaks on all of its nodes is a storm (invariant 33), and only the cluster knows its pods. The look-up
precedes the decision and runs outside its transaction. A slow API server holds no lock; an absent one leaves the jobs
unknown.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import Case, Exists, OuterRef, QuerySet, Value, When

from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents_services
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.kube import port
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.actions import drain

log = logging.getLogger(__name__)

MAX_NODES_PER_DECISION = 8  # nodes to look up; the next decision looks up others


def locked_nodes(incidents: Sequence[int]) -> list[Node]:
    """The nodes of incidents (by key), in the order of their keys, as ``due`` and ``fleet.mode_beside`` need them.

    Their rows are locked until the caller's transaction ends.
    """
    return _NODE.rows(incident=incidents[0]) if len(incidents) == 1 else list(_nodes(pk__in=incidents))


def _nodes(**incidents: Any) -> QuerySet[Node]:
    others = _open_faults(OuterRef("cluster")).exclude(node=OuterRef("pk"))
    rows = fleet.with_mode(Node.objects.select_for_update(of=("self",), no_key=True))
    wanted = Incident.objects.filter(**incidents, node__isnull=False).values("node")
    return rows.annotate(others_faulty=Exists(others)).filter(pk__in=wanted).order_by("pk")


_NODE = Prepared(lambda incident: _nodes(pk=incident), incident=int)


def due(incidents: Sequence[Incident], *, now: datetime) -> list[Incident]:
    """The incidents before whose decision ``refresh`` has something to look up.

    ``incidents``: of one cluster, each with its node from ``locked_nodes``.
    """
    faults = [row for row in incidents if _may_share_jobs(row)]
    if not faults:
        return []
    cluster = faults[0].cluster
    storm = fleet.guards_of(cluster).storm
    since = now - storm.window
    if not storm.enabled:
        return []
    fresh = _open_faults(cluster).filter(last_at__gte=since).order_by().values_list("node", flat=True).distinct()[:2]
    nodes = set(fresh)
    found = [row for row in faults if nodes - {row.node_id}]
    return found if found and _unknown(cluster, since=since).exists() else []


def refresh(incidents: Sequence[Incident], *, now: datetime, calls: Executor | None = None) -> None:
    """Records the jobs of the nodes with recent faults whose jobs are unknown, the incidents' own nodes first.

    ``calls``: asks the cluster side by side.
    """
    cluster, own = incidents[0].cluster, [row.node_id for row in incidents]
    unknown = _unknown(cluster, since=now - fleet.guards_of(cluster).storm.window)
    own_first = Case(When(pk__in=own, then=Value(0)), default=Value(1))
    nodes = list(unknown.order_by(own_first, "-pk")[: max(MAX_NODES_PER_DECISION, len(own))])
    with log_context.bound(cluster=cluster.name):
        try:
            list_pods = partial(_pods, fleet.connect(cluster))
            found = calls.map(list_pods, nodes) if calls is not None else map(list_pods, nodes)
            for node, pods in zip(nodes, found, strict=True):
                incidents_services.note_jobs(node, drain.jobs_of(pods), now=now)
        except port.KubeError as error:
            log.info("%s: the jobs of %d nodes are not all known: %s", cluster.name, len(nodes), error)


def _pods(kube: port.Cluster, node: Node) -> Sequence[port.Pod]:
    return kube.list_pods(node=node.name)


def _may_share_jobs(incident: Incident) -> bool:
    node = incident.node
    return node is not None and not incident.is_user_fault and node.in_cluster and bool(vars(node)["others_faulty"])


def _open_faults(cluster: Cluster | OuterRef) -> QuerySet[Incident]:
    return Incident.objects.filter(
        cluster=cluster, state=Incident.State.OPEN, node__in_cluster=True, is_user_fault=False
    )


def _unknown(cluster: Cluster, *, since: datetime) -> QuerySet[Node]:
    """Nodes of the cluster with a fault since then, whose jobs nobody has looked up since."""
    faulty = _open_faults(cluster).filter(last_at__gte=since)
    known = JobSeen.objects.filter(at__gte=since, job="").values("node")
    return Node.objects.filter(pk__in=faulty.values("node")).exclude(pk__in=known)
