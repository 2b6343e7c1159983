"""Run the rescues that one transaction has opened: the first calls side by side, their outcomes settled together.

Each call still has its own lease, its entry in the ledger before it, and a check right before it. What does not fit
into the common case (the call succeeded, and nothing else happened) is settled by the runner, one by one.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime

from django.db import connection, transaction

from kcover import audit
from kcover_portal import doorbell
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.engine import kube_events, runner, settle
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import claims
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 8  # calls of one batch, checked by one statement right before they are made


def run(opened: Sequence[runner.Begun], *, clock: Callable[[], datetime], calls: Executor | None = None) -> None:
    """Runs the rescues that the caller has claimed with their opening. ``calls``: makes the calls; None: this thread.

    Raises the last error, after all rescues were run.
    """
    claimed = [(context, steps) for context, steps in opened if context.rescue.lease_until is not None]
    if len(claimed) == 1:
        runner.go_on(claimed[0][0].rescue, clock=clock, first=claimed[0])
        return
    error: Exception | None = None
    attempts = list(_attempts(claimed, calls))
    together = [attempt for attempt in attempts if _is_plain(attempt[0], attempt[2])]
    if together:
        error = _settle_together(together, calls)
    for context, steps, outcome in attempts:
        if not _is_plain(context, outcome):
            try:
                runner.go_on_after(context, steps, outcome, clock=clock)
            except Exception as raised:
                log.exception("rescue %s", context.rescue.pk)
                error = raised
    if error is not None:
        raise error


Attempt = tuple[Context, list[Step], Outcome | Exception]


def _attempts(claimed: Sequence[runner.Begun], calls: Executor | None) -> Iterable[Attempt]:
    """Makes the first call of each rescue. ``calls``: in waves, each after one check of all its claims."""
    if calls is None:  # one after the other, each with its own check
        yield from ((context, steps, _attempt(context)) for context, steps in claimed)
        return
    for start in range(0, len(claimed), CALLS_AT_ONCE):
        wave = claimed[start : start + CALLS_AT_ONCE]
        checked = claims.check([context.claim for context, _ in wave], now=wave[0][0].now)
        for context, _ in wave:
            context.checked = checked[context.claim]
        free = [(context, steps) for context, steps in wave if checked[context.claim].error is None]
        made = calls.map(_attempt_in_thread, [context for context, _ in free])
        for (context, steps), outcome in zip(free, made, strict=True):
            yield context, steps, outcome
        for context, steps in wave:
            if checked[context.claim].error is not None:  # it writes to the database, in this thread
                yield context, steps, _attempt(context)


def _attempt(context: Context) -> Outcome | Exception:
    try:
        return runner.attempt(context, ACTIONS[context.step.name])
    except Exception as error:
        return error


def _attempt_in_thread(context: Context) -> Outcome | Exception:
    try:
        return _attempt(context)
    finally:
        connection.close()  # opened only by the few attempts that had to write


def _is_plain(context: Context, outcome: Outcome | Exception) -> bool:
    """Returns whether the attempt isolated the node and asked nobody for anything that would have to be withdrawn."""
    step = context.step
    plain = step.spec.isolates and not step.takes_away and not step.spec.leaves_jobs and not step.spec.proves
    return isinstance(outcome, Done) and plain and context.rescue.origin != Rescue.Origin.MANUAL


def _settle_together(attempts: Sequence[Attempt], calls: Executor | None) -> Exception | None:
    """Settles finished first steps in one transaction, and writes their Events. Returns the error, if it failed.

    The rescues that have more steps are handed to the workers.
    """
    try:
        settled = _settle(attempts)
    except Exception as error:
        log.exception("%d rescues could not be settled together", len(attempts))
        for context, _, _ in attempts:
            runner.release_node(context)
        return error
    drafts = [
        kube_events.of_step(context.rescue, context.step, outcome, now=context.now)
        for context, _, outcome in settled
        if not isinstance(outcome, Exception)
    ]
    kube_events.write(attempts[0][0].cluster, drafts, calls=calls)
    return None


def _settle(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Writes the ends of the steps. Returns the attempts whose rescues were still this worker's."""
    cluster, now = attempts[0][0].cluster, attempts[0][0].now
    with transaction.atomic(), ledger.last():
        ours = _lock_ours([context for context, _, _ in attempts])
        settled = [attempt for attempt in attempts if attempt[0].rescue.pk in ours]
        for context, _, outcome in settled:
            assert isinstance(outcome, Done)
            step = context.step
            step.state, step.because, step.finished_at, step.failures = "done", outcome.reason.to_json(), now, 0
        _write_steps([context.step for context, _, _ in settled], now=now)
        _write_marks([context for context, _, _ in settled])
        following = [context.rescue for context, steps, _ in settled if settle.unfinished(steps) is not None]
        Rescue.objects.filter(pk__in=[rescue.pk for rescue in following]).update(lease_until=None, hold="")
        ended = [(context, steps) for context, steps, _ in settled if settle.unfinished(steps) is None]
        endings = {context.rescue.pk: settle.ending_of(context.rescue, steps) for context, steps in ended}
        _end([context.rescue for context, _ in ended], endings, now=now)
        drafts: list[ledger.Draft] = []
        for context, _, outcome in settled:
            assert isinstance(outcome, Done)
            drafts += [*context.answers, settle.settled_draft(context.rescue, context.step, outcome, now=now)]
            ending = endings.get(context.rescue.pk)
            drafts += [_ended(context, ending)] if ending is not None else []
            doorbell.publish("rescue", context.rescue.pk, cluster=cluster.name)
        ledger.append(cluster.name, drafts)
        for rescue in following:
            doorbell.ring("rescue.run", rescue.pk)
    for context, _, _ in attempts:
        if context.rescue.pk in ours:
            context.answers, context.marks_changed = [], False
        else:
            runner.release_node(context)
    return settled


