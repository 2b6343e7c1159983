"""Pair tests on a schedule: of the idle nodes of a cluster, spares included, those first whose last test is oldest.

A node that has work when the tests begin is left out until the next time.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import F, Q

from kcover import actors
from kcover.decisions import standby
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_jobs, pair_plans, testable
from kcover_portal.rescue.queries import capacity

log = logging.getLogger(__name__)

LOOK_EVERY = 600.0  # seconds
LEAST_NODES = 3  # two alone cannot be told apart
REASON = "schedule"


def begin_due(cluster: Cluster, *, now: datetime) -> PairPlan | None:
    """Begins the tests if the last ones have ended and began at least ``nccl_every`` hours ago; None: they are not due.

    Raises KubeError if the cluster does not say which nodes are idle.
    """
    last = PairPlan.objects.filter(cluster=cluster, scheduled=True).order_by("-pk").first()
    every = timedelta(hours=cluster.nccl_every)
    if last is not None and (last.state == PairPlan.State.RUNNING or last.requested_at > now - every):
        return None
    if not every or not cluster.nccl_image or fleet.mode_now(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
        return None
    nodes = _idle(cluster, _sound(cluster, now=now))[: pair_plans.MAX_NODES]
    if len(nodes) < LEAST_NODES:
        return None
    try:
        wish = pair_plans.Wish(scheduled=True, reason=REASON)
        return pair_plans.begin(cluster, nodes, wish, actor=actors.SYSTEM, now=now)
    except pair_plans.PlanRefused as error:
        log.info("scheduled pair tests begin later: %s", error)
        return None


def _sound(cluster: Cluster, *, now: datetime) -> list[Node]:
    """The nodes without a known fault that may be tested, the one with the oldest test first."""
    sick = Incident.objects.filter(node__cluster=cluster, state=Incident.State.OPEN).values("node")
    takes_work = Q(unschedulable=False) | Q(**{f"labels__{standby.LABEL}": "true"})
    rows = capacity.eligible(cluster).filter(takes_work, ready=True, probation_until=None).exclude(pk__in=sick)
    tested = F("preflight_gate__plan__requested_at").asc(nulls_first=True)
    found = list(rows.order_by(tested, "name"))
    obstacles, taken = testable.obstacles(cluster, found, now=now), queries.nodes_in_plans(cluster)
    return [node for node in found if node.pk not in obstacles and node.name not in taken]


def _idle(cluster: Cluster, nodes: Iterable[Node]) -> list[Node]:
    """Those without work on their GPUs. Raises KubeError."""
    busy = {pod.node for pod in fleet.connect(cluster).list_pods() if pair_jobs.is_work(pod)}
    return [node for node in nodes if node.name not in busy]
