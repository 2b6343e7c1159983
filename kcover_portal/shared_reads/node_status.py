"""The state of nodes as people see it, as conditions on rows: each node is in exactly one.

The console's map and tiles compute the same states from plain values (``console.reads.fleet.state_of``).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db.models import Case, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover.plans import lifecycle
from kcover_portal.fleet import queries as fleet
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import needs_person

STATUSES: Final[Mapping[str, str | Promise]] = {  # the most urgent first; a node is in the first one that applies
    "attention": _("Escalated to an operator"),
    "faulty": _("Degraded"),
    "approval": _("Awaiting approval"),
    "held": _("On hold"),
    "healing": _("Healing"),
    "repair": _("In repair"),
    "not-ready": _("Not ready"),
    "silent": _("Agent not reporting"),
    "cordoned": _("Cordoned"),
    "unknown": _("Not in the cluster"),
    "healthy": _("Healthy"),
}
OFF_THE_MAP: Final[Mapping[str, str | Promise]] = {  # of nodes that neither the map nor the tiles count
    "other": _("No GPUs"),
    "gone": _("Removed from the cluster"),
}


def is_gpu_node() -> Q:
    """Nodes with GPUs, with an agent, or not in the cluster; none that has been removed."""
    return Q(gone_at=None) & (Q(gpus__gt=0) | Q(agent__isnull=False) | Q(in_cluster=False))


def in_status(status: str, *, now: datetime) -> Q:
    """Nodes in this status: one of STATUSES or OFF_THE_MAP."""
    if status in OFF_THE_MAP:
        return Q(gone_at=None) & ~is_gpu_node() if status == "other" else Q(gone_at__isnull=False)
    left = _nodes(Rescue.objects.filter(needs_person.LEFT_TO_PEOPLE))
    rescues = Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE)
    opened, asks = _nodes(rescues), _nodes(rescues.filter(needs_person.AWAITING_APPROVAL))
    on_hold, away = _nodes(rescues.filter(state=Rescue.State.HELD)), _nodes(rescues.filter(needs_person.IN_REPAIR))
    faults = Incident.objects.filter(state=Incident.State.OPEN, is_user_fault=False)
    faulty, blocked = _nodes(faults.exclude(node=None)), _nodes(_blocked_decisions())
    silent = Q(agent__isnull=False, agent__seen_at__lt=now - fleet.AGENT_SILENT_AFTER)
    here, ready, cordoned = Q(in_cluster=True), Q(ready=True), Q(unschedulable=True)
    calm = ~left & ~opened & ~faulty
    reachable = calm & here & ready & ~silent
    return (
        is_gpu_node()
        & {
            "attention": left,
            "approval": ~left & opened & asks,
            "held": ~left & ((opened & ~asks & on_hold) | (~opened & faulty & blocked)),
            "healing": ~left & opened & ~asks & ~on_hold & ~away,
            "repair": ~left & away,
            "faulty": ~left & ~opened & faulty & ~blocked,
            "unknown": calm & ~here,
            "not-ready": calm & here & ~ready,
            "silent": calm & here & ready & silent,
            "cordoned": reachable & cordoned,
            "healthy": reachable & ~cordoned,
        }[status]
    )


def trouble(*, now: datetime) -> Case:
    """The usual order of lists of nodes: those that people or the portal work on or that have a fault, those that do
    not report, the other GPU nodes, and nodes without GPUs last. It costs less than the order by ``in_status``.
    """
    faults = Incident.objects.filter(state=Incident.State.OPEN, is_user_fault=False).exclude(node=None)
    work = Rescue.objects.filter(Q(state__in=lifecycle.OPEN_RESCUE) | needs_person.LEFT_TO_PEOPLE)
    quiet = Q(in_cluster=False) | Q(ready=False) | Q(agent__seen_at__lt=now - fleet.AGENT_SILENT_AFTER)
    return Case(
        When(~is_gpu_node(), then=Value(3)),
        When(_nodes(faults) | _nodes(work), then=Value(0)),
        When(quiet, then=Value(1)),
        default=Value(2),
        output_field=IntegerField(),
    )


def _nodes(rows: QuerySet[Any]) -> Q:
    return Q(pk__in=rows.values("node"))


def _blocked_decisions() -> QuerySet[Decision]:
    """Decisions that a guard holds back, the newest about an open fault."""
    newest = Decision.objects.filter(incident=OuterRef("incident")).order_by("-pk").values("pk")[:1]
    open_fault = Q(incident__state=Incident.State.OPEN, incident__is_user_fault=False)
    return Decision.objects.filter(open_fault, answer=Decision.Answer.HOLD, pk=Subquery(newest))
