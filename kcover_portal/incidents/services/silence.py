"""Incidents of silent agents: opened by the sweep, confirmed by the cluster, closed by the next report.

While the node is Ready, the agent itself is at fault, and the incident does not count as a fault of the node. Once the
cluster reports NotReady too, it does. Rules that name the kind ``agent`` decide what is done. No agent counts as silent
while the portal did not receive reports, while a rescue works on the node, or just after the node came up (invariant
35).

While a cluster's API server does not answer, its agents' pod tokens cannot be verified or renewed. Then nothing is
opened or confirmed in that cluster, until API_RECOVERY after it answers again.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure, record_faults
from kcover_portal.incidents.services.portal_fault import PortalFault
from kcover_portal.lib import doorbell
from kcover_portal.runtime import queries as runtime

KIND, CODE = "agent", "silent"
MAX_OPENED = 200  # incidents per sweep; the next sweep is soon
RECEIVER = "receiver"  # the heartbeat name of the processes that receive reports
HEARTBEAT_INTERVAL = timedelta(seconds=10)
HEARTBEAT_GAP = HEARTBEAT_INTERVAL * 3
API_RECOVERY = timedelta(minutes=5)  # a kubelet renews its pods' tokens every minute or two, then agents retry

# Damping: each earlier silence of the node within DAMPING_WINDOW keeps the next one open longer by DAMPING_STEP.
DAMPING_WINDOW = timedelta(hours=1)
DAMPING_STEP = timedelta(minutes=5)


def check(*, busy: QuerySet[Agent], now: datetime) -> None:
    """Opens, confirms and closes incidents by the agents' last reports. ``busy``: agents whose silence is expected."""
    _close(now=now)
    _confirm(now=now)
    since = runtime.alive_since(RECEIVER, gap=HEARTBEAT_GAP, now=now)
    if since is not None and now - since >= fleet.AGENT_SILENT_AFTER:
        _open(busy, now=now)


def _silences() -> QuerySet[Incident]:
    return Incident.objects.filter(kind=KIND, code=CODE, state=Incident.State.OPEN, node__isnull=False)


def _open(busy: QuerySet[Agent], *, now: datetime) -> None:
    just_up = Q(node__ready=True, node__ready_since__gt=now - fleet.AGENT_SILENT_AFTER)
    known = Exists(_silences().filter(node=OuterRef("node")))
    candidates = fleet.silent_agents(now=now).filter(
        node__cluster__in=fleet.reachable_without_gap(since=now - API_RECOVERY, now=now)
    )
    silent = candidates.exclude(just_up).exclude(known).exclude(pk__in=busy.values("pk"))
    for agent in silent.select_related("node__cluster").order_by("seen_at")[:MAX_OPENED]:
        because = reasons.of("agent_silent", since=reasons.moment(agent.seen_at))
        seen = PortalFault(kind=KIND, code=CODE, because=because, source="portal")
        with transaction.atomic():
            record_faults.keep_fault(agent.node, seen, boot_id=agent.boot_id, now=now)
            _silences().filter(node=agent.node).update(is_user_fault=True)
    _confirm(now=now)


def _confirm(*, now: datetime) -> None:
    """Follows the Ready condition of nodes with silent agents."""
    steady = _silences().filter(node__cluster__in=fleet.reachable_without_gap(since=now - API_RECOVERY, now=now))
    _set_cause(steady.filter(node__ready=False, is_user_fault=True), is_user_fault=False, severity="fatal", now=now)
    reachable = _silences().filter(node__cluster__watched_at__gte=now - fleet.OUT_OF_REACH_AFTER)
    _set_cause(reachable.filter(node__ready=True, is_user_fault=False), is_user_fault=True, severity="warning", now=now)


def _set_cause(rows: QuerySet[Incident], *, is_user_fault: bool, severity: str, now: datetime) -> None:
    """Sets whether the node is at fault, and has the incidents decided again."""
    for pk, cluster in rows.values_list("pk", "cluster__name"):
        with transaction.atomic():
            changes = {"is_user_fault": is_user_fault, "severity": severity, "decide_at": now}
            if Incident.objects.filter(pk=pk, state=Incident.State.OPEN).update(**changes):
                doorbell.ring("rescue.decide", pk)
                doorbell.publish("incident", pk, cluster=cluster)


def _close(*, now: datetime) -> None:
    """Closes incidents that a later report disproves, and those of nodes that are gone."""
    gone = _silences().filter(node__in_cluster=False).values_list("pk", flat=True)
    closure.close(list(gone), because=reasons.of("node_gone"), actor="system", now=now)
    back = _silences().filter(
        node__agent__seen_at__gt=F("last_at"), node__agent__seen_at__gte=now - fleet.AGENT_LATE_AFTER
    )
    steady = [row.pk for row in back if now - row.opened_at >= DAMPING_STEP * _earlier(row, now=now)]
    closure.close(steady, because=reasons.of("agent_reports_again"), actor="system", now=now)


def _earlier(row: Incident, *, now: datetime) -> int:
    """The number of the node's silences that ended within DAMPING_WINDOW."""
    ended = Incident.objects.filter(node=row.node_id, kind=KIND, code=CODE, closed_at__gte=now - DAMPING_WINDOW)
    return ended.count()
