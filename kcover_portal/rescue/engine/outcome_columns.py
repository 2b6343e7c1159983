"""The changes of a rescue's rows that the outcome of its step asks for. ``settle`` writes them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from kcover import reasons
from kcover.actions.webhook import Progress as WebhookProgress
from kcover.reasons import Reason
from kcover.values import back_off
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.lifecycle import create, replaced_machine, second_round
from kcover_portal.rescue.lifecycle.create import Ending
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import lease
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

POLL_SHARE = 0.1  # of the time that a step has waited
MAX_POLL_SECONDS = 10.0
CHECK_AGAIN_AFTER = timedelta(seconds=5)  # the node of a held rescue, if the cluster was away or nothing may be written
MAX_FAILURES = 40  # about half an hour of back-off, then a person is asked
WAITS_FOR: Final[Mapping[type[Outcome], Rescue.Hold]] = {
    HandedOver: Rescue.Hold.EXTERNAL,
    Postponed: Rescue.Hold.GUARD,
}
Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an outcome changes. ``rescue`` and ``step``: columns; ``ending``: of the rescue, None if it stays open.

    ``again``: the plan with a second round of its steps.
    """

    step: Columns
    rescue: Columns = field(default_factory=dict)
    ending: Ending | None = None
    again: second_round.Plan | None = None


def of(rescue: Rescue, step: Step, outcome: Outcome, *, steps: Sequence[Step], now: datetime) -> Change:
    """The change by one outcome. The caller adds the end of a rescue whose last step is done.

    ``steps``: all of the plan, before the outcome. Part of the transaction that writes it.
    """
    match outcome:
        case Done(because):
            proved = {"verified": True} if step.spec.proves else {}
            kept = {"lease_until": now + lease.TIME, "hold": "", **proved}
            return Change(step=_closed("done", because, now=now), rescue=kept)
        case NeedsApproval():  # from here on the step is gated, as if it had been planned with a gate
            return _ask(rescue, step, now=now)
        case Wait(_, because):
            waits_for = WAITS_FOR.get(type(outcome), Rescue.Hold.NOTHING)
            return _pause(because, seconds=_seconds_of(outcome, rescue, step, now=now), now=now, hold=waits_for)
        case Retry(because, after, counts):
            return _try_again(step, because, after=after, counts=counts, now=now)
        case Hold(because):
            return _hold_or_read_callback(rescue, step, because, now=now)
        case StartOver(because):
            return _start_over(rescue, step, because, steps=steps, now=now)
        case Failed(because, named):
            return _end(step, "failed", because, outcome=named, now=now)
        case Replaced(because):
            return _end(step, "cancelled", because, outcome=replaced_machine.OUTCOME, now=now)
        case Overruled(because, left):
            return _end(step, "failed" if left else "cancelled", because, now=now)


def of_check(outcome: Outcome, *, now: datetime) -> Columns:
    """The columns of a rescue that stays held after a check of its node."""
    if isinstance(outcome, Wait | Retry):
        return {"state": Rescue.State.WAITING, "due_at": now + CHECK_AGAIN_AFTER, "lease_until": None}
    return {"state": Rescue.State.HELD, "due_at": None, "lease_until": None}


def _called_back(rescue: Rescue, step: Step) -> bool:
    """Returns whether a callback was stored since the step looked; the step then keeps it.

    A callback takes the lock of the rescue's row as well, so none can come between this and the end of the transaction.
    """
    Rescue.objects.select_for_update(of=("self",), no_key=True).only("pk").get(pk=rescue.pk)
    step.refresh_from_db(fields=["progress"])
    return step.progress_as(WebhookProgress).callback is not None


def _hold_or_read_callback(rescue: Rescue, step: Step, because: Reason, *, now: datetime) -> Change:
    """Stops and asks a person, unless the other system has called back since the step looked."""
    waits = rescue.hold == Rescue.Hold.EXTERNAL and step.progress_as(WebhookProgress).callback is None
    if waits and _called_back(rescue, step):
        return _pause(because, seconds=0.0, now=now, hold=Rescue.Hold.EXTERNAL)
    return _hold(because, now=now)


def _ask(rescue: Rescue, step: Step, *, now: datetime) -> Change:
    asks = create.awaiting_approval(now + timedelta(seconds=rescue.approval_seconds))
    gated = {"progress": step.with_progress(gated=True)} if approvals.has_begun(step) else {}
    waiting = {"state": Step.State.WAITING, "because": asks["because"], "failures": 0, **gated}
    return Change(step=waiting, rescue={"gate": step.index, **asks})


def _try_again(step: Step, because: Reason, *, after: float | None, counts: bool, now: datetime) -> Change:
    failures = step.failures + 1 if counts else max(step.failures, min(step.failures + 1, len(back_off.RETRY_SECONDS)))
    if failures >= MAX_FAILURES:
        return _hold(reasons.of("tried_often", count=failures, why=because), now=now)
    return _pause(because, seconds=max(after or 0.0, _back_off(failures)), failures=failures, now=now)


def _start_over(rescue: Rescue, step: Step, because: Reason, *, steps: Sequence[Step], now: datetime) -> Change:
    plan = second_round.of(rescue, step, steps, because=because, now=now)
    if plan is None:
        return _end(step, "failed", because, now=now)
    return Change(
        step={"state": Step.State.CANCELLED, "because": plan.because, "finished_at": now},
        rescue={
            "due_at": now,
            "lease_until": None,
            "because": plan.because,
            "plan_hash": plan.plan_hash,
            "gate": None if rescue.gate is None else plan.again[0].index,
            "verified": False,
        },
        again=plan,
    )


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
    because: Reason, *, seconds: float, now: datetime, failures: int = 0, hold: Rescue.Hold = Rescue.Hold.NOTHING
) -> Change:
    """The rescue waits until a due date."""
    why = because.to_json()
    return Change(
        step={"state": Step.State.WAITING, "because": why, "failures": failures},
        rescue={
            "state": Rescue.State.WAITING,
            "hold": hold,
            "because": why,
            "due_at": now + timedelta(seconds=seconds),
            "lease_until": None,
        },
    )


def _hold(because: Reason, *, now: datetime) -> Change:
    """A person is asked; the rescue stays open and the node isolated."""
    return Change(
        step=_closed("failed", because, now=now),
        rescue={
            "state": Rescue.State.HELD,
            "hold": Rescue.Hold.STEP,
            "due_at": None,
            "lease_until": None,
            "because": because.to_json(),
            "needs_human": True,
        },
    )


def _end(step: Step, state: str, because: Reason, *, outcome: str = "", now: datetime) -> Change:
    return Change(
        step=_closed(state, because, now=now),
        rescue={"verified": False} if step.spec.proves else {},
        ending=Ending(
            state=state,
            outcome=outcome,
            because=reasons.of("step_ended", step=step.name, why=because),
            needs_human=state == "failed",
        ),
    )


def _closed(state: str, because: Reason, *, now: datetime) -> dict[str, Any]:
    """The columns of a finished step."""
    return {"state": state, "because": because.to_json(), "finished_at": now, "failures": 0}


def _back_off(failures: int) -> float:
    """Seconds until the next try: growing, with jitter so that many rescues do not retry at the same moment."""
    return back_off.retry_seconds(failures) * random.uniform(0.8, 1.2)  # nosec B311
