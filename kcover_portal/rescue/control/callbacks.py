"""Nodes that another system has: its callback, and an operator who takes the node over (invariant 10)."""

from datetime import datetime
from typing import Final

from django.db import transaction

from kcover import actions, audit, reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import node_lock
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.runtime.services import claims

OUTCOMES: Final = ("done", "failed")


def callback(
    rescue: Rescue, outcome: str, *, now: datetime, actor: str = "external", message: str = "", delivery: str = ""
) -> Rescue:
    """Takes the other system's callback: after ``done`` the plan continues, after ``failed`` a person is asked.

    A repeated callback counts once. ``delivery``: the handover of the node that the callback is about. A callback
    without it is accepted only if there was one handover; otherwise it may be about an earlier one.

    The caller has authenticated the system. Raises RescueRefused if the rescue is not with another system (any more) or
    had another outcome from it; ValueError for an unknown outcome.
    """
    if outcome not in OUTCOMES:
        raise ValueError(f"unknown outcome {outcome!r}; use one of {', '.join(OUTCOMES)}")
    with transaction.atomic():
        row, step = _handed_over(rescue)
        _check_delivery(row, step, delivery)
        before = step.progress_as(actions.webhook.Progress).callback
        if before and before["outcome"] != outcome:
            earlier = reasons.state(str(before["outcome"]))
            raise RescueRefused(reasons.of("called_back_already", rescue=str(row.pk), outcome=earlier))
        if not before:
            answer = {"outcome": outcome, "message": message[:500], "at": now.isoformat()}
            Step.objects.filter(pk=step.pk).update(progress=step.with_progress(callback=answer))
            Rescue.objects.filter(pk=row.pk, state=Rescue.State.WAITING).update(
                state=Rescue.State.RUNNING, due_at=now, because={}
            )
            act = audit.RescueCalledBack(rescue=row.pk, node=row.node.name, outcome=outcome, message=message[:500])
            _note(row, act, actor=actor, now=now)
    rescue.refresh_from_db()
    return rescue


def _check_delivery(row: Rescue, step: Step, delivery: str) -> None:
    """Raises RescueRefused for a callback that is, or may be, about an earlier handover."""
    present = agent.key_of(step)
    if delivery and delivery != present:
        other = {"rescue": str(row.pk), "delivery": present, "named": delivery[:100]}
        raise RescueRefused(reasons.of("other_delivery", **other))
    earlier = row.steps.filter(name=step.name, index__lt=step.index, attempts__gt=0)
    if not delivery and (step.typed_progress.retry or earlier.exists()):
        raise RescueRefused(reasons.of("delivery_needed", rescue=str(row.pk)))


def take_over(rescue: Rescue, *, actor: str, reason: str, now: datetime) -> Rescue:
    """An operator takes the node back from the other system: the rescue is held at this step for a person.

    Raises RescueRefused where the node is not with another system.
    """
    because = reasons.with_why("taken_over_by", reason, by=actor)
    with transaction.atomic():
        node_lock.hand_to_worker(rescue, now=now)  # the call that hands the node over may still be under way
        row, step = _handed_over(rescue)
        Rescue.objects.filter(pk=row.pk).update(
            state=Rescue.State.HELD,
            hold=Rescue.Hold.STEP,
            because=because.to_json(),
            needs_human=True,
            due_at=None,
            lease_until=None,
            token=claims.NEXT_TOKEN,
        )
        Step.objects.filter(pk=step.pk).update(state=Step.State.FAILED, because=because.to_json(), finished_at=now)
        act = audit.StepHeld(
            rescue=row.pk,
            node=row.node.name,
            step=step.index,
            name=step.name,
            because=because,
            attempt=step.attempts,
            state=Step.State.FAILED,
        )
        _note(row, act, actor=actor, now=now)
    rescue.refresh_from_db()
    return rescue


def _handed_over(rescue: Rescue) -> tuple[Rescue, Step]:
    """The rescue's row, locked, and the step that handed its node over. Raises RescueRefused."""
    row = Rescue.objects.select_for_update(of=("self",)).select_related("node", "cluster").get(pk=rescue.pk)
    step = queries.current_step(row)
    given = step is not None and step.spec.gives_node_away and step.state != Step.State.FAILED
    if step is None or not given or not step.progress_as(actions.webhook.Progress).given_at:
        raise RescueRefused(reasons.of("not_handed_over", rescue=str(row.pk)))
    return row, step


def _note(row: Rescue, act: audit.Act, *, actor: str, now: datetime) -> None:
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    doorbell.ring("rescue.run", row.pk)
    doorbell.publish("rescue", row.pk, cluster=row.cluster.name)