def _lock_ours(contexts: Sequence[Context]) -> set[int]:
    """Locks the rescues whose leases are still this worker's; returns their keys."""
    rows = Rescue.objects.select_for_update(no_key=True).filter(pk__in=[context.rescue.pk for context in contexts])
    tokens = dict(rows.filter(state=Rescue.State.RUNNING).order_by("pk").values_list("pk", "token"))
    return {context.rescue.pk for context in contexts if tokens.get(context.rescue.pk) == context.token}


def _write_steps(steps: Sequence[Step], *, now: datetime) -> None:
    """Writes the ends of finished steps, those with the same reason in one statement."""
    alike: dict[str, list[Step]] = {}
    for step in steps:
        alike.setdefault(json.dumps(step.because), []).append(step)
    for equal in alike.values():
        rows = Step.objects.filter(pk__in=[step.pk for step in equal])
        rows.update(state=Step.State.DONE, because=equal[0].because, finished_at=now, failures=0)


def _write_marks(contexts: Sequence[Context]) -> None:
    """Writes the marks of several nodes, as ``Context.keep_rows`` does for one."""
    changed = [context for context in contexts if context.marks_changed]
    if not changed:
        return
    Rescue.objects.bulk_update([context.rescue for context in changed], ["marks"])
    others = Rescue.objects.filter(node__in=[context.node.pk for context in changed]).exclude(marks={})
    others.exclude(pk__in=[context.rescue.pk for context in changed]).update(marks={})


def _end(rescues: Sequence[Rescue], endings: Mapping[int, settle.Ending], *, now: datetime) -> None:
    """Closes rescues whose steps are finished, as ``create.end`` does for one. Nothing is left to be withdrawn."""
    for ending in set(endings.values()):
        rows = Rescue.objects.filter(pk__in=[rescue.pk for rescue in rescues if endings[rescue.pk] == ending])
        rows.update(**create.ended(ending.outcome, ending.because, needs_human=ending.needs_human, now=now))


def _ended(context: Context, ending: settle.Ending) -> ledger.Draft:
    rescue = context.rescue
    act = audit.RescueEnded(
        rescue=rescue.pk,
        node=context.node.name,
        state=audit.Ended.SUCCEEDED,
        outcome=ending.outcome,
        needs_human=ending.needs_human,
        because=ending.because,
        withdrawn=None,
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=context.now)
