"""Autopilot's invasive timer: DCGM level 3 on every node whose GPUs nobody uses, again and again.

The portal asks, and not the agents' own timers, so that a node is TESTING from before its run and what the run found is
written once it ended, whatever dies in between.
"""

import logging
from datetime import datetime, timedelta

from kcover import guards
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckRun, Cluster
from kcover_portal.fleet.services import selecting
from kcover_portal.fleet.services.checking import running

log = logging.getLogger(__name__)

ACTOR = "system"
CHECKS, LEVEL = ("dcgm",), 3


def begin_again(cluster: Cluster, *, every: timedelta, now: datetime) -> CheckRun | None:
    """The next run, where the last one began ``every`` ago and is over; None where none is due.

    On no node that is cordoned, whoever works on it, that is not Ready, or that carries ``kcover.io/exclude=true``; on
    none at all while the cluster is paused or in shadow mode.
    """
    last = CheckRun.objects.filter(cluster=cluster, asked_by=ACTOR).order_by("-pk").first()
    if last is not None and (last.state == CheckRun.State.RUNNING or last.asked_at > now - every):
        return None
    if queries.mode_now(cluster)[0] in queries.SILENT:
        return None
    nodes = [
        node
        for node in selecting.nodes(cluster)
        if node.ready and not node.unschedulable and node.labels.get(guards.EXCLUDE_LABEL) != "true"
    ]
    if not nodes:
        return None
    try:
        return running.begin(cluster, nodes, checks=CHECKS, level=LEVEL, actor=ACTOR, now=now)
    except running.Refused as error:
        log.info("deep checks begin later: %s", error)
        return None
