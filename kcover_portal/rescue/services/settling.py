"""Settling: what came of a step becomes rows, and what follows is begun, under the token of whoever has the lease."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from kcover import decision, lifecycle
from kcover_portal import doorbell
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents import services as incidents
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import (
    Again,
    Ask,
    Done,
    Failed,
    Given,
    Hold,
    Outcome,
    Overruled,
    Refused,
    Replaced,
    StartOver,
    Wait,
)
from kcover_portal.rescue.actions.turns import LEASE
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import approving, opening, replacing, starting_over, too_late

BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
TOO_MANY_FAILURES = 40  # about half an hour of back-off, then a person is asked
TAKING_BACK = ("release", "uncordon")


def unfinished(steps: Sequence[Step]) -> Step | None:
    """The first of the steps that is not finished."""
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def begin(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Reserves an attempt of the step; where it still needs a person's yes, holds the rescue instead, and ends it where
    it is too late or the fault is over (False)."""
    if too_late.end_if_so(rescue, step, now=now):
        return False
    if approving.void(rescue, step, now=now):
        return False
    if not approving.granted(rescue, step, now=now):
        # A question that stands goes on standing: looking at it again gives nobody more time.
        stands = rescue.expires_at is not None and rescue.expires_at > now
        until = rescue.expires_at if stands else now + timedelta(seconds=rescue.approval_seconds)
        asked = opening.asks_for_approval(until or now)
        if still_ours(rescue, lease_until=None, due_at=None, **asked):
            ledger.append(rescue.cluster.name, [_held(rescue, step, because=asked["because"], now=now)])
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
        return False
    if step.state == Step.State.PENDING:
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    step.reserve(now=now)
    step.save(update_fields=["attempts", "started_at", "state"])
    return True


def settle(context: Context, steps: Sequence[Step], outcome: Outcome) -> bool:
    """Writes down what came of the attempt; False, and nothing at all, if the lease was lost meanwhile.

    What is true on the cluster by now, the step's end and the next step's beginning are one transaction.
    """
    rescue, step, now, before = context.rescue, context.step, context.now, context.step.because
    with transaction.atomic(), ledger.last():
        if not _write_down(rescue, step, outcome, now=now):
            return False
        context.keep_rows()
        # A guard's refusal is on record when it begins and when it changes, not each time that it is asked.
        refused = isinstance(outcome, Refused) and step.because != before
        ended = [_draft(rescue, step, outcome, now=now)] if refused or not isinstance(outcome, Wait) else []
        asked = [_held(rescue, step, because=outcome.because, now=now)] if isinstance(outcome, Ask) else []
        ledger.append(rescue.cluster.name, [*context.answers, *ended, *asked])
        if isinstance(outcome, Done):
            _after_step(rescue, step, now=now)
            following = unfinished(steps)
            if following is None:
                finish(rescue, steps, now=now)
            else:
                begin(rescue, following, now=now)
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    context.answers = []
    return True


