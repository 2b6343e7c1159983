"""Write the outcome of a step into the rows of its rescue, under the token of the lease."""

import random
from datetime import datetime, timedelta
from typing import Any

from kcover import reasons
from kcover.actions import JobsProgress
from kcover.actions.webhook import Progress as WebhookProgress
from kcover.reasons import Reason
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.incidents.queries import seen
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.lifecycle import create, replaced_machine, second_round
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import device_isolations
from kcover_portal.rescue.step import own_rows
from kcover_portal.rescue.step.node_lock import LEASE_TIME
from kcover_portal.rescue.step.outcomes import (
    Done,
    Failed,
    HandedOver,
    Hold,
    NeedsApproval,
    Outcome,
    Overruled,
    Poll,
    Postponed,
    Replaced,
    Retry,
    StartOver,
    Wait,
)
from kcover_portal.runtime.services import claims

POLL_SHARE = 0.1  # of the time that a step has waited
MAX_POLL_SECONDS = 10.0
MAX_FAILURES = 40  # about half an hour of back-off, then a person is asked
WAITS_FOR: dict[type[Outcome], Rescue.Hold] = {HandedOver: Rescue.Hold.EXTERNAL, Postponed: Rescue.Hold.GUARD}


def still_ours(rescue: Rescue, **fields: Any) -> bool:
    """Updates the rescue if this worker's token is still valid; the row is then locked until the transaction ends."""
    return own_rows.update_running(rescue.pk, rescue.token, **fields)


