"""Autopilot's invasive timer: DCGM level 3 on every node with idle GPUs, at a fixed interval.

The portal starts them rather than a timer in each agent. A node is then labelled TESTING while its checks run, and the
result is written when they end, whichever process dies in between.
"""

import logging
from datetime import datetime, timedelta

from kcover import actors
from kcover_portal.checks.models import CheckRun
from kcover_portal.checks.services import eligibility, runs
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_selection

log = logging.getLogger(__name__)

CHECKS, LEVEL = ("dcgm",), 3
BATCHES = 4  # so that most idle nodes are free for jobs at any time


def begin_again(cluster: Cluster, *, every: timedelta, now: datetime) -> CheckRun | None:
    """Begins the next run if the last one is over and began at least ``every`` ago. Returns None if no run is due.

    Nodes with a reason in ``eligibility.why_skipped`` are left out. Nothing begins while the cluster is paused or in
    shadow mode.
    """
    last = CheckRun.objects.filter(cluster=cluster, requester_kind=CheckRun.Requester.SCHEDULE).order_by("-pk").first()
    if last is not None and (last.state == CheckRun.State.RUNNING or last.requested_at > now - every):
        return None
    if queries.mode_now(cluster)[0] in queries.MODES_WITHOUT_WRITES:
        return None
    found = node_selection.nodes(cluster)
    skipped = eligibility.why_skipped(cluster, found, now=now)
    nodes = [node for node in found if node.name not in skipped]
    if not nodes:
        return None
    try:
        size = -(-len(nodes) // BATCHES)
        return runs.begin(
            cluster,
            nodes,
            checks=CHECKS,
            level=LEVEL,
            batch=size,
            actor=actors.SYSTEM,
            requester=CheckRun.Requester.SCHEDULE,
            now=now,
        )
    except runs.CheckRunRefused as error:
        log.info("deep checks begin later: %s", error)
        return None
