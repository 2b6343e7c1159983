"""Running: claim a due rescue under a lease, run its step, settle what came of it, go on until there is a wait.

The rows are the queue. Any worker may call ``run`` for any rescue at any time: only the one whose conditional update
claims it does the work, and only under its token can it settle (rules 4 to 6 of the house).
"""

import logging
import random
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from kcover import decision, lifecycle
from kcover import marks as kernel_marks
from kcover_portal import doorbell
from kcover_portal.fleet import services as fleet_services
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import LEASE, AnotherMachine, Context, HeldBack, LeaseLost, TakenBack
from kcover_portal.rescue.actions.outcome import (
    Again,
    Done,
    Failed,
    Given,
    Hold,
    Outcome,
    Overruled,
    Replaced,
    StartOver,
    Wait,
)
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import standbys
from kcover_portal.rescue.services import (
    announcing,
    approving,
    listening,
    opening,
    reconciling,
    replacing,
    starting_over,
)

log = logging.getLogger(__name__)

BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
TOO_MANY_FAILURES = 40  # about half an hour of back-off, then a person is asked
RECONCILED_EVERY = timedelta(seconds=15)
LISTENED_EVERY = timedelta(seconds=10)
LOOK_AGAIN = timedelta(seconds=5)
TAKING_BACK = ("release", "uncordon")


def run(rescue_id: int, *, clock: Callable[[], datetime]) -> None:
    """Takes the rescue as far as it goes now; does nothing if it is not due or somebody else has it."""
    rescue = _claim(rescue_id, now=clock())
    if rescue is None:
        return
    if rescue.hold == Rescue.Hold.STEP:
        _look(rescue, clock=clock)
    else:
        go_on(rescue, clock=clock)


def go_on(rescue: Rescue, *, clock: Callable[[], datetime], first: Context | None = None) -> None:
    """Takes a rescue that this worker has claimed, with an attempt of its step reserved, as far as it goes now.

    ``first``: the context of its first step, where something of it was begun with the claim.
    """
    steps = list(rescue.steps.order_by("index"))
    step = _unfinished(steps)
    if first is not None and (step is None or step.state != Step.State.RUNNING):
        first.drop_begun()
    while step is not None and step.state == Step.State.RUNNING:
        context = first or context_of(rescue, step, clock=clock)
        context.step, first = step, None
        step = _advance(context, steps)


def _look(rescue: Rescue, *, clock: Callable[[], datetime]) -> None:
    """Looks at the node of a held rescue that somebody seems to have uncordoned, and yields to them if it is so.

    Nothing else: the step that it is held at is a person's to retry, whatever the watch showed.
    """
    steps = list(rescue.steps.order_by("index"))
    step = _unfinished(steps)
    assert step is not None  # it is held at one
    context = context_of(rescue, step, clock=clock)
    outcome = _attempt(context, _isolated)
    if isinstance(outcome, Overruled | Replaced):
        if not _settle(context, steps, outcome):
            context.note_answers()
        return
    later = isinstance(outcome, Wait | Again)  # the cluster is away, or nothing may be written: it is looked at again
    state, due = (Rescue.State.WAITING, clock() + LOOK_AGAIN) if later else (Rescue.State.HELD, None)
    with transaction.atomic():
        _still_ours(rescue, state=state, due_at=due, lease_until=None)
        context.note_answers()


def _isolated(context: Context) -> Outcome:
    marking.expect_isolated(context)
    return Hold(context.rescue.because)


def context_of(rescue: Rescue, step: Step, *, clock: Callable[[], datetime]) -> Context:
    """What one run of the step works with, for the worker that has just taken or renewed the lease."""
    return Context(
        rescue=rescue,
        step=step,
        node=rescue.node,
        cluster=rescue.cluster,
        token=rescue.token,
        clock=clock,
        renewed_at=clock(),
    )


def sweep(*, now: datetime) -> None:
    """Wakes workers for everything that is due: the net under every lost message and dead worker."""
    approving.expire(now=now)
    replacing.look(now=now)
    for pk in queries.to_withdraw(now=now):  # first: it keeps a machine from a reboot that nobody wants any more
        doorbell.ring("rescue.withdraw", pk)
    for pk in queries.due(now=now):
        doorbell.ring("rescue.run", pk)
    for pk in incident_queries.to_judge(now=now):
        doorbell.ring("rescue.judge", pk)
    if standbys.left_over().exists():
        doorbell.ring("rescue.tidy_standbys")
    if fleet_services.lead("reconcile", holder=str(uuid.uuid4()), until=now + RECONCILED_EVERY, now=now):
        doorbell.ring("rescue.reconcile")
    if fleet_services.lead("listen", holder=str(uuid.uuid4()), until=now + LISTENED_EVERY, now=now):
        listening.look(now=now)
    fleet_services.expire_commands(now=now)
    fleet_services.beat("sweep", now=now)


