"""Settle outcomes: write the rows and begin what follows, under the tokens of the leases.

Several outcomes are settled as one is: rows that get the same values share a statement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.incidents.queries import seen
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries
from kcover_portal.rescue.engine import next_step, outcome_columns
from kcover_portal.rescue.engine.outcome_columns import Change
from kcover_portal.rescue.lifecycle import create, replaced_machine, second_round
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import device_isolations
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

ACTS: Final[Mapping[type[Outcome], type[audit.StepSettled]]] = {
    Done: audit.StepDone,
    Postponed: audit.GuardRefused,
    Retry: audit.StepAttemptFailed,
    Hold: audit.StepHeld,
    Failed: audit.StepFailed,
    StartOver: audit.StepStartedOver,
    Overruled: audit.StepOverruled,
    Replaced: audit.StepReplaced,
}

Attempt = tuple[Context, Sequence[Step], Outcome]  # of a rescue's current step, with all steps of its plan
STEP_COLUMNS: Final = ("state", "because", "failures", "started_at", "finished_at", "progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settling:
    """An attempt with the change of its rows, and with its entries for the ledger."""

    context: Context
    steps: Sequence[Step]
    outcome: Outcome
    change: Change
    entries: Sequence[ledger.Draft]


def settle(attempts: Sequence[Attempt], *, hands_over: bool = False) -> list[Attempt]:
    """Settles attempts of rescues of one cluster. Returns those whose leases were still this worker's, with the outcome
    that was settled: a step that would be held reads the callback that came meanwhile.

    The facts about the cluster, the end of a step and the beginning of the next are one transaction. ``hands_over``:
    the next steps are left to the workers; without it, this worker keeps the lease for them.
    """
    now = attempts[0][0].now
    with transaction.atomic(), ledger.last():
        made = [_applied(*attempt, hands_over=hands_over, now=now) for attempt in attempts]
        ours = own_rows.update_each_running([(it.context.rescue, it.change.rescue) for it in made])
        kept = [it for it in made if it.context.rescue.pk in ours]
        own_rows.save_steps([it.context.step for it in kept], *STEP_COLUMNS)
        own_rows.keep_marks(*(it.context.rescue for it in kept if it.context.marks_changed))
        for it in kept:
            if isinstance(it.outcome, Done):
                _follow_done(it, hands_over=hands_over, now=now)
            else:
                _follow_other(it, now=now)
    for it in kept:
        it.context.answers, it.context.marks_changed, it.context.progress_changed = [], False, False
    return [(it.context, it.steps, it.outcome) for it in kept]


def settle_check(context: Context, steps: Sequence[Step], outcome: Outcome) -> bool:
    """Settles a check of a held rescue's node: the rescue ends, or stays held with its step as it is.

    Returns False if the lease was no longer this worker's.
    """
    if isinstance(outcome, Overruled | Replaced):
        return bool(settle([(context, steps, outcome)]))
    with transaction.atomic():
        ours = own_rows.CLAIMS.write(context.rescue, **outcome_columns.of_check(outcome, now=context.now))
        context.note_answers()
    return ours


def _applied(
    context: Context, steps: Sequence[Step], outcome: Outcome, *, hands_over: bool, now: datetime
) -> _Settling:
    """Changes the step, without saving it. Returns the attempt with its change, also that by the end of its rescue."""
    rescue, step, before = context.rescue, context.step, context.step.because
    change = outcome_columns.of(rescue, step, outcome, steps=steps, now=now)
    for column, value in change.step.items():
        setattr(step, column, value)
    if isinstance(outcome, Hold) and step.state == Step.State.WAITING:
        outcome = Wait(0, outcome.reason)  # the other system has called back, so nobody is asked
    if isinstance(outcome, Done):
        if next_step.unfinished(steps) is None:
            change = replace(change, ending=next_step.ending_of(rescue, steps))
        elif hands_over:
            change = replace(change, rescue={**change.rescue, "lease_until": None})
    if change.ending is not None:
        change = replace(change, rescue={**change.rescue, **create.ended(change.ending, now=now)})
    entries = [*context.answers]
    # A guard's refusal is recorded when it begins and when it changes, not each time that it is evaluated.
    refused = isinstance(outcome, Postponed) and step.because != before
    if refused or not isinstance(outcome, Wait):
        entries.append(_settled(rescue, step, outcome, change.again, now=now))
    if isinstance(outcome, NeedsApproval):
        entries.append(next_step.held(rescue, step, because=outcome.reason.to_json(), now=now))
    return _Settling(context=context, steps=steps, outcome=outcome, change=change, entries=entries)


def _settled(
    rescue: Rescue, step: Step, outcome: Outcome, again: second_round.Plan | None, *, now: datetime
) -> ledger.Draft:
    # No earlier entry has the steps of a second round.
    new_plan = {"steps": again.steps, "plan_hash": again.plan_hash} if again is not None else {}
    act = ACTS[type(outcome)](
        rescue=rescue.pk,
        node=rescue.node.name,
        step=step.index,
        name=step.name,
        because=reasons.kept(step.because),
        attempt=step.attempts,
        state=step.state,
        **new_plan,
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=now)


def _follow_done(it: _Settling, *, hands_over: bool, now: datetime) -> None:
    """Does what follows from a step that is done: it ends the rescue, or begins the next step."""
    rescue = it.context.rescue
    ledger.append(it.context.cluster.name, it.entries)
    _answer_incidents(rescue, it.context.step, it.steps, now=now)
    following = next_step.unfinished(it.steps)
    if it.change.ending is not None:
        create.close(rescue, it.change.ending, actor=f"rescue {rescue.pk}", now=now, steps=it.steps)
    elif hands_over:
        doorbell.ring("rescue.run", rescue.pk)
    elif following is not None:
        next_step.begin(rescue, following, now=now)
    doorbell.publish("rescue", rescue.pk, cluster=it.context.cluster.name)


def _follow_other(it: _Settling, *, now: datetime) -> None:
    """Does what follows from a step that is not done. In proofs, the end of a rescue is before the step that failed."""
    rescue, step, outcome = it.context.rescue, it.context.step, it.outcome
    if it.change.ending is not None:
        create.close(rescue, it.change.ending, actor=f"rescue {rescue.pk}", now=now, steps=it.steps)
    if isinstance(outcome, Replaced):
        replaced_machine.end_faults(rescue, because=outcome.reason, now=now)
    if isinstance(outcome, Overruled) and not outcome.left:
        # A person who took the node back vouches for it: faults seen until now do not start a second rescue.
        _close_incidents(rescue, because=outcome.reason, before=now, now=now)
    if it.change.again is not None:
        second_round.begin(rescue, step, it.change.again, now=now)
    ledger.append(it.context.cluster.name, it.entries)
    doorbell.publish("rescue", rescue.pk, cluster=it.context.cluster.name)


def _answer_incidents(rescue: Rescue, step: Step, steps: Sequence[Step], *, now: datetime) -> None:
    """Closes the incidents that a finished step disproves: the last proof those seen before it (invariant 4)."""
    if step.spec.proves:
        if any(later.spec.proves and later.index > step.index for later in steps):
            return
        boot_id = plan_steps.new_boot(steps)
        # Faults of an earlier boot are gone, whenever they were delivered. Faults of this boot are not disproved.
        before = None if boot_id else step.started_at
        repaired_at, _ = plan_steps.repaired(steps) or (None, "")
        _close_verified(rescue, before=before, repaired_at=repaired_at, now=now, but_boot=boot_id)
    elif _is_taken_back(rescue, step):
        because = reasons.with_why("node_taken_back", rescue.reason, by=rescue.requested_by)
        if rescue.requester_kind == Rescue.Requester.SYSTEM:
            because = reasons.of("uncordoned_by_hand", node=rescue.node.name)
        _close_incidents(rescue, because=because, before=rescue.opened_at, now=now)


def _is_taken_back(rescue: Rescue, step: Step) -> bool:
    """Returns whether the step ended what was known of the node before. A burn-in ends nothing."""
    by_hand = rescue.origin == Rescue.Origin.MANUAL and step.spec.returns_node and not step.args.get("first_work")
    return by_hand and not queries.marked_on(rescue.node)


def _close_incidents(rescue: Rescue, *, because: reasons.Reason, before: datetime | None, now: datetime) -> None:
    """Closes the faults of the node that were last seen before, because someone took the node back.

    Those of GPUs that stay isolated are left open.
    """
    rows = device_isolations.answered(rescue, incident_queries.open_on(rescue.node))
    open_ones = list(rows.values_list("pk", flat=True))
    incidents.close(open_ones, because=because, actor=f"rescue {rescue.pk}", now=now, before=before)


def _close_verified(
    rescue: Rescue, *, before: datetime | None, repaired_at: datetime | None, now: datetime, but_boot: str = ""
) -> None:
    """Closes the faults that the verification of the node answers. ``but_boot``: those seen in this boot stay open.
    So do those with a state that may be of this boot.

    ``repaired_at``: when the repair that was verified was done; None if none was.
    """
    rows = incident_queries.open_on(rescue.node).exclude(seen.is_doubtful())
    if but_boot:
        rows = rows.exclude(incident_queries.seen_in(but_boot))
    open_ones = list(device_isolations.answered(rescue, rows).values_list("pk", flat=True))
    because, actor = reasons.of("incident_verified", rescue=str(rescue.pk)), f"rescue {rescue.pk}"
    incidents.close(open_ones, because=because, actor=actor, now=now, before=before, repaired_at=repaired_at)
