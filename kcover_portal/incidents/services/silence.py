"""An agent that is not heard of is an incident: opened by the sweep, confirmed by the cluster, closed by a report.

While the node is Ready it is the agent's trouble, a program's doing, and counts as no fault of the node; once the
cluster says NotReady too, it is the node's. What is to be done about it, if anything, a rule says that names the kind
``agent``. Nobody is silent while the door was closed, while a rescue works on the node, or just after it came up
(invariant 35).

While a cluster's API server does not answer, agents that speak with their pod's token may not be heard, as nobody
vouches for the token, nor renews it. Then nothing is opened or confirmed there, and for BACK after it answers again.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from kcover import fault
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closing, keeping

KIND, CODE = "agent", "silent"
AT_ONE_TIME = 200  # incidents opened in one look: the next one is not far
DOOR = "door"  # the pulse of the processes that hear agents
DOOR_BEATS = timedelta(seconds=10)
DOOR_GAP = DOOR_BEATS * 3
BACK = timedelta(minutes=5)  # a kubelet looks at its pods' tokens every minute or two, and then their agents try again

# Damped: each earlier silence of the node within DAMPED_WITHIN keeps the next one open so much longer.
DAMPED_WITHIN = timedelta(hours=1)
DAMPED_BY = timedelta(minutes=5)


def look(*, busy: QuerySet[Agent], now: datetime) -> None:
    """Opens, confirms and closes what the agents' last reports call for. ``busy``: agents whose silence is expected."""
    _close(now=now)
    _confirm(now=now)
    since = fleet.steady_since(DOOR, gap=DOOR_GAP, now=now)
    if since is not None and now - since >= fleet.AGENT_SILENT_AFTER:
        _open(busy, now=now)


def _silences() -> QuerySet[Incident]:
    return Incident.objects.filter(kind=KIND, code=CODE, state=Incident.State.OPEN, node__isnull=False)


def _open(busy: QuerySet[Agent], *, now: datetime) -> None:
    just_up = Q(node__ready=True, node__ready_since__gt=now - fleet.AGENT_SILENT_AFTER)
    known = Exists(_silences().filter(node=OuterRef("node")))
    told = fleet.silent_agents(now=now).filter(node__cluster__in=fleet.steadily_heard(since=now - BACK, now=now))
    silent = told.exclude(just_up).exclude(known).exclude(pk__in=busy.values("pk"))
    for agent in silent.select_related("node__cluster").order_by("seen_at")[:AT_ONE_TIME]:
        seen = fault.Fault(
            kind=KIND,
            code=CODE,
            message=f"no report of the agent since {agent.seen_at:%Y-%m-%d %H:%M:%S} UTC",
            source="portal",
        )
        with transaction.atomic():
            keeping.keep_fault(agent.node, seen, boot_id=agent.boot_id, now=now)
            _silences().filter(node=agent.node).update(program=True)
    _confirm(now=now)


def _confirm(*, now: datetime) -> None:
    """Follows what the clusters say of the silent nodes."""
    steady = _silences().filter(node__cluster__in=fleet.steadily_heard(since=now - BACK, now=now))
    _turn(steady.filter(node__ready=False, program=True), program=False, severity="fatal", now=now)
    heard = _silences().filter(node__cluster__watched_at__gte=now - fleet.OUT_OF_REACH_AFTER)
    _turn(heard.filter(node__ready=True, program=False), program=True, severity="warning", now=now)


def _turn(rows: QuerySet[Incident], *, program: bool, severity: str, now: datetime) -> None:
    """Says of these incidents whose trouble they are, and has them judged anew."""
    for pk, cluster in rows.values_list("pk", "cluster__name"):
        with transaction.atomic():
            changes = {"program": program, "severity": severity, "judge_at": now}
            if Incident.objects.filter(pk=pk, state=Incident.State.OPEN).update(**changes):
                doorbell.ring("rescue.judge", pk)
                doorbell.tell("incident", pk, cluster=cluster)


def _close(*, now: datetime) -> None:
    """Closes what a report since then disproves, and what is about nodes that are gone."""
    gone = _silences().filter(node__known=False).values_list("pk", flat=True)
    closing.close(list(gone), because="the cluster no longer has the node", actor="system", now=now)
    back = _silences().filter(
        node__agent__seen_at__gt=F("last_at"), node__agent__seen_at__gte=now - fleet.AGENT_LATE_AFTER
    )
    steady = [row.pk for row in back if now - row.opened_at >= DAMPED_BY * _earlier(row, now=now)]
    closing.close(steady, because="the agent reports again", actor="system", now=now)


def _earlier(row: Incident, *, now: datetime) -> int:
    """How many silences of the node ended a short while ago."""
    ended = Incident.objects.filter(node=row.node_id, kind=KIND, code=CODE, closed_at__gte=now - DAMPED_WITHIN)
    return ended.count()
