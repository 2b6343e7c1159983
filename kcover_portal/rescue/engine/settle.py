"""Settle the outcome of a step: write the rows and begin what follows, under the token of the lease."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover.plans import lifecycle
from kcover.plans.plan import PlannedStep
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.engine import expiry, outcome_rows
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import own_rows, plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import (
    Done,
    Failed,
    Hold,
    NeedsApproval,
    Outcome,
    Overruled,
    Postponed,
    Replaced,
    Retry,
    StartOver,
    Wait,
)

ACTS: Mapping[type[Outcome], type[audit.StepSettled]] = {
    Done: audit.StepDone,
    Postponed: audit.GuardRefused,
    Retry: audit.StepAttemptFailed,
    Hold: audit.StepHeld,
    Failed: audit.StepFailed,
    StartOver: audit.StepStartedOver,
    Overruled: audit.StepOverruled,
    Replaced: audit.StepReplaced,
}


def unfinished(steps: Sequence[Step]) -> Step | None:
    """The first of the steps that is not finished."""
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def begin(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Reserves an attempt of the step.

    Returns False if the step still needs approval (the rescue is held), or if it is too late or the fault has cleared
    (the rescue ends).
    """
    if expiry.end_if_expired(rescue, step, now=now):
        return False
    if approvals.end_if_healed(rescue, step, now=now):
        return False
    if not approvals.granted(rescue, step, now=now):
        # A pending request for approval keeps its deadline: checking it again does not extend it.
        pending = rescue.expires_at is not None and rescue.expires_at > now
        until = rescue.expires_at if pending else now + timedelta(seconds=rescue.approval_seconds)
        waiting = create.awaiting_approval(until or now)
        if outcome_rows.still_ours(rescue, lease_until=None, due_at=None, **waiting):
            ledger.append(rescue.cluster.name, [_held(rescue, step, because=waiting["because"], now=now)])
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
        return False
    if step.state == Step.State.PENDING:
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    step.reserve(now=now)
    own_rows.save_step(step, "attempts", "started_at", "state")
    return True


def settle(context: Context, steps: Sequence[Step], outcome: Outcome) -> bool:
    """Settles the outcome of the attempt. Returns False, with nothing written, if the lease was lost.

    The facts about the cluster, the end of the step and the beginning of the next are one transaction.
    """
    rescue, step, now, before = context.rescue, context.step, context.now, context.step.because
    with transaction.atomic(), ledger.last():
        if not outcome_rows.write(rescue, step, outcome, now=now):
            return False
        context.progress_changed &= isinstance(outcome, StartOver)  # else it is stored with the outcome
        context.keep_rows()
        # A guard's refusal is recorded when it begins and when it changes, not each time that it is evaluated.
        refused = isinstance(outcome, Postponed) and step.because != before
        ended = [settled_draft(rescue, step, outcome, now=now)] if refused or not isinstance(outcome, Wait) else []
        holds = (
            [_held(rescue, step, because=outcome.reason.to_json(), now=now)]
            if isinstance(outcome, NeedsApproval)
            else []
        )
        ledger.append(rescue.cluster.name, [*context.answers, *ended, *holds])
        if isinstance(outcome, Done):
            _after_step(rescue, step, steps, now=now)
            following = unfinished(steps)
            if following is None:
                finish(rescue, steps, now=now)
            else:
                begin(rescue, following, now=now)
        doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    context.answers, context.progress_changed = [], False
    return True