def write(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> bool:
    """Writes an outcome to the rows. Returns False, with nothing written, if the lease was lost."""
    match outcome:
        case Done(because):
            return _done(rescue, step, because=because, now=now)
        case NeedsApproval(seconds):  # from here on the step is gated, as if it had been planned with a gate
            return _ask(rescue, step, seconds=seconds, now=now)
        case Wait(_, because):
            waits_for = WAITS_FOR.get(type(outcome), Rescue.Hold.NOTHING)
            seconds = _seconds_of(outcome, rescue, step, now=now)
            return _pause(rescue, step, seconds=seconds, because=because, failures=0, now=now, hold=waits_for)
        case Retry(because, after, counts):
            return _try_again(rescue, step, because=because, after=after, counts=counts, now=now)
        case Hold(because):
            return _held(rescue, step, because=because, now=now)
        case StartOver(because):
            return second_round.start_over(rescue, step, because=because, now=now) or _end(
                rescue, step, state="failed", because=because, now=now
            )
        case Failed(because, named):
            return _end(rescue, step, state="failed", outcome=named, because=because, now=now)
        case Replaced(because):
            return _replaced(rescue, step, because=because, now=now)
        case Overruled(because):
            return _overruled(rescue, step, because=because, now=now)


def _called_back(rescue: Rescue, step: Step) -> bool:
    """Returns whether a callback was stored since the step looked; the step then keeps it.

    A callback takes the lock of the rescue's row as well, so none can come between this and the end of the transaction.
    """
    Rescue.objects.select_for_update(of=("self",), no_key=True).only("pk").get(pk=rescue.pk)
    step.refresh_from_db(fields=["progress"])
    return step.progress_as(WebhookProgress).callback is not None


def _held(rescue: Rescue, step: Step, *, because: Reason, now: datetime) -> bool:
    """Stops and asks a person, unless the other system has called back since the step looked."""
    waits = rescue.hold == Rescue.Hold.EXTERNAL and step.progress_as(WebhookProgress).callback is None
    if waits and _called_back(rescue, step):
        return _pause(rescue, step, seconds=0.0, because=because, failures=0, now=now, hold=Rescue.Hold.EXTERNAL)
    return hold(rescue, step, because=because, now=now)


def _done(rescue: Rescue, step: Step, *, because: Reason, now: datetime) -> bool:
    if not still_ours(rescue, lease_until=now + LEASE_TIME, hold=""):
        return False
    _close_step(step, "done", because=because, now=now)
    return True


def _ask(rescue: Rescue, step: Step, *, seconds: float, now: datetime) -> bool:
    if approvals.has_begun(step):
        step.progress = step.with_progress(gated=True)
    asks = create.awaiting_approval(now + timedelta(seconds=rescue.approval_seconds))
    because = reasons.from_json(asks.pop("because"))
    gate = {"gate": step.index, "due_at": None, **asks}
    return _pause(rescue, step, seconds=seconds, because=because, failures=0, now=now, **gate)


def _try_again(
    rescue: Rescue, step: Step, *, because: Reason, after: float | None, counts: bool, now: datetime
) -> bool:
    failures = step.failures + 1 if counts else max(step.failures, min(step.failures + 1, len(claims.RETRY_SECONDS)))
    if failures >= MAX_FAILURES:
        return hold(rescue, step, because=reasons.of("tried_often", count=failures, why=because), now=now)
    seconds = max(after or 0.0, _back_off(failures))
    return _pause(rescue, step, seconds=seconds, because=because, failures=failures, now=now)


def _replaced(rescue: Rescue, step: Step, *, because: Reason, now: datetime) -> bool:
    if not _end(rescue, step, state="cancelled", outcome=replaced_machine.OUTCOME, because=because, now=now):
        return False
    replaced_machine.end_faults(rescue, because=because, now=now)
    return True


def _overruled(rescue: Rescue, step: Step, *, because: Reason, now: datetime) -> bool:
    if not _end(rescue, step, state="cancelled", because=because, now=now):
        return False
    # A person who took the node back vouches for it: faults seen until now do not start a second rescue.
    close_incidents(rescue, because=because, before=now, now=now)
    return True


def _close_step(step: Step, state: str, *, because: Reason, now: datetime) -> None:
    step.state, step.because, step.finished_at, step.failures = state, because.to_json(), now, 0
    own_rows.save_step(step, "state", "because", "finished_at", "failures", "progress")


def _seconds_of(outcome: Wait, rescue: Rescue, step: Step, *, now: datetime) -> float:
    """The seconds until the next check of a waiting step.

    A reboot takes minutes. With a check every second, a thousand nodes that reboot at once would keep ten cores busy.
    """
    if isinstance(outcome, HandedOver) and _called_back(rescue, step):
        return 0.0  # the step reads the callback at once
    if not isinstance(outcome, Poll) or step.started_at is None:
        return outcome.seconds
    waited = (now - step.started_at).total_seconds()
    return max(outcome.seconds, min(waited * POLL_SHARE, MAX_POLL_SECONDS))


def _pause(
    rescue: Rescue, step: Step, *, seconds: float, because: Reason, failures: int, now: datetime, **also: Any
) -> bool:
    """Lets the rescue wait until a due date, or as ``also`` says, and releases the lease."""
    wake = now + timedelta(seconds=seconds)
    fields = {"state": Rescue.State.WAITING, "hold": "", "because": because.to_json(), "due_at": wake, **also}
    if not still_ours(rescue, lease_until=None, **fields):
        return False
    step.state, step.because, step.failures = Step.State.WAITING, because.to_json(), failures
    own_rows.save_step(step, "state", "because", "failures", "started_at", "progress")
    return True


def hold(rescue: Rescue, step: Step, *, because: Reason, now: datetime) -> bool:
    """Stops and asks a person; the rescue stays open and the node isolated."""
    held = still_ours(
        rescue,
        state=Rescue.State.HELD,
        hold=Rescue.Hold.STEP,
        due_at=None,
        lease_until=None,
        because=because.to_json(),
        needs_human=True,
    )
    if held:
        _close_step(step, "failed", because=because, now=now)
    return held


def _end(rescue: Rescue, step: Step, *, state: str, because: Reason, now: datetime, outcome: str = "") -> bool:
    ended = create.end(
        rescue,
        state=state,
        outcome=outcome,
        because=reasons.of("step_ended", step=step.name, why=because),
        actor=f"rescue {rescue.pk}",
        now=now,
        needs_human=state == "failed",
        token=rescue.token,
    )
    if ended:
        if step.spec.leaves_jobs:  # the end has just scheduled their deletion in the step's row
            stored = Step.objects.only("progress", "name").get(pk=step.pk).progress_as(JobsProgress)
            step.progress = step.with_progress(withdrawal=stored.withdrawal)
        _close_step(step, "failed" if state == "failed" else "cancelled", because=because, now=now)
        if step.spec.proves:
            own_rows.update_rescue(rescue.pk, verified=False)
    return ended


def close_incidents(rescue: Rescue, *, because: Reason, before: datetime | None, now: datetime) -> None:
    """Closes the faults of the node that were last seen before, because someone took the node back.

    Those of GPUs that stay isolated are left open.
    """
    rows = device_isolations.answered(rescue, incident_queries.open_on(rescue.node))
    open_ones = list(rows.values_list("pk", flat=True))
    incidents.close(open_ones, because=because, actor=f"rescue {rescue.pk}", now=now, before=before)


def close_verified(
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


def _back_off(failures: int) -> float:
    """Seconds until the next try: growing, with jitter so that many rescues do not retry at the same moment."""
    return claims.retry_seconds(failures) * random.uniform(0.8, 1.2)  # nosec B311
