"""Look up which training jobs run on faulty nodes, once two nodes of a cluster have recent faults.

A job that breaks on all of its nodes is a storm (invariant 33), and only the cluster knows its pods. The look-up
precedes the decision and runs outside its transaction. A slow API server holds no lock; an absent one leaves the jobs
unknown.
"""

import logging
from datetime import datetime

from django.db.models import Case, Exists, OuterRef, QuerySet, Value, When

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.kube import port
from kcover_portal.rescue.actions import drain

log = logging.getLogger(__name__)

MAX_NODES_PER_DECISION = 8  # nodes to look up; the next decision looks up others


def with_others(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """The nodes, each with whether another node of its cluster is faulty too, for ``is_due``."""
    others = _open_faults(OuterRef("cluster")).exclude(node=OuterRef("pk"))
    return nodes.annotate(others_faulty=Exists(others))


def is_due(incident: Incident, *, now: datetime) -> bool:
    """Returns whether ``refresh`` has something to look up; the incident's node comes from ``with_others``."""
    node = incident.node
    if node is None or incident.is_user_fault or not node.in_cluster or not vars(node)["others_faulty"]:
        return False
    storm = fleet.guards_of(incident.cluster).storm
    since = now - storm.window
    fresh = _open_faults(incident.cluster).filter(last_at__gte=since)
    return storm.enabled and fresh.exclude(node=node).exists() and _unknown(incident, since=since).exists()


def refresh(incident: Incident, *, now: datetime) -> None:
    """Records the jobs of the nodes with recent faults whose jobs are unknown, the incident's own node first."""
    own_node, cluster = incident.node, incident.cluster
    assert own_node is not None  # is_due() checked it
    unknown = _unknown(incident, since=now - fleet.guards_of(cluster).storm.window)
    for node in unknown.order_by(Case(When(pk=own_node.pk, then=Value(0)), default=Value(1)), "-pk")[
        :MAX_NODES_PER_DECISION
    ]:
        try:
            pods = fleet.connect(cluster).list_pods(node=node.name)
        except port.KubeError as error:
            log.info("%s: the jobs of %s are unknown: %s", cluster.name, node.name, error)
            return
        incidents.note_jobs(node, drain.jobs_of(pods), now=now)


def _open_faults(cluster: Cluster | OuterRef) -> QuerySet[Incident]:
    return Incident.objects.filter(
        cluster=cluster, state=Incident.State.OPEN, node__in_cluster=True, is_user_fault=False
    )


def _unknown(incident: Incident, *, since: datetime) -> QuerySet[Node]:
    """Nodes of the cluster with a fault since then, whose jobs nobody has looked up since."""
    faulty = _open_faults(incident.cluster).filter(last_at__gte=since)
    known = JobSeen.objects.filter(at__gte=since, job="").values("node")
    return Node.objects.filter(pk__in=faulty.values("node")).exclude(pk__in=known)
