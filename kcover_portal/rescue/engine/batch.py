"""Run the rescues that one transaction has opened: the first calls side by side, their outcomes settled together.

Each call still has its own lease, its entry in the ledger before it, and a check right before it. What does not fit
into the common case (the call succeeded, and nothing else happened) is settled by the runner, one by one.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime

from django.db import DatabaseError, connection, transaction

from kcover import audit
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.engine import kube_events, runner, settle
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import claims, own_rows
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome

log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 8  # calls of one batch, checked by one statement right before they are made


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of one cluster: Events that hang must not delay calls."""

    calls: Executor
    events: Executor


def run(
    opened: Sequence[runner.Begun], *, clock: Callable[[], datetime], threads: Threads | None = None
) -> list[Exception]:
    """Runs the rescues that the caller has claimed with their opening. ``threads`` None: all in this thread.

    Each wave of calls is settled before the next begins. Returns the errors, after all rescues were run.
    """
    claimed = [(context, steps) for context, steps in opened if context.rescue.lease_until is not None]
    if len(claimed) == 1:
        return _run_alone(claimed[0], clock=clock)
    errors: list[Exception] = []
    settled: list[Attempt] = []
    for start in range(0, len(claimed), MAX_CONCURRENT_CALLS):
        attempts = _attempts(claimed[start : start + MAX_CONCURRENT_CALLS], threads)
        plain = [attempt for attempt in attempts if _is_plain(attempt[0], attempt[2])]
        try:
            settled += _settle(plain)
        except Exception:
            log.exception("%d rescues could not be settled together", len(plain))
            plain = []
        together = {context.claim for context, _, _ in plain}
        for context, steps, outcome in attempts:
            if context.claim not in together:
                errors += _settle_alone(context, steps, outcome, clock=clock)
    return errors + _write_events(settled, threads)


Attempt = tuple[Context, list[Step], Outcome | Exception]


def _run_alone(first: runner.Begun, *, clock: Callable[[], datetime]) -> list[Exception]:
    try:
        runner.go_on(first[0].rescue, clock=clock, first=first)
    except Exception as error:
        return [error]
    return []


def _settle_alone(
    context: Context, steps: list[Step], outcome: Outcome | Exception, *, clock: Callable[[], datetime]
) -> list[Exception]:
    try:
        runner.go_on_after(context, steps, outcome, clock=clock)
    except Exception as error:
        log.exception("rescue %s", context.rescue.pk)
        return [error]
    return []


def _write_events(settled: Sequence[Attempt], threads: Threads | None) -> list[Exception]:
    if not settled:
        return []
    events = [
        kube_events.of_step(context.rescue, context.step, outcome, now=context.now)
        for context, _, outcome in settled
        if not isinstance(outcome, Exception)
    ]
    try:
        kube_events.write(settled[0][0].cluster, events, threads=threads.events if threads is not None else None)
    except Exception as error:
        log.exception("the Events of %d steps", len(events))
        return [error]
    return []


def _attempts(wave: Sequence[runner.Begun], threads: Threads | None) -> list[Attempt]:
    """Makes the first call of each rescue: side by side after one check of all claims, or one after the other."""
    if threads is None:
        return [(context, steps, _attempt(context)) for context, steps in wave]
    refused = _check([context for context, _ in wave])
    free = [begun for begun in wave if begun[0].claim not in refused]
    made = threads.calls.map(_attempt_in_thread, [context for context, _ in free])
    attempts: list[Attempt] = [(*begun, outcome) for begun, outcome in zip(free, made, strict=True)]
    # These write to the database, and do so in this thread.
    return attempts + [(*begun, _attempt(begun[0])) for begun in wave if begun[0].claim in refused]


def _check(contexts: Sequence[Context]) -> set[claims.Claim]:
    """Checks the claims together; returns those whose calls must not be made."""
    try:
        checked = claims.check([context.claim for context in contexts], now=contexts[0].now)
    except DatabaseError as error:  # each attempt checks its own claim then
        log.warning("%d claims could not be checked together: %s", len(contexts), error)
        return set()
    for context in contexts:
        context.checked = checked[context.claim]
    return {claim for claim, result in checked.items() if result.error is not None}


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


def _settle(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Settles finished first steps in one transaction. Returns the attempts whose rescues were still this worker's.

    The rescues that have more steps are handed to the workers.
    """
    if not attempts:
        return []
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
        endings = {
            context.rescue.pk: settle.ending_of(context.rescue, steps)
            for context, steps, _ in settled
            if settle.unfinished(steps) is None
        }
        _end(endings, now=now)
        drafts: list[ledger.Draft] = []
        for context, _, outcome in settled:
            assert isinstance(outcome, Done)
            drafts += [*context.answers, settle.settled_draft(context.rescue, context.step, outcome, now=now)]
            ending = endings.get(context.rescue.pk)
            drafts += [_ended(context.rescue, ending, now=now)] if ending is not None else []
            doorbell.publish("rescue", context.rescue.pk, cluster=cluster.name)
        ledger.append(cluster.name, drafts)
        for rescue in following:
            doorbell.ring("rescue.run", rescue.pk)
    for context, _, _ in settled:
        context.answers, context.marks_changed = [], False
    for context, _, _ in attempts:
        if context.rescue.pk not in ours:
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
    own: list[Rescue] = []
    earlier: list[Rescue] = []
    for context in changed:
        named = context.rescue.marks.get("rescue", context.rescue.pk)
        (own if named == context.rescue.pk else earlier).append(context.rescue)
    Rescue.objects.bulk_update(own, ["marks"])
    others = Rescue.objects.filter(node__in=[rescue.node_id for rescue in own]).exclude(marks={})
    others.exclude(pk__in=[rescue.pk for rescue in own]).update(marks={})
    for rescue in earlier:
        own_rows.keep_marks(rescue)


def _end(endings: Mapping[int, settle.Ending], *, now: datetime) -> None:
    """Closes rescues whose steps are finished, as ``create.end`` does for one. Nothing is left to be withdrawn."""
    for ending in set(endings.values()):
        rows = Rescue.objects.filter(pk__in=[rescue for rescue, its in endings.items() if its == ending])
        columns = create.ended("succeeded", ending.outcome, ending.because, needs_human=ending.needs_human, now=now)
        rows.update(**columns)


def _ended(rescue: Rescue, ending: settle.Ending, *, now: datetime) -> ledger.Draft:
    act = audit.RescueEnded(
        rescue=rescue.pk,
        node=rescue.node.name,
        state=audit.RescueEnd.SUCCEEDED,
        outcome=ending.outcome,
        needs_human=ending.needs_human,
        because=ending.because,
        withdrawn=None,
    )
    return ledger.Draft(act=act, actor=f"rescue {rescue.pk}", at=now)
