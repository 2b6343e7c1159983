"""Comparing faulty nodes: once there are two at a time, which training jobs run on them is looked up and kept.

One job that breaks on all of its nodes is a storm (invariant 33), and only the cluster knows its pods. Looked up before
the judgement and outside its transaction: an API server that is slow holds no lock, and one that is away leaves the
question open, as if it had not been asked.
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

AT_ONE_TIME = 8  # nodes that are looked up for one judgement; the next one looks up others


def look(incident: Incident, *, now: datetime) -> None:
    """Notes the jobs of the nodes that have fresh faults, where there is more than one and they are not known yet."""
    mine = incident.node
    if mine is None or incident.program:
        return
    cluster, storm = incident.cluster, fleet.guards_of(incident.cluster).storm
    if not storm.enabled or not mine.known:
        return
    since = now - storm.window
    there = Incident.objects.filter(cluster=cluster, state=Incident.State.OPEN, node__known=True, program=False)
    fresh = there.filter(last_at__gte=since)
    if not fresh.exclude(node=mine).exists():
        return
    known = JobSeen.objects.filter(at__gte=since, job="").values("node")
    unknown = Node.objects.filter(pk__in=fresh.values("node")).exclude(pk__in=known).order_by("-pk")
    own = list(unknown.filter(pk=mine.pk))
    for node in [*own, *unknown.exclude(pk=mine.pk)[: AT_ONE_TIME - len(own)]]:
        try:
            pods = fleet.connect(cluster).list_pods(node=node.name)
        except port.KubeError as error:
            log.info("%s: the jobs of %s are not known: %s", cluster.name, node.name, error)
            return
        incidents.note_jobs(node, drain.jobs_of(pods), now=now)
