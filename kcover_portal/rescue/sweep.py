"""The sweep: wake workers for everything that is due. It makes up for every lost message and dead worker."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet, Value

from kcover.nodes import health
from kcover_portal.fleet import queries as fleet_queries, services as fleet_services
from kcover_portal.incidents import queries as incident_queries, services as incidents
from kcover_portal.incidents.queries import seen
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared, any_row
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.decide import reevaluation
from kcover_portal.rescue.engine import silent_agents
from kcover_portal.rescue.lifecycle import replaced_machine
from kcover_portal.rescue.queries import probations, standbys
from kcover_portal.runtime.services import heartbeats, leases

RECONCILE_INTERVAL = timedelta(seconds=15)
SILENCE_CHECK_INTERVAL = timedelta(seconds=10)
RINGS_PER_TASK = 20  # up to this many due rows of a task are rung for in each sweep
RING_AGAIN_AFTER = timedelta(seconds=2)  # each further row is rung for again only after this time

Due = tuple[int, Any]  # a row's key, and a value that changes as soon as a worker has taken the row


class RecentRings:
    """The rows that a worker's recent sweeps have rung for.

    While hundreds of rows wait for busy workers, ringing for all of them in each sweep would cost the workers more time
    than the rows do. A few are rung for each time, because a ring may be lost or come a moment too early.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, Due], datetime] = {}

    def new(self, task: str, due: Sequence[Due], *, now: datetime) -> Iterator[int]:
        """The rows to ring for."""
        for row in due:
            if len(due) <= RINGS_PER_TASK or not self._lately((task, row), now=now):
                self._at[(task, row)] = now
                yield row[0]

    def forget(self, *, now: datetime) -> None:
        """Drops entries that are too old to count."""
        self._at = {key: at for key, at in self._at.copy().items() if self._lately(key, now=now)}

    def _lately(self, key: tuple[str, Due], *, now: datetime) -> bool:
        at = self._at.get(key)
        return at is not None and timedelta() <= now - at < RING_AGAIN_AFTER  # the clock may have been set back


def has_work(now: datetime) -> bool:
    """Returns whether a sweep has work now. Settings that changed and work by the clock come on top."""
    return _ANY_WORK(now=now, stable=now - health.FLAPPING_ENDS_AFTER)


_UNANSWERED, _REPLACED, _LEFT_OVER, _OVERDUE, _STANDING, _ENDED = range(6)


def _rare_kinds(now: datetime, stable: datetime) -> Sequence[QuerySet[Any]]:
    """The rows of each kind of work that a sweep seldom has.

    ``stable``: a flapping fault that ended by then is over.
    """
    return (
        approvals.unanswered(now=now),
        queries.replaced(),
        standbys.left_over(),
        fleet_queries.commands_overdue(now=now),
        seen.doubt_is_over(now=now),
        seen.ended_until(stable),
    )


def _frequent_kinds(now: datetime) -> Sequence[QuerySet[Any]]:
    return (
        queries.with_withdrawal(now=now),
        probations.with_due(now=now),
        queries.claimable(now=now),
        incident_queries.undecided(now=now),
    )


def _rare_work(now: datetime, stable: datetime) -> QuerySet[Any, int]:
    """Which kinds of rare work there are, in one statement."""
    first, *others = (
        rows.order_by().annotate(found=Value(kind)).values_list("found", flat=True)
        for kind, rows in enumerate(_rare_kinds(now, stable))
    )
    found: QuerySet[Any, int] = first.union(*others)
    return found


_ANY_WORK = any_row(
    lambda now, stable: (*_frequent_kinds(now), *_rare_kinds(now, stable)), now=datetime, stable=datetime
)
_RARE_WORK = Prepared(_rare_work, now=datetime, stable=datetime)


def sweep(*, now: datetime, rung: RecentRings | None = None) -> None:
    """Ends what is over, and rings for what is due. ``rung``: the rows that earlier sweeps of this worker rang for."""
    rung = rung or RecentRings()
    rung.forget(now=now)
    found = set(_RARE_WORK.rows(now=now, stable=now - health.FLAPPING_ENDS_AFTER))
    for kind, work in (
        (_UNANSWERED, approvals.expire),
        (_REPLACED, replaced_machine.look),
        (_STANDING, incidents.settle_doubt),
        (_ENDED, incidents.close_ended),
    ):
        if kind in found:
            work(now=now)
    reevaluation.reevaluate(now=now)
    for task, due in (  # withdrawals first: they prevent reboots that are no longer wanted
        ("rescue.withdraw", queries.to_withdraw(now=now)),
        ("rescue.end_probation", probations.due(now=now)),
        ("rescue.run", queries.due(now=now)),
        ("rescue.decide", incident_queries.due_for_decision(now=now)),
    ):
        for pk in rung.new(task, due, now=now):
            doorbell.ring(task, pk)
    if _LEFT_OVER in found:
        doorbell.ring("rescue.tidy_standbys")
    if leases.throttle("reconcile", every=RECONCILE_INTERVAL, now=now):
        doorbell.ring("rescue.reconcile")
    if leases.throttle("silent agents", every=SILENCE_CHECK_INTERVAL, now=now):
        silent_agents.check_all(now=now)
    if _OVERDUE in found:
        fleet_services.expire_commands(now=now)
    heartbeats.beat("sweep", now=now)
