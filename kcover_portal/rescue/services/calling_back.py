"""Nodes that another system has: its word that it is done, and an operator who takes one over (invariant 10)."""

from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import F

from kcover_portal import doorbell
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import turns
from kcover_portal.rescue.actions.drivers import agent
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services.opening import Refused

OUTCOMES: Final = ("done", "failed")


def callback(
    rescue: Rescue, outcome: str, *, now: datetime, actor: str = "external", message: str = "", delivery: str = ""
) -> Rescue:
    """The other system's word: ``done`` and the plan goes on, ``failed`` and a person is asked. Twice the same is once.

    ``delivery``: which of the deliveries of the node it is about. A word that names none is taken while there was one
    only; after that it may be a late one about an earlier.

    The caller has seen to it that the word is that system's. Raises Refused where the rescue is not (any more) given to
    another system, or had another word from it; ValueError for an unknown outcome.
    """
    if outcome not in OUTCOMES:
        raise ValueError(f"no such outcome {outcome!r}: use one of {', '.join(OUTCOMES)}")
    with transaction.atomic():
        row, step = _given(rescue)
        _check_delivery(row, step, delivery)
        before = step.progress.get("callback")
        if before and before["outcome"] != outcome:
            raise Refused(f"rescue {row.pk} was called back as {before['outcome']} already")
        if not before:
            word = {"outcome": outcome, "message": message[:500], "at": now.isoformat()}
            Step.objects.filter(pk=step.pk).update(progress={**step.progress, "callback": word})
            Rescue.objects.filter(pk=row.pk, state=Rescue.State.WAITING).update(
                state=Rescue.State.RUNNING, due_at=now, because=""
            )
            _note(row, "rescue.called_back", actor=actor, now=now, data={"outcome": outcome, "message": message[:500]})
    rescue.refresh_from_db()
    return rescue


def _check_delivery(row: Rescue, step: Step, delivery: str) -> None:
    """Raises Refused for a word that is, or may be, about another delivery than the present one."""
    present = agent.key_of_step(step, "webhook")
    if delivery and delivery != present:
        raise Refused(f"rescue {row.pk}: the node was given away as {present}, and not as {delivery[:100]}")
    earlier = row.steps.filter(name=step.name, index__lt=step.index, attempts__gt=0)
    if not delivery and (step.progress.get("retry") or earlier.exists()):
        raise Refused(
            f"rescue {row.pk}: the node was given away more than once: name the delivery that the word is about"
        )


def take_over(rescue: Rescue, *, actor: str, reason: str, now: datetime) -> Rescue:
    """An operator ends the other system's turn: the rescue is held at this step, to be retried, skipped or cancelled.

    Raises Refused where it is not given to another system.
    """
    because = f"taken over by {actor}: {reason}".rstrip(": ")[:1000]
    with transaction.atomic():
        turns.leave(rescue, now=now)  # the call that gives the node away may still be under way
        row, step = _given(rescue)
        Rescue.objects.filter(pk=row.pk).update(
            state=Rescue.State.HELD,
            hold=Rescue.Hold.STEP,
            because=because,
            needs_human=True,
            due_at=None,
            lease_until=None,
            token=F("token") + 1,
        )
        Step.objects.filter(pk=step.pk).update(state=Step.State.FAILED, because=because, finished_at=now)
        data = {"because": because, "attempt": step.attempts, "state": "failed"}
        _note(row, "step.hold", actor=actor, now=now, data=data, subject=f"step {step.index} {step.name}")
    rescue.refresh_from_db()
    return rescue


def _given(rescue: Rescue) -> tuple[Rescue, Step]:
    """The rescue's row, locked, and the step that gave its node away. Raises Refused."""
    row = Rescue.objects.select_for_update(of=("self",)).select_related("node", "cluster").get(pk=rescue.pk)
    step = queries.current_step(row)
    given = step is not None and step.name == "webhook" and step.state != Step.State.FAILED
    if step is None or not given or not step.progress.get("given_at"):
        raise Refused(f"rescue {row.pk} is not given to another system (any more)")
    return row, step


def _note(row: Rescue, verb: str, *, actor: str, now: datetime, data: dict[str, object], subject: str = "") -> None:
    ledger.write(
        row.cluster.name,
        actor=actor,
        verb=verb,
        subject=subject or f"rescue {row.pk}",
        node=row.node.name,
        rescue=row.pk,
        now=now,
        data=data,
    )
    doorbell.ring("rescue.run", row.pk)
    doorbell.tell("rescue", row.pk, cluster=row.cluster.name)