def gives_up(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Counts an attempt without an outcome: its worker died, or the step raised. Returns True if a person is asked now.

    Part of the transaction that has claimed the rescue.
    """
    step.failures += 1
    if step.failures < outcome_rows.MAX_FAILURES:
        own_rows.save_step(step, "failures")
        return False
    given_up = Hold(reasons.of("no_outcome", count=step.failures))
    if outcome_rows.hold(rescue, step, because=given_up.reason, now=now):
        ledger.append(rescue.cluster.name, [settled_draft(rescue, step, given_up, now=now)])
    doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    return True


def finish(rescue: Rescue, steps: Sequence[Step], *, now: datetime) -> None:
    """Ends the rescue once every step is finished, with the node's present state."""
    ending = ending_of(rescue, steps)
    create.end(
        rescue,
        state="succeeded",
        outcome=ending.outcome,
        because=ending.because,
        actor=f"rescue {rescue.pk}",
        now=now,
        needs_human=ending.needs_human,
        token=rescue.token,
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a rescue whose steps are all finished."""

    outcome: str
    because: reasons.Reason | None
    needs_human: bool = False


def ending_of(rescue: Rescue, steps: Sequence[Step]) -> Ending:
    """The ending of a rescue whose steps are all finished."""
    done = [step.spec for step in steps if step.state == Step.State.DONE]
    escalated = next((step for step in steps if step.spec.calls_person), None)
    if escalated is not None:
        message = str(escalated.args.get("message", ""))
        return Ending("escalated", reasons.of("escalated", message=message) if message else None, needs_human=True)
    if rescue.origin == Rescue.Origin.MANUAL:
        return Ending("done", None)
    if any(spec.returns_node for spec in done):
        return Ending("healed", reasons.of("healed_but_cordoned" if _stays_cordoned(steps) else "in_service_again"))
    if not any(spec.isolates for spec in done):
        return Ending("done", reasons.of("done_in_service"))
    return Ending(
        "isolated", _isolation(step for step in steps if step.state == Step.State.DONE and step.spec.isolates)
    )


def _stays_cordoned(steps: Iterable[Step]) -> bool:
    """Returns whether a step found somebody else's cordon on the node and left it there."""
    told = (step.why for step in steps if step.spec.returns_node and step.state == Step.State.DONE)
    return any(reasons.says(why, "foreign_cordon_kept") for why in told)


def _isolation(steps: Iterable[Step]) -> reasons.Reason:
    """What stays isolated: the node, or only parts of it."""
    parts = [step.typed_progress.isolated_part for step in steps]
    return reasons.of("done_part_isolated", part=", ".join(parts)) if all(parts) else reasons.of("done_isolated")


def _after_step(rescue: Rescue, step: Step, steps: Sequence[Step], *, now: datetime) -> None:
    """Records the proof of a finished step: the last one closes the incidents seen before it (invariant 4)."""
    if step.spec.proves:
        own_rows.update_rescue(rescue.pk, verified=True)
        if any(later.spec.proves and later.index > step.index for later in steps):
            return
        boot_id = plan_steps.new_boot(steps)
        # Faults of an earlier boot are gone, whenever they were delivered. Faults of this boot are not disproved.
        before = None if boot_id else step.started_at
        repaired_at, _ = plan_steps.repaired(steps) or (None, "")
        outcome_rows.close_verified(rescue, before=before, repaired_at=repaired_at, now=now, but_boot=boot_id)
    elif _is_taken_back(rescue, step):
        because = reasons.with_why("node_taken_back", rescue.reason, by=rescue.requested_by)
        if rescue.requester_kind == Rescue.Requester.SYSTEM:
            because = reasons.of("uncordoned_by_hand", node=rescue.node.name)
        outcome_rows.close_incidents(rescue, because=because, before=rescue.opened_at, now=now)


def _is_taken_back(rescue: Rescue, step: Step) -> bool:
    """Returns whether the step ended what was known of the node before. A burn-in ends nothing."""
    by_hand = rescue.origin == Rescue.Origin.MANUAL and step.spec.returns_node and not step.args.get("first_work")
    return by_hand and not queries.marked_on(rescue.node)


def settled_draft(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> ledger.Draft:
    act = ACTS[type(outcome)](
        rescue=rescue.pk,
        node=rescue.node.name,
        step=step.index,
        name=step.name,
        because=reasons.kept(step.because),
        attempt=step.attempts,
        state=step.state,
        **_second_round(rescue, step, outcome),
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=now)


def _second_round(rescue: Rescue, step: Step, outcome: Outcome) -> dict[str, Any]:
    """The plan with its second round, for ``StepStartedOver``: no earlier entry has its steps."""
    if not isinstance(outcome, StartOver) or step.state != Step.State.CANCELLED:
        return {}
    steps = tuple(PlannedStep(name=row.name, args=row.args) for row in rescue.steps.order_by("index"))
    plan_hash = Rescue.objects.values_list("plan_hash", flat=True).get(pk=rescue.pk)
    return {"steps": steps, "plan_hash": plan_hash}


def _held(rescue: Rescue, step: Step, *, because: dict[str, Any], now: datetime) -> ledger.Draft:
    act = audit.RescueHeld(
        rescue=rescue.pk,
        node=rescue.node.name,
        step=step.index,
        name=step.name,
        because=reasons.kept(because),
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=now)
