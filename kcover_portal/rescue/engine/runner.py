"""Run rescues: claim a due rescue under a lease, run its step, settle the outcome, continue until there is a wait.

The rows are the queue. Any worker may call ``run`` for any rescue at any time. Only the worker whose conditional update
claims the rescue does the work, and only under its token can it settle (architecture, rules 4 to 6).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover_portal import tracing
from kcover_portal.config import log_context
from kcover_portal.fleet.services import node_events
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.engine import kube_events, next_step, outcome_columns, settle
from kcover_portal.rescue.lifecycle import create, replaced_machine
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import traces
from kcover_portal.rescue.step import errors, node_lock, own_rows, recheck_guards
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.errors import AnotherMachine, LeaseLost, TakenBack
from kcover_portal.rescue.step.marks import cordons, node_marks
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
    Wait,
)

log = logging.getLogger(__name__)

Begun = tuple[Context, list[Step]]  # a claimed rescue: the context of its current step, and all steps of its plan


def run(rescue_id: int, *, clock: Callable[[], datetime]) -> None:
    """Takes the rescue as far as possible now; does nothing if it is not due or another worker has it."""
    claimed = _claim(rescue_id, clock=clock)
    if claimed is None:
        return
    context, steps = claimed
    if context.rescue.hold == Rescue.Hold.STEP:
        check_held_node(context, steps)
    else:
        go_on(context, steps)


def go_on(context: Context, steps: Sequence[Step], made: Outcome | Exception | None = None) -> None:
    """Takes a rescue that this worker has claimed, with an attempt of its step reserved, as far as possible now.

    ``made``: what came of the attempt, if the caller has made it; an error is raised. If someone has ended the rescue
    since, its first write raises LeaseLost, or its outcome is not settled.
    """
    step = _advance(context, steps, made)
    while step is not None and step.state == Step.State.RUNNING:
        context = context_of(context.rescue, step, steps, clock=context.clock)
        step = _advance(context, steps)


def _advance(context: Context, steps: Sequence[Step], made: Outcome | Exception | None = None) -> Step | None:
    """Runs the current step once and settles it; returns the step that may follow at once."""
    with _recording_answers(context):
        outcome = made if made is not None else attempt(context, ACTIONS[context.step.name])
        if isinstance(outcome, Exception):
            raise outcome
        settled = settle.settle([(context, steps, outcome)])
        if not settled:
            release_node(context)
            return None
        [(_, _, outcome)] = settled
        if not isinstance(outcome, Wait | Retry):
            event = kube_events.of_step(context.rescue, context.step, outcome, now=context.now)
            node_events.write(context.cluster, [event])
        return next_step.unfinished(steps) if isinstance(outcome, Done) else None


def check_held_node(context: Context, steps: Sequence[Step]) -> None:
    """Checks the node of a held rescue that someone seems to have uncordoned, and lets the rescue end if so.

    It does nothing else: the step at which the rescue is held is for a person to retry, whatever the watch showed.
    """
    with _recording_answers(context):
        if not settle.settle_check(context, steps, attempt(context, _isolated)):
            release_node(context)


@contextmanager
def _recording_answers(context: Context) -> Iterator[None]:
    """Records the cluster's answers even if the work is cut short; no call is under way afterwards."""
    with log_context.bound(rescue=context.rescue.pk, node=context.node.name, cluster=context.cluster.name):
        try:
            yield
        except LeaseLost as lost:
            log.info("rescue %s: %s", context.rescue.pk, lost)
            release_node(context)
        except Exception:
            release_node(context)
            raise


def release_node(context: Context) -> None:
    """Releases the node's lock of a rescue that may no longer be this worker's, but not the lease."""
    context.note_answers()
    node_lock.release(context.rescue, now=context.now)


def _isolated(context: Context) -> Outcome:
    node_marks.expect_isolated(context)
    return Hold(reasons.from_json(context.rescue.because))


def context_of(rescue: Rescue, step: Step, steps: Sequence[Step], *, clock: Callable[[], datetime]) -> Context:
    """The context of one run of the step, for the worker that has just taken or renewed the lease."""
    return Context(
        rescue=rescue,
        step=step,
        steps=steps,
        node=rescue.node,
        cluster=rescue.cluster,
        token=rescue.token,
        clock=clock,
        renewed_at=clock(),
    )


