"""Running: claim a due rescue under a lease, run its step, settle what came of it, go on until there is a wait.

The rows are the queue. Any worker may call ``run`` for any rescue at any time: only the one whose conditional update
claims it does the work, and only under its token can it settle (rules 4 to 6 of the house).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from kcover import marks as kernel_marks
from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import guarding, marking, turns
from kcover_portal.rescue.actions.context import AnotherMachine, Context, HeldBack, LeaseLost, TakenBack
from kcover_portal.rescue.actions.outcome import (
    Again,
    Ask,
    Done,
    Failed,
    Hold,
    Outcome,
    Overruled,
    Refused,
    Replaced,
    Wait,
)
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import (
    announcing,
    reconciling,
    replacing,
    settling,
)

log = logging.getLogger(__name__)

LOOK_AGAIN = timedelta(seconds=5)


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
    step = settling.unfinished(steps)
    if step is None or step.state != Step.State.RUNNING:  # somebody ended the rescue since
        if first is not None:
            first.drop_begun()
        turns.step_aside(rescue, now=clock())
    while step is not None and step.state == Step.State.RUNNING:
        context = first or context_of(rescue, step, clock=clock)
        context.step, first = step, None
        step = _advance(context, steps)


def _look(rescue: Rescue, *, clock: Callable[[], datetime]) -> None:
    """Looks at the node of a held rescue that somebody seems to have uncordoned, and yields to them if it is so.

    Nothing else: the step that it is held at is a person's to retry, whatever the watch showed.
    """
    steps = list(rescue.steps.order_by("index"))
    step = settling.unfinished(steps)
    assert step is not None  # it is held at one
    context = context_of(rescue, step, clock=clock)
    with _at_work(context):
        _settle_look(context, steps, _attempt(context, _isolated))


def _settle_look(context: Context, steps: Sequence[Step], outcome: Outcome) -> None:
    rescue = context.rescue
    if isinstance(outcome, Overruled | Replaced):
        if not settling.settle(context, steps, outcome):
            _lost(context)
        return
    later = isinstance(outcome, Wait | Again)  # the cluster is away, or nothing may be written: it is looked at again
    state, due = (Rescue.State.WAITING, context.now + LOOK_AGAIN) if later else (Rescue.State.HELD, None)
    with transaction.atomic():
        ours = settling.still_ours(rescue, state=state, due_at=due, lease_until=None)
        context.note_answers()
    if not ours:
        turns.step_aside(rescue, now=context.now)


@contextmanager
def _at_work(context: Context) -> Iterator[None]:
    """Whatever cuts the work short, what the cluster answered is written down, and no call is under way any more."""
    try:
        yield
    except LeaseLost as lost:
        log.info("rescue %s: %s", context.rescue.pk, lost)
        _lost(context)
    except Exception:
        _lost(context)
        raise


def _lost(context: Context) -> None:
    """The rescue may be no longer this worker's: what was left to its call is given back. Its lease is not."""
    context.note_answers()
    turns.step_aside(context.rescue, now=context.now)


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
        if not due.update(state=Rescue.State.RUNNING, token=F("token") + 1, lease_until=now + turns.LEASE):
            return None
        rescue = Rescue.objects.select_related("node__cluster", "cluster").get(pk=rescue_id)
        if turns.runs(rescue.node, now=now):
            transaction.set_rollback(True)  # it is still due: whoever gives the turn back rings for it
            return None
        if queries.is_replaced(rescue):
            replacing.end(rescue, now=now, token=rescue.token)
            return None
        step = queries.current_step(rescue)
        if step is None:
            settling.finish(rescue, list(rescue.steps.all()), now=now)
            return None
        looks = rescue.hold == Rescue.Hold.STEP
        if not looks and step.state == Step.State.RUNNING and settling.gives_up(rescue, step, now=now):
            return None
        if not looks and not settling.begin(rescue, step, now=now):
            return None
    return rescue


def _advance(context: Context, steps: Sequence[Step]) -> Step | None:
    """Runs the current step once and settles it; returns the step that may follow at once."""
    with _at_work(context):
        outcome = _attempt(context, ACTIONS[context.step.name])
        if not settling.settle(context, steps, outcome):
            _lost(context)
            return None
        if not isinstance(outcome, Wait | Again):
            announcing.step(context.rescue, context.step, outcome, now=context.now)
        return settling.unfinished(steps) if isinstance(outcome, Done) else None


def _attempt(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    """Runs the action; every way in which it can break becomes an outcome."""
    try:
        return _act(context, action)
    except HeldBack as refusal:
        if not context.step.progress and not context.answers:
            context.step.started_at = None  # nothing was begun: what bounds the step's time counts from when it is
        held = Ask if isinstance(refusal, guarding.Unasked) else Refused
        return held(refusal.seconds, f"held back: {refusal}")
    except port.NotFound as error:
        return Failed(f"the cluster no longer has it: {error}")
    except port.Refused as error:
        return Failed(f"the cluster refuses, and asking again will not help: {error}")
    except port.KubeError as error:
        not_reached = isinstance(error, port.Unavailable) and not error.ambiguous
        after = getattr(error, "retry_after", None)
        return Again(f"the cluster does not answer: {error}", after=after, counts=not not_reached)


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