def gives_up(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Counts an attempt that came to no outcome: its worker died, or the step broke. True where it was one too many,
    and a person is asked. Part of the transaction that has claimed the rescue."""
    step.failures += 1
    if step.failures < TOO_MANY_FAILURES:
        step.save(update_fields=["failures"])
        return False
    given_up = Hold(f"{step.failures} attempts in a row came to no outcome: the workers' log says why")
    if _hold(rescue, step, because=given_up.because, now=now):
        ledger.append(rescue.cluster.name, [_draft(rescue, step, given_up, now=now)])
    doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    return True


def finish(rescue: Rescue, steps: Sequence[Step], *, now: datetime) -> None:
    """Every step is finished: says what the node is now."""
    done = {step.name for step in steps if step.state == Step.State.DONE}
    escalated = next((step for step in steps if step.name == "escalate"), None)
    if escalated is not None:
        outcome, because = "escalated", str(escalated.args.get("message", ""))
    elif rescue.origin == Rescue.Origin.MANUAL:
        outcome, because = "done", ""
    elif "uncordon" in done:
        outcome, because = "healed", "the node takes work again"
    elif not done & decision.ISOLATING:
        outcome, because = "done", "the plan ends here; the node takes work as before"
    else:
        outcome, because = "isolated", "the plan ends here; the node stays out of scheduling"
    opening.end(
        rescue,
        state="succeeded",
        outcome=outcome,
        because=because,
        actor=f"rescue {rescue.pk}",
        now=now,
        needs_human=escalated is not None,
        token=rescue.token,
    )


def still_ours(rescue: Rescue, **fields: Any) -> bool:
    """Updates the rescue if this worker's token still stands; the row is locked until the transaction ends."""
    ours = Rescue.objects.filter(pk=rescue.pk, token=rescue.token, state=Rescue.State.RUNNING).update(**fields)
    return bool(ours)


def _write_down(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> bool:
    """Turns an outcome into rows; False, and nothing written, if the lease was lost."""
    match outcome:
        case Done(note):
            if not still_ours(rescue, lease_until=now + LEASE, hold=""):
                return False
            _close_step(step, "done", because=note, now=now)
            return True
        case Ask(seconds):  # from here on the step is gated, as if it had been laid down so
            if approving.has_begun(step):
                step.progress = {**step.progress, "gated": True}
            asks = opening.asks_for_approval(now + timedelta(seconds=rescue.approval_seconds))
            return _put_down(rescue, step, seconds=seconds, failures=0, now=now, gate=step.index, due_at=None, **asks)
        case Wait(seconds, because):
            hold = Rescue.Hold.EXTERNAL if isinstance(outcome, Given) else Rescue.Hold.NOTHING
            return _put_down(rescue, step, seconds=seconds, because=because, failures=0, now=now, hold=hold)
        case Again(because, after, counts):
            failures = step.failures + 1 if counts else max(step.failures, min(step.failures + 1, len(BACK_OFF)))
            if failures >= TOO_MANY_FAILURES:
                return _hold(rescue, step, because=f"tried {failures} times: {because}", now=now)
            seconds = max(after or 0.0, _back_off(failures))
            return _put_down(rescue, step, seconds=seconds, because=because, failures=failures, now=now)
        case Hold(because):
            return _hold(rescue, step, because=because, now=now)
        case StartOver(because):
            return starting_over.start_over(rescue, step, because=because, now=now) or _end(
                rescue, step, state="failed", because=because, now=now
            )
        case Failed(because):
            return _end(rescue, step, state="failed", because=because, now=now)
        case Replaced(because):
            return _end(rescue, step, state="cancelled", outcome=replacing.OUTCOME, because=because, now=now)
        case Overruled(because):
            if not _end(rescue, step, state="cancelled", because=because, now=now):
                return False
            # Whoever took the node back vouches for it: what was seen until now starts no second rescue.
            _close_incidents(rescue, because=because, before=now, now=now)
            return True


def _close_step(step: Step, state: str, *, because: str, now: datetime) -> None:
    step.state, step.because, step.finished_at, step.failures = state, because[:1000], now, 0
    step.save(update_fields=["state", "because", "finished_at", "failures"])


def _put_down(
    rescue: Rescue, step: Step, *, seconds: float, because: str, failures: int, now: datetime, **also: Any
) -> bool:
    """Lets the rescue wait until a due date, or as ``also`` says, and gives the lease back."""
    wake = now + timedelta(seconds=seconds)
    fields = {"state": Rescue.State.WAITING, "hold": "", "because": because[:1000], "due_at": wake, **also}
    if not still_ours(rescue, lease_until=None, **fields):
        return False
    step.state, step.because, step.failures = Step.State.WAITING, because[:1000], failures
    step.save(update_fields=["state", "because", "failures", "started_at", "progress"])
    return True


def _hold(rescue: Rescue, step: Step, *, because: str, now: datetime) -> bool:
    """Stops and asks a person; the rescue stays open and the node isolated."""
    held = still_ours(
        rescue,
        state=Rescue.State.HELD,
        hold=Rescue.Hold.STEP,
        due_at=None,
        lease_until=None,
        because=because[:1000],
        needs_human=True,
    )
    if held:
        _close_step(step, "failed", because=because, now=now)
    return held


def _end(rescue: Rescue, step: Step, *, state: str, because: str, now: datetime, outcome: str = "") -> bool:
    ended = opening.end(
        rescue,
        state=state,
        outcome=outcome,
        because=f"{step.name}: {because}",
        actor=f"rescue {rescue.pk}",
        now=now,
        needs_human=state == "failed",
        token=rescue.token,
    )
    if ended:
        _close_step(step, "failed" if state == "failed" else "cancelled", because=because, now=now)
        if step.name == "verify":
            Rescue.objects.filter(pk=rescue.pk).update(verified=False)
    return ended


def _after_step(rescue: Rescue, step: Step, *, now: datetime) -> None:
    """What a finished step proves: a verification closes the incidents that were seen before it (invariant 4)."""
    if step.name == "verify":
        Rescue.objects.filter(pk=rescue.pk).update(verified=True)
        ready = queries.step_named(rescue, "ready")
        because = f"verified by rescue {rescue.pk}"
        if ready is not None and ready.progress.get("boot_id"):
            # Whenever it was delivered: what an earlier boot saw is gone, what this boot saw is not proved away.
            _close_incidents(rescue, because=because, before=None, now=now, but_boot=ready.progress["boot_id"])
        else:
            _close_incidents(rescue, because=because, before=step.started_at, now=now)
    elif rescue.origin == Rescue.Origin.MANUAL and step.name in TAKING_BACK and not queries.marked_on(rescue.node):
        because = f"{rescue.requested_by} took the node back: {rescue.reason}".rstrip(": ")
        _close_incidents(rescue, because=because, before=rescue.opened_at, now=now)


def _close_incidents(
    rescue: Rescue, *, because: str, before: datetime | None, now: datetime, but_boot: str = ""
) -> None:
    rows = incident_queries.open_on(rescue.node)
    if but_boot:
        rows = rows.exclude(incident_queries.seen_in(but_boot))
    open_ones = list(rows.values_list("pk", flat=True))
    incidents.close(open_ones, because=because, actor=f"rescue {rescue.pk}", now=now, before=before)


def _draft(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> ledger.Draft:
    return ledger.Draft(
        actor=f"rescue {rescue.pk}",
        verb="guard.refused" if isinstance(outcome, Refused) else f"step.{type(outcome).__name__.lower()}",
        subject=f"step {step.index} {step.name}",
        node=rescue.node.name,
        rescue=rescue.pk,
        at=now,
        data={"because": step.because, "attempt": step.attempts, "state": step.state, **_more(rescue, step, outcome)},
    )


def _more(rescue: Rescue, step: Step, outcome: Outcome) -> dict[str, Any]:
    """What a replay must know of a second round: its steps stand in no earlier entry."""
    if not isinstance(outcome, StartOver) or step.state != Step.State.CANCELLED:
        return {}
    steps = [{"name": one.name, "args": one.args} for one in rescue.steps.order_by("index")]
    plan_hash = Rescue.objects.values_list("plan_hash", flat=True).get(pk=rescue.pk)
    return {"steps": steps, "plan_hash": plan_hash}


def _held(rescue: Rescue, step: Step, *, because: str, now: datetime) -> ledger.Draft:
    return ledger.Draft(
        actor=f"rescue {rescue.pk}",
        verb="rescue.held",
        subject=f"rescue {rescue.pk}",
        node=rescue.node.name,
        rescue=rescue.pk,
        at=now,
        data={"because": because, "step": step.index, "name": step.name},
    )


def _back_off(failures: int) -> float:
    """Seconds until the next try: growing, with jitter so that many rescues do not knock in step."""
    base = BACK_OFF[min(failures, len(BACK_OFF)) - 1]
    return base * random.uniform(0.8, 1.2)
