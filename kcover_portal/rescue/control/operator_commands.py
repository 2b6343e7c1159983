"""Commands of a person to a rescue under way. Each command is one conditional update: of two, only one succeeds."""

from datetime import datetime
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import approvals, hand_approval
from kcover_portal.rescue.lifecycle import create, revoke
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import device_isolations


def cancel(
    rescue: Rescue,
    *,
    actor: str,
    reason: str,
    now: datetime,
    plan_hash: str | None = None,
    person: str = "",
    approver: bool = False,
) -> Rescue:
    """Ends an open rescue; an isolated node stays isolated until it is released. Raises RescueRefused.

    A question that needs two people is cancelled by its requester (``person``, by default ``actor``) or by an
    ``approver``, as the caller has checked.
    """
    _check_plan(rescue, plan_hash)
    because = reasons.with_why("cancelled_by", reason, by=actor)
    with transaction.atomic(), ledger.last():
        row = Rescue.objects.select_for_update(of=("self",)).select_related("node", "cluster").get(pk=rescue.pk)
        if hand_approval.is_held_question(row):
            if not approver and (person or actor) not in (row.requested_by, *row.requesters[:1]):
                raise RescueRefused(reasons.of("question_of_approver", needed=row.approvers))
            act = audit.QuestionCancelled(
                rescue=row.pk, node=row.node.name, step=row.gate or 0, plan_hash=row.plan_hash, reason=reason
            )
            ledger.record(row.cluster.name, act, actor=actor, now=now)
        ending = create.Ending(state="cancelled", because=because)
        if not create.end(rescue, ending, actor=actor, now=now):
            raise RescueRefused(reasons.of("rescue_has_ended", rescue=str(rescue.pk)))
    rescue.refresh_from_db()
    return rescue


def retry(
    rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None, step: int | None = None
) -> Rescue:
    """Runs the step at which a held rescue stopped again, from its beginning.

    Raises RescueRefused, also if the rescue is held at another step than ``step`` by now.
    """
    return _go_on(rescue, "retry", actor=actor, reason=reason, now=now, plan_hash=plan_hash, seen=step)


def skip(
    rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None, step: int | None = None
) -> Rescue:
    """Continues without the step at which a held rescue stopped. Raises RescueRefused, as ``retry`` does."""
    return _go_on(rescue, "skip", actor=actor, reason=reason, now=now, plan_hash=plan_hash, seen=step)


def _go_on(
    rescue: Rescue, verb: str, *, actor: str, reason: str, now: datetime, plan_hash: str | None, seen: int | None
) -> Rescue:
    with transaction.atomic(), ledger.last():
        # Locked before it is read: since the page was shown it may have continued and stopped at another step.
        row = Rescue.objects.select_for_update(of=("self",), no_key=True).get(pk=rescue.pk)
        _check_plan(row, plan_hash)
        step = queries.current_step(row)
        if step is None or step.state != Step.State.FAILED:
            raise RescueRefused(reasons.of(f"nothing_to_{verb}", rescue=str(rescue.pk)))
        if seen is not None and step.index != seen:
            raise RescueRefused(
                reasons.of("other_step", rescue=str(rescue.pk), number=str(step.index + 1), step=step.name)
            )
        moved = Rescue.objects.filter(pk=rescue.pk, state=Rescue.State.HELD).update(
            state=Rescue.State.RUNNING, hold="", due_at=now, because={}, needs_human=False
        )
        if not moved:
            raise RescueRefused(reasons.of("rescue_not_held", rescue=str(rescue.pk)))
        withdrawn = None
        if verb == "retry":
            # A fresh start of the step, with a new start time and a new request. The audit log keeps the earlier ones.
            Step.objects.filter(pk=step.pk).update(
                state=Step.State.WAITING,
                started_at=now,
                finished_at=None,
                failures=0,
                # Keep the boot that was to end: if it ended in the meantime, nothing is rebooted a second time.
                progress=step.typed_progress.retried().to_json(),
            )
        else:
            because = reasons.with_why("skipped_by", reason, by=actor).to_json()
            Step.objects.filter(pk=step.pk).update(state=Step.State.SKIPPED, finished_at=now, because=because)
            approvals.move_gate(row, step)
            withdrawn = revoke.revoke(rescue, step=step, because=reasons.of("its_step_skipped"), now=now)
            if step.spec.proves:  # the person vouches for the node instead
                faults = device_isolations.answered(rescue, incident_queries.open_on(rescue.node))
                about = list(faults.values_list("pk", flat=True))
                vouched = reasons.with_why("verification_skipped", reason, by=actor)
                incidents.close(about, because=vouched, actor=actor, now=now, before=now)
        command: dict[str, Any] = {
            "rescue": rescue.pk,
            "node": rescue.node.name,
            "step": step.index,
            "name": step.name,
            "plan_hash": rescue.plan_hash,
            "reason": reason,
        }
        act = audit.StepRetried(**command) if verb == "retry" else audit.StepSkipped(**command, withdrawn=withdrawn)
        ledger.record(rescue.cluster.name, act, actor=actor, now=now)
        doorbell.ring("rescue.run", rescue.pk)
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    rescue.refresh_from_db()
    return rescue


def _check_plan(rescue: Rescue, plan_hash: str | None) -> None:
    if plan_hash is not None and plan_hash != rescue.plan_hash:
        raise RescueRefused(reasons.of("plan_changed"))
