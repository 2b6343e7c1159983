"""Warm standbys: which nodes are standbys, their state, the nodes that they replace, and shortages."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from kcover import actions, reasons
from kcover.decisions import standby
from kcover.plans import lifecycle
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Assignment, Rescue, Step
from kcover_portal.rescue.queries import capacity

STATES = ("ready", "reserved", "unfit")
PROMISED = (Assignment.State.RESERVED, Assignment.State.ACTIVE)
STEP = actions.standby.SPEC.name


class Tested(Protocol):
    """Returns those of the nodes, by key, whose preflight gate is passed."""

    def __call__(self, nodes: Collection[int], /, *, now: datetime) -> set[int]: ...


_tested: list[Tested] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A standby's row and the facts for the core; ``busy``: why it is not free."""

    node: Node
    fact: standby.Standby
    busy: reasons.Reason | None

    @property
    def state(self) -> str:
        """Of ``STATES``: it is free, it has a node to replace, or it cannot be taken."""
        if self.busy is None:
            return "ready"
        return "reserved" if self.fact.promised else "unfit"


def spares(nodes: QuerySet[Node], *, now: datetime) -> list[Spare]:
    """The standbys among these nodes, by name: GPU nodes that the cluster has, labelled as standbys, not excluded.

    A standby is not healthy if it carries marks of a rescue, has an open fault, or its agent is silent. Without an
    agent, only what the cluster shows counts. Where the cluster's setting ``standby_tested`` asks for it, one is free
    only while its preflight gate is passed.
    """
    labelled = nodes.filter(in_cluster=True, gpus__gt=0, **{f"labels__{standby.LABEL}": "true"})
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    rows = capacity.not_excluded(labelled).annotate(
        faulty=Exists(Incident.objects.filter(node=OuterRef("pk"), state=Incident.State.OPEN, is_user_fault=False)),
        in_rescue=Exists(rescues.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}))),
        silent=Exists(Agent.objects.filter(node=OuterRef("pk"), seen_at__lt=now - fleet.AGENT_SILENT_AFTER)),
        promised=Exists(Assignment.objects.filter(spare=OuterRef("pk"), state__in=PROMISED)),
    )
    found = list(rows.annotate(to_be_tested=F("cluster__standby_tested")).order_by("cluster_id", "name"))
    asked = [row.pk for row in found if row.to_be_tested]
    tested = _tested[0](asked, now=now) if asked else set()
    return [_spare(row, tested=not row.to_be_tested or row.pk in tested) for row in found]


def matching(found: Iterable[Spare], *, text: str = "", state: str = "") -> list[Spare]:
    """The standbys in this state whose name contains the text, in any case; "": all."""
    wanted = text.casefold()
    return [one for one in found if state in ("", one.state) and wanted in one.node.name.casefold()]


def tested_by(tested: Tested) -> None:
    """Registers who knows whether standbys are tested. Preflight is above this app, so it registers here."""
    _tested[:] = [tested]


def _spare(row: Any, *, tested: bool) -> Spare:
    fact = standby.Standby(
        name=row.name,
        labels=row.labels,
        ready=row.ready,
        healthy=not (row.faulty or row.in_rescue or row.silent or row.marks),
        promised=row.promised,
        on_probation=row.probation_until is not None,
        proven=row.not_ready_since is None,
        tested=tested,
        doubt=standby.doubt_of(
            row.name,
            labels=row.labels,
            taint_keys={taint["key"] for taint in row.taints},
            unschedulable=row.unschedulable,
        ),
    )
    return Spare(node=row, fact=fact, busy=standby.why_busy(fact))


def standing_in(node: Node) -> Assignment | None:
    """The node's own assignment as a standby, reserved or in service; there is at most one."""
    return Assignment.objects.filter(spare=node, state__in=PROMISED).select_related("spare", "origin").first()


def of_rescue(rescue: Rescue) -> Assignment | None:
    """The standby that the rescue has."""
    rows = Assignment.objects.filter(rescue=rescue, state__in=PROMISED)
    return rows.select_related("spare", "origin").order_by("-pk").first()


def assignments() -> QuerySet[Assignment]:
    """Standbys that are reserved or in service, newest first."""
    return Assignment.objects.filter(state__in=PROMISED).select_related("spare__cluster", "origin", "rescue")


def shortages() -> QuerySet[Step]:
    """Steps of rescues that continued without a standby and are open or still hold their node, newest first."""
    lacking = Q(rescue__state__in=lifecycle.OPEN_RESCUE) | ~Q(rescue__marks={})
    rows = Step.objects.filter(lacking, name=STEP, progress__shortage=True)
    return rows.select_related("rescue__node", "rescue__cluster").order_by("-pk")


def left_over() -> QuerySet[Assignment]:
    """Standbys that are reserved for rescues that have ended or passed their step."""
    coming = Step.objects.filter(rescue=OuterRef("rescue"), name=STEP).exclude(state__in=lifecycle.FINISHED_STEP)
    kept = Q(Exists(coming), rescue__state__in=lifecycle.OPEN_RESCUE)
    return Assignment.objects.filter(state=Assignment.State.RESERVED).exclude(kept).select_related("spare__cluster")