def nudge(node: Node, *, now: datetime) -> None:
    """Something about the node changed: a rescue that waits looks at once, and drift is found (invariant 20)."""
    rescue = queries.open_on(node)
    if rescue is not None:
        taken_back = _uncordoned(rescue, node)
        if taken_back and rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL:
            reconciling.let_go(node, now=now)  # nobody needs to answer any more
            return
        states = (Rescue.State.WAITING, Rescue.State.HELD) if taken_back else (Rescue.State.WAITING,)
        rows = Rescue.objects.filter(pk=rescue.pk, state__in=states)
        if rows.exclude(due_at__lte=now).update(state=Rescue.State.RUNNING, due_at=now):
            doorbell.ring("rescue.run", rescue.pk)
        return
    incidents.judge_under(node, now=now)
    marked = queries.marked_on(node)
    if marked is not None and node.known and _uncordoned(marked, node):
        reconciling.let_go(node, now=now)


def _uncordoned(rescue: Rescue, node: Node) -> bool:
    """Whether the rescue cordoned the node and the watch shows it schedulable since."""
    ours, shown = kernel_marks.read(rescue.marks), kernel_marks.read(node.marks)
    # Both: the row may be older than the cordon, and then its own marks do not speak of one.
    if ours is None or shown is None or not node.known or node.unschedulable:
        return False
    return shown.cordon or shown.foreign_cordon


def _claim(rescue_id: int, *, now: datetime) -> Rescue | None:
    """Takes the lease of a rescue that is due and reserves an attempt of its step; ends it if no step is left."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=now)
    due = Rescue.objects.filter(free, pk=rescue_id, state__in=("waiting", "running"), due_at__lte=now)
    with transaction.atomic(), ledger.last():
        if not due.update(state=Rescue.State.RUNNING, token=F("token") + 1, lease_until=now + LEASE):
            return None
        rescue = Rescue.objects.select_related("node__cluster", "cluster").get(pk=rescue_id)
        if queries.is_replaced(rescue):
            replacing.end(rescue, now=now)
            return None
        step = queries.current_step(rescue)
        if step is None:
            _finish(rescue, list(rescue.steps.all()), now=now)
            return None
        if rescue.hold != Rescue.Hold.STEP and not _begin(rescue, step, now=now):
            return None
    return rescue


def _unfinished(steps: Sequence[Step]) -> Step | None:
    return next((step for step in steps if step.state not in lifecycle.FINISHED_STEP), None)


def _begin(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Reserves an attempt of the step; where it still needs a person's yes, holds the rescue instead (False)."""
    start_by = rescue.request.get("startBy")
    unbegun = step.index == 0 and not approving.has_begun(step) and not rescue.marks
    if start_by and unbegun and now > datetime.fromisoformat(start_by):
        because = f"it was not to be started after {start_by}, and could not be before"
        opening.end(rescue, state="cancelled", outcome="expired", because=because, actor="system", now=now)
        return False
    if not approving.granted(rescue, step, now=now):
        # A question that stands goes on standing: looking at it again gives nobody more time.
        stands = rescue.expires_at is not None and rescue.expires_at > now
        until = rescue.expires_at if stands else now + timedelta(seconds=rescue.approval_seconds)
        asked = opening.asks_for_approval(until or now)
        if _still_ours(rescue, lease_until=None, due_at=None, **asked):
            ledger.append(rescue.cluster.name, [_held(rescue, step, because=asked["because"], now=now)])
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
        return False
    if step.state == Step.State.PENDING:
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    step.reserve(now=now)
    step.save(update_fields=["attempts", "started_at", "state"])
    return True


def _advance(context: Context, steps: Sequence[Step]) -> Step | None:
    """Runs the current step once and settles it; returns the step that may follow at once."""
    try:
        outcome = _attempt(context, ACTIONS[context.step.name])
        settled = _settle(context, steps, outcome)
    except LeaseLost as lost:
        log.info("rescue %s: %s", context.rescue.pk, lost)
        context.note_answers()
        return None
    except Exception:
        context.note_answers()
        raise
    if not settled:
        context.note_answers()
        return None
    if not isinstance(outcome, Wait | Again):
        announcing.step(context.rescue, context.step, outcome, now=context.now)
    return _unfinished(steps) if isinstance(outcome, Done) else None


