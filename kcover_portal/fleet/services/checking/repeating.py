"""Autopilot's invasive timer: DCGM level 3 on every node whose GPUs nobody uses, again and again.

The portal asks, and not the agents' own timers, so that a node is TESTING while its turn lasts and what was found is
written once it ended, whatever dies in between.
"""

import logging
from datetime import datetime, timedelta

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckRun, Cluster
from kcover_portal.fleet.services import selecting
from kcover_portal.fleet.services.checking import running, sparing

log = logging.getLogger(__name__)

CHECKS, LEVEL = ("dcgm",), 3
BATCHES = 4  # so that most idle nodes are free for jobs at any time


def begin_again(cluster: Cluster, *, every: timedelta, now: datetime) -> CheckRun | None:
    """The next run, where the last one began ``every`` ago and is over; None where none is due.

    On no node that ``sparing`` names; on none at all while the cluster is paused or in shadow mode.
    """
    last = CheckRun.objects.filter(cluster=cluster, asked_by=sparing.ACTOR).order_by("-pk").first()
    if last is not None and (last.state == CheckRun.State.RUNNING or last.asked_at > now - every):
        return None
    if queries.mode_now(cluster)[0] in queries.SILENT:
        return None
    found = selecting.nodes(cluster)
    spared = sparing.spared(cluster, found, now=now)
    nodes = [node for node in found if node.name not in spared]
    if not nodes:
        return None
    try:
        size = -(-len(nodes) // BATCHES)
        return running.begin(cluster, nodes, checks=CHECKS, level=LEVEL, batch=size, actor=sparing.ACTOR, now=now)
    except running.Refused as error:
        log.info("deep checks begin later: %s", error)
        return None
