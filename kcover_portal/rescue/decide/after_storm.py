"""What closing a storm would do, as it would be at that moment. Nothing is written or locked to find it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover import reasons
from kcover.decisions import decide as core, guards
from kcover.plans import lifecycle
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.step import recheck_guards

MAX_NODES = 100


@dataclass(frozen=True, slots=True)
class AfterStorm:
    """What would be decided about one node of the storm once that is closed."""

    node: Node
    incident: Incident
    decision: core.Decision


@dataclass(frozen=True, slots=True)
class HeldByStorm:
    """A rescue that waits for the storm, and the steps that it has left.

    ``held_back``: what would hold back its next step all the same. ``asks``: a person would be asked first.
    """

    node: Node
    rescue: Rescue
    steps: Sequence[Step]
    held_back: Sequence[reasons.Reason]
    asks: bool


def after_storm(storm: Incident, *, now: datetime) -> Sequence[AfterStorm]:
    """The decisions about the nodes whose faults the storm holds back, the oldest fault first; at most MAX_NODES.

    Slots go to the oldest faults, as they do when the storm is closed.
    """
    cases: dict[int, tuple[Node, Incident]] = {}
    for row in closure.held_by(storm).select_related("node__cluster", "cluster").order_by("opened_at", "pk"):
        if row.node is not None and len(cases) < MAX_NODES:
            cases.setdefault(row.node.pk, (row.node, row))
    if not cases:
        return []
    situations = queries.Situations(storm.cluster, list(cases.values()), now=now, without_storm=storm.pk)
    found = []
    for node, incident in cases.values():
        decision = core.decide(situations.of(node))
        if decision.answer in ("rescue", "approve"):
            situations.add(node, decision)
        found.append(AfterStorm(node, incident, decision))
    return found


def held_by_storm(storm: Incident, *, now: datetime) -> Sequence[HeldByStorm]:
    """The rescues that the storm holds before their next step, the oldest first; at most MAX_NODES.

    A storm lets nodes with hardware faults be isolated. Their rescues are open, so nothing is decided about them; once
    the storm is closed they drain and reboot their nodes.
    """
    open_now = Rescue.objects.filter(
        cluster=storm.cluster, node__name__in=storm.scope, state__in=(Rescue.State.WAITING, Rescue.State.RUNNING)
    ).exclude(fault_kind="")
    rows = open_now.select_related("node__cluster", "cluster").prefetch_related("steps").order_by("pk")
    held = [rescue for rescue in rows if _is_held(rescue, storm)][:MAX_NODES]
    if not held:
        return []
    settings = fleet.guards_of(storm.cluster)
    counted = counts.Counts(
        storm.cluster,
        settings=settings,
        now=now,
        nodes=[rescue.node for rescue in held],
        codes=[(rescue.fault_kind, rescue.fault_code) for rescue in held],
        without_storm=storm.pk,
    )
    mode, _ = fleet.mode_of(storm.cluster)
    return [_continued(rescue, counted, settings=settings, mode=mode, now=now) for rescue in held]


def _is_held(rescue: Rescue, storm: Incident) -> bool:
    """Returns whether this storm is what the rescue waits for, and not another one of the same nodes."""
    symptom = guards.Symptom(trait=storm.trait, kind=storm.symptom_kind, value=storm.symptom, nodes=0)
    waits_for = rescue.why.parts if rescue.why is not None else ()
    return any(guards.is_of_storm(part, symptom) for part in waits_for)


def _continued(
    rescue: Rescue, counted: counts.Counts, *, settings: guards.Settings, mode: str, now: datetime
) -> HeldByStorm:
    node = rescue.node
    steps = [step for step in rescue.steps.all() if step.state not in lifecycle.FINISHED_STEP]
    facts = counted.of(node, kind=rescue.fault_kind, code=rescue.fault_code, destructive=True)
    if steps and steps[0].takes_away:
        verdict = guards.destructive(settings, facts, act=steps[0].name, now=now, overrides=rescue.overrides)
    else:
        verdict = guards.during_storm(settings, facts, now=now, overrides=rescue.overrides)
    asks = recheck_guards.needs_approval(rescue, mode=mode) and any(step.takes_away for step in steps)
    return HeldByStorm(node, rescue, steps, verdict.held, asks)