def _attempt(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    """Runs the action; every way in which it can break becomes an outcome."""
    try:
        return _act(context, action)
    except HeldBack as refusal:
        if not context.step.progress and not context.answers:
            context.step.started_at = None  # nothing was begun: what bounds the step's time counts from when it is
        return Wait(refusal.seconds, f"held back: {refusal}")
    except port.NotFound as error:
        return Failed(f"the cluster no longer has it: {error}")
    except port.Refused as error:
        return Failed(f"the cluster refuses, and asking again will not help: {error}")
    except port.KubeError as error:
        return Again(f"the cluster does not answer: {error}", after=getattr(error, "retry_after", None))


def _act(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    try:
        return _act_or_yield(context, action)
    except AnotherMachine as found:
        context.keep_marks(None)  # they went with the machine
        return Replaced(str(found))


def _act_or_yield(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    try:
        return action(context)
    except TakenBack as drift:
        marking.take_back(context, "yield")
        return Overruled(str(drift))


def _settle(context: Context, steps: Sequence[Step], outcome: Outcome) -> bool:
    """Writes down what came of the attempt; False, and nothing at all, if the lease was lost meanwhile.

    What is true on the cluster by now, the step's end and the next step's beginning are one transaction.
    """
    rescue, step, now = context.rescue, context.step, context.now
    with transaction.atomic(), ledger.last():
        if not _write_down(rescue, step, outcome, now=now):
            return False
        context.keep_rows()
        ended = () if isinstance(outcome, Wait) else (_draft(rescue, step, outcome, now=now),)
        ledger.append(rescue.cluster.name, [*context.answers, *ended])
        if isinstance(outcome, Done):
            _after_step(rescue, step, now=now)
            following = _unfinished(steps)
            if following is None:
                _finish(rescue, steps, now=now)
            else:
                _begin(rescue, following, now=now)
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    context.answers = []
    return True


def _write_down(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> bool:
    """Turns an outcome into rows; False, and nothing written, if the lease was lost."""
    match outcome:
        case Done(note):
            if not _still_ours(rescue, lease_until=now + LEASE, hold=""):
                return False
            _close_step(step, "done", because=note, now=now)
            return True
        case Wait(seconds, because):
            hold = Rescue.Hold.EXTERNAL if isinstance(outcome, Given) else Rescue.Hold.NOTHING
            return _put_down(rescue, step, seconds=seconds, because=because, failures=0, now=now, hold=hold)
        case Again(because, after):
            failures = step.failures + 1
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
    rescue: Rescue, step: Step, *, seconds: float, because: str, failures: int, now: datetime, hold: str = ""
) -> bool:
    """Lets the rescue wait until a due date, and gives the lease back."""
    wake = now + timedelta(seconds=seconds)
    fields = {"state": Rescue.State.WAITING, "hold": hold, "because": because[:1000]}
    if not _still_ours(rescue, due_at=wake, lease_until=None, **fields):
        return False
    step.state, step.because, step.failures = Step.State.WAITING, because[:1000], failures
    step.save(update_fields=["state", "because", "failures", "started_at"])
    return True


def _hold(rescue: Rescue, step: Step, *, because: str, now: datetime) -> bool:
    """Stops and asks a person; the rescue stays open and the node isolated."""
    held = _still_ours(
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
        rows = rows.exclude(boot_id=but_boot)
    open_ones = list(rows.values_list("pk", flat=True))
    incidents.close(open_ones, because=because, actor=f"rescue {rescue.pk}", now=now, before=before)


def _finish(rescue: Rescue, steps: Sequence[Step], *, now: datetime) -> None:
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


def _still_ours(rescue: Rescue, **fields: Any) -> bool:
    """Updates the rescue if this worker's token still stands; the row is locked until the transaction ends."""
    ours = Rescue.objects.filter(pk=rescue.pk, token=rescue.token, state=Rescue.State.RUNNING).update(**fields)
    return bool(ours)


def _draft(rescue: Rescue, step: Step, outcome: Outcome, *, now: datetime) -> ledger.Draft:
    return ledger.Draft(
        actor=f"rescue {rescue.pk}",
        verb=f"step.{type(outcome).__name__.lower()}",
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
