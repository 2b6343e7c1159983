"""Run the rescues that one transaction has opened: the first calls side by side, their outcomes settled together.

Each call still has its own lease, its entry in the ledger before it, and a check right before it. Calls that failed
are settled by the runner, one by one.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError, connection

from kcover_portal.fleet.services import node_events
from kcover_portal.rescue.actions.registry import ACTIONS
from kcover_portal.rescue.engine import kube_events, runner, settle
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.step import call_checks
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.outcomes import Done, Outcome

log = logging.getLogger(__name__)

MAX_CONCURRENT_CALLS = 8  # calls of one batch, checked by one statement right before they are made


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of one cluster: Events that hang must not delay calls."""

    calls: Executor
    events: Executor


Made = tuple[Context, list[Step], Outcome | Exception]


def run(opened: Sequence[runner.Begun], *, threads: Threads | None = None) -> list[Exception]:
    """Runs the rescues that the caller has claimed with their opening. ``threads`` None: all in this thread.

    Each wave of calls is settled before the next begins. Returns the errors, after all rescues were run.
    """
    claimed = [(context, steps) for context, steps in opened if context.rescue.lease_until is not None]
    claimed.sort(key=lambda begun: begun[0].node.pk)  # the order of locks, as everywhere
    if len(claimed) == 1:
        return _errors_of(partial(runner.go_on, *claimed[0]))
    errors: list[Exception] = []
    events: list[settle.Attempt] = []
    for start in range(0, len(claimed), MAX_CONCURRENT_CALLS):
        made = _attempts(claimed[start : start + MAX_CONCURRENT_CALLS], threads)
        settled = _settle([(context, steps, outcome) for context, steps, outcome in made if isinstance(outcome, Done)])
        ours = {context.claim for context, _, _ in settled or ()}
        for context, steps, outcome in made:
            if settled is None or not isinstance(outcome, Done):
                failed = _errors_of(partial(runner.go_on, context, steps, outcome))
            else:
                failed = [] if context.claim in ours else _errors_of(partial(runner.release_node, context))
            for error in failed:
                log.error("rescue %s", context.rescue.pk, exc_info=error)
            errors += failed
        events += settled or []
    return errors + _write_events(events, threads)


def _settle(done: Sequence[settle.Attempt]) -> list[settle.Attempt] | None:
    """Settles calls that succeeded, and leaves what follows to the workers. None: each must be settled alone."""
    if not done:
        return []
    try:
        return settle.settle(done, hands_over=True)
    except Exception:
        log.exception("%d rescues could not be settled together", len(done))
        return None


def _errors_of(work: Callable[[], None]) -> list[Exception]:
    try:
        work()
    except Exception as error:
        return [error]
    return []


def _write_events(settled: Sequence[settle.Attempt], threads: Threads | None) -> list[Exception]:
    if not settled:
        return []
    events = [
        kube_events.of_step(context.rescue, context.step, outcome, now=context.now) for context, _, outcome in settled
    ]
    try:
        node_events.write(settled[0][0].cluster, events, threads=threads.events if threads is not None else None)
    except Exception as error:
        log.exception("the Events of %d steps", len(events))
        return [error]
    return []


def _attempts(wave: Sequence[runner.Begun], threads: Threads | None) -> list[Made]:
    """Makes the first call of each rescue: side by side after one check of all claims, or one after the other."""
    if threads is None:
        return [(context, steps, _attempt(context)) for context, steps in wave]
    refused = _check([context for context, _ in wave])
    free = [begun for begun in wave if begun[0].claim not in refused]
    outcomes = threads.calls.map(_attempt_in_thread, [context for context, _ in free])
    made: list[Made] = [(*begun, outcome) for begun, outcome in zip(free, outcomes, strict=True)]
    # These write to the database, and do so in this thread.
    return made + [(*begun, _attempt(begun[0])) for begun in wave if begun[0].claim in refused]


def _check(contexts: Sequence[Context]) -> set[call_checks.Claim]:
    """Checks the claims together; returns those whose calls must not be made."""
    try:
        checked = call_checks.check([context.claim for context in contexts], now=contexts[0].now)
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