def _claim(rescue_id: int, *, clock: Callable[[], datetime]) -> Begun | None:
    """Takes the lease of a rescue that is due and reserves an attempt of its step; ends it if no step is left."""
    now = clock()
    with transaction.atomic(), ledger.last():
        rescue = own_rows.CLAIMS.take(rescue_id, now=now, state=Rescue.State.RUNNING)
        if rescue is None:
            return None
        if node_lock.is_locked(rescue.node, now=now):
            transaction.set_rollback(True)  # still due: whoever releases the lock rings for it
            return None
        if queries.is_replaced(rescue):
            replaced_machine.end(rescue, now=now, token=rescue.token)
            return None
        steps = queries.steps_of(rescue)
        step = next_step.unfinished(steps)
        if step is None:
            ending = next_step.ending_of(rescue, steps)
            create.end(rescue, ending, actor=f"rescue {rescue.pk}", now=now, token=rescue.token)
            return None
        context = context_of(rescue, step, steps, clock=clock)
        if rescue.hold == Rescue.Hold.STEP:
            return context, steps
        if step.state == Step.State.RUNNING and _gives_up(context, steps):
            return None
        if not next_step.begin(rescue, step, now=now):
            return None
    return context, steps


def _gives_up(context: Context, steps: Sequence[Step]) -> bool:
    """Counts an attempt without an outcome: its worker died, or the step raised. Returns True if a person is asked now.

    Part of the transaction that has claimed the rescue.
    """
    step = context.step
    step.failures += 1
    if step.failures < outcome_columns.MAX_FAILURES:
        own_rows.save_step(step, "failures")
        return False
    settle.settle([(context, steps, Hold(reasons.of("no_outcome", count=step.failures)))])
    return True


def attempt(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    """Runs the action; every error that it can raise becomes an outcome."""
    try:
        outcome = _traced(context, action)
    except Exception:  # not BaseException: what kills a worker leaves no time to note anything
        context.note_not_made(reasons.of("call_not_tried"))
        raise
    context.note_not_made(reasons.of("call_not_tried"))
    return outcome


def _traced(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    step, subject = context.step, traces.subject_of(context.rescue)
    if subject is None:
        return _attempt(context, action)
    where = {"cluster": context.cluster.name, "node": context.node.name}
    with tracing.span(
        subject, f"step {step.name}", rescue=context.rescue.pk, step=step.index, attempt=step.attempts, **where
    ) as span:
        outcome = _attempt(context, action)
        span.set(outcome=type(outcome).__name__)
    return outcome


def _attempt(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    try:
        return _act(context, action)
    except HeldBack as refusal:
        if not context.step.progress and not context.answers:
            context.step.started_at = None  # nothing was begun, so the step's time counts from its actual start
        held = NeedsApproval if isinstance(refusal, recheck_guards.ApprovalNeeded) else Postponed
        return held(refusal.seconds, refusal.reason)
    except port.NotFound as error:
        return Failed(errors.reason_of(error))
    except port.RefusedByServer as error:
        return Failed(errors.reason_of(error))
    except port.KubeError as error:
        not_reached = isinstance(error, port.Unavailable) and not error.ambiguous
        after = getattr(error, "retry_after", None)
        return Retry(errors.reason_of(error), after=after, counts=not not_reached)


def _act(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    try:
        return _act_or_yield(context, action)
    except AnotherMachine as found:
        context.keep_marks(None)  # they are gone with the machine
        return Replaced(found.reason)


def _act_or_yield(context: Context, action: Callable[[Context], Outcome]) -> Outcome:
    try:
        return action(context)
    except TakenBack as drift:
        if cordons.keeps_more(context):
            return Overruled(reasons.both(drift.reason, cordons.yield_only(context, audit.Call.YIELD)), left=True)
        ended = node_marks.take_back(context, audit.Call.YIELD)
        left = isinstance(ended, Failed)
        return Overruled(reasons.both(drift.reason, ended.reason) if left else drift.reason, left=left)
