"""The sweeps, and whether each has work, by one cheap statement; beat sends no message to a sweep that has none.

A message to a worker costs as much CPU as many such statements. Each check reads the same rows as its task.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from kcover_portal.anchors.services import verifications
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.checks import queries as checks
from kcover_portal.fleet import queries as fleet
from kcover_portal.jobs import queries as jobs
from kcover_portal.lib.prepared import any_row
from kcover_portal.notify import queries as notify
from kcover_portal.parts import queries as parts
from kcover_portal.preflight import queries as preflight
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.control import notify_steps
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.sources import queries as sources

Check = Callable[[datetime], bool]


def _any_row(build: Callable[[datetime], Iterable[QuerySet[Any]]]) -> Check:
    """A check that finds whether one of the query sets has a row. ``build`` may not calculate with the time."""
    found = any_row(build, now=datetime)
    return lambda now: found(now=now)


def _any_row_now(build: Callable[[], Iterable[QuerySet[Any]]]) -> Check:
    """As ``_any_row``, for rows that need no time."""
    found = any_row(build)
    return lambda _now: found()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A task that finds work whose message was lost, whose worker died or whose due date has passed.

    ``every``: seconds between looks for work. ``latest``: seconds after which the task is sent without any, for what
    ``has_work`` does not see, such as settings that changed and reminders.
    """

    task: str
    every: float
    latest: float = 60.0
    has_work: Check


SWEEPS: Final = (
    Sweep(task="rescue.sweep", every=0.5, latest=5.0, has_work=rescue.has_work),
    Sweep(
        task="notify.sweep",
        every=1.0,
        latest=5.0,
        has_work=_any_row(lambda now: (*notify.unread(), notify_steps.waiting_steps(), notify.sendable(now=now))),
    ),
    Sweep(task="notify.repeat", every=5.0, has_work=_any_row(lambda now: [notify.repeating(now=now)])),
    Sweep(task="jobs.sweep", every=1.0, has_work=_any_row(lambda now: [jobs.claimable_orders(now=now)])),
    Sweep(task="sources.sweep", every=2.0, has_work=_any_row(lambda now: [sources.due(now=now)])),
    Sweep(task="rescue.advance_tries", every=2.0, has_work=lambda now: bool(policy_tries.due(now=now))),
    Sweep(
        task="checks.advance_runs",
        every=2.0,
        has_work=_any_row_now(lambda: (checks.running(), checks.due_validations())),
    ),
    Sweep(task="audit_stream.sweep", every=2.0, has_work=lambda now: bool(audit_stream.due(now=now))),
    Sweep(task="anchors.advance_verifications", every=10.0, has_work=lambda now: bool(verifications.due(now=now))),
    Sweep(task="checks.label_nodes", every=10.0, has_work=lambda _now: bool(fleet.clusters_with_labels())),
    Sweep(task="preflight.label_nodes", every=10.0, has_work=lambda _now: bool(preflight.clusters_with_gate_labels())),
    Sweep(task="parts.sweep", every=5.0, has_work=_any_row_now(lambda: [parts.unrecorded()])),
    Sweep(
        task="preflight.sweep",
        every=2.0,
        has_work=_any_row(
            lambda now: (preflight.expiring(now=now), preflight.unreported_verdicts(), preflight.plans_at_work(now=now))
        ),
    ),
)
