"""Warm standbys: which nodes are spares and how they are, which stand in for whom, and where one was lacking."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover import guards, lifecycle, reasons, standby
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Assignment, Rescue, Step

PROMISED = (Assignment.State.RESERVED, Assignment.State.ACTIVE)
STEP = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A standby's row and what the kernel is told of it; ``busy``: why it is not free."""

    node: Node
    fact: standby.Standby
    busy: reasons.Reason | None


def spares(nodes: QuerySet[Node], *, now: datetime) -> list[Spare]:
    """The standbys among these nodes, by name: GPU nodes that the cluster has, labelled as spares, not excluded.

    One that carries marks of a rescue, has an open fault, or whose agent has fallen silent, is not healthy; one that
    never had an agent is judged by the cluster alone.
    """
    labelled = nodes.filter(known=True, gpus__gt=0, **{f"labels__{standby.LABEL}": "true"})
    excluded = labelled.filter(**{f"labels__{guards.EXCLUDE_LABEL}": "true"})
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    rows = labelled.exclude(pk__in=excluded.values("pk")).annotate(
        faulty=Exists(Incident.objects.filter(node=OuterRef("pk"), state=Incident.State.OPEN, program=False)),
        in_rescue=Exists(rescues.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}))),
        silent=Exists(Agent.objects.filter(node=OuterRef("pk"), seen_at__lt=now - fleet.AGENT_SILENT_AFTER)),
        promised=Exists(Assignment.objects.filter(spare=OuterRef("pk"), state__in=PROMISED)),
    )
    return [_spare(row) for row in rows.order_by("cluster_id", "name")]


def _spare(row: Any) -> Spare:
    fact = standby.Standby(
        name=row.name,
        labels=row.labels,
        ready=row.ready,
        healthy=not (row.faulty or row.in_rescue or row.silent or row.marks),
        promised=row.promised,
    )
    return Spare(node=row, fact=fact, busy=standby.why_busy(fact))


def standing_in(node: Node) -> Assignment | None:
    """What the node is promised to, or does, as a standby; there is at most one."""
    return Assignment.objects.filter(spare=node, state__in=PROMISED).select_related("spare", "origin").first()


def of_rescue(rescue: Rescue) -> Assignment | None:
    """The standby that the rescue has."""
    rows = Assignment.objects.filter(rescue=rescue, state__in=PROMISED)
    return rows.select_related("spare", "origin").order_by("-pk").first()


def assignments() -> QuerySet[Assignment]:
    """Promises and roles that stand, newest first."""
    return Assignment.objects.filter(state__in=PROMISED).select_related("spare__cluster", "origin", "rescue")


def shortages() -> QuerySet[Step]:
    """Where an open rescue, or one whose node is still out of service, went on without a standby, newest first."""
    lacking = Q(rescue__state__in=lifecycle.OPEN_RESCUE) | ~Q(rescue__marks={})
    rows = Step.objects.filter(lacking, name=STEP, progress__shortage=True)
    return rows.select_related("rescue__node", "rescue__cluster").order_by("-pk")


def left_over() -> QuerySet[Assignment]:
    """Promises of rescues that will not keep them: ended, or past their step."""
    coming = Step.objects.filter(rescue=OuterRef("rescue"), name=STEP).exclude(state__in=lifecycle.FINISHED_STEP)
    kept = Q(Exists(coming), rescue__state__in=lifecycle.OPEN_RESCUE)
    return Assignment.objects.filter(state=Assignment.State.RESERVED).exclude(kept).select_related("spare__cluster")
