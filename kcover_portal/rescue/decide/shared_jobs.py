"""Look up which training jobs run on faulty nodes, once two nodes of a cluster have recent faults.

A job that breaks on all of its nodes is a storm (invariant 33), and only the cluster knows its pods. The look-up
precedes the decision and runs outside its transaction. A slow API server holds no lock; an absent one leaves the jobs
unknown.
"""

import logging
from datetime import datetime

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.kube import port
from kcover_portal.rescue.actions import drain

log = logging.getLogger(__name__)

MAX_NODES_PER_DECISION = 8  # nodes to look up; the next decision looks up others


def refresh(incident: Incident, *, now: datetime) -> None:
    """Record the jobs of nodes with recent faults, if there are several such nodes and their jobs are unknown."""
    mine = incident.node
    if mine is None or incident.is_user_fault:
        return
    cluster, storm = incident.cluster, fleet.guards_of(incident.cluster).storm
    if not storm.enabled or not mine.in_cluster:
        return
    since = now - storm.window
    there = Incident.objects.filter(
        cluster=cluster, state=Incident.State.OPEN, node__in_cluster=True, is_user_fault=False
    )
    fresh = there.filter(last_at__gte=since)
    if not fresh.exclude(node=mine).exists():
        return
    known = JobSeen.objects.filter(at__gte=since, job="").values("node")
    unknown = Node.objects.filter(pk__in=fresh.values("node")).exclude(pk__in=known).order_by("-pk")
    own = list(unknown.filter(pk=mine.pk))
    for node in [*own, *unknown.exclude(pk=mine.pk)[: MAX_NODES_PER_DECISION - len(own)]]:
        try:
            pods = fleet.connect(cluster).list_pods(node=node.name)
        except port.KubeError as error:
            log.info("%s: the jobs of %s are not known: %s", cluster.name, node.name, error)
            return
        incidents.note_jobs(node, drain.jobs_of(pods), now=now)
