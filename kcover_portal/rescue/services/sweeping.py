"""Sweeping: wakes workers for everything that is due, the net under every lost message and dead worker."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from kcover_portal import doorbell
from kcover_portal.fleet import services as fleet_services
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.rescue import queries
from kcover_portal.rescue.queries import standbys
from kcover_portal.rescue.services import approving, listening, rejudging, replacing

RECONCILED_EVERY = timedelta(seconds=15)
LISTENED_EVERY = timedelta(seconds=10)
CROWD = 20  # rows due for one task; so many at most are rung for in each sweep
RUNG_AGAIN = timedelta(seconds=2)  # else

Due = tuple[int, Any]  # a row's key, and what of it changes as soon as a worker has taken it up


class Rung:
    """What a worker's sweeps have rung for lately.

    While hundreds of rows wait for workers that are busy, ringing for all of them in each sweep would take more of the
    workers' time than the rows do. A few are rung for each time: a ring may be lost, or have come a moment too early.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, Due], datetime] = {}

    def new(self, task: str, due: Sequence[Due], *, now: datetime) -> Iterator[int]:
        """Those of the rows to ring for."""
        for one in due:
            if len(due) <= CROWD or not self._lately((task, one), now=now):
                self._at[(task, one)] = now
                yield one[0]

    def forget(self, *, now: datetime) -> None:
        """Drops what is too old to count."""
        self._at = {key: at for key, at in self._at.copy().items() if self._lately(key, now=now)}

    def _lately(self, key: tuple[str, Due], *, now: datetime) -> bool:
        at = self._at.get(key)
        return at is not None and timedelta() <= now - at < RUNG_AGAIN  # the clock may have been set back


def sweep(*, now: datetime, rung: Rung | None = None) -> None:
    """Ends what is over, and rings for what is due. ``rung``: what this worker's sweeps before have rung for."""
    rung = rung or Rung()
    rung.forget(now=now)
    approving.expire(now=now)
    replacing.look(now=now)
    rejudging.look(now=now)
    for task, due in (  # first what keeps a machine from a reboot that nobody wants any more
        ("rescue.withdraw", queries.to_withdraw(now=now)),
        ("rescue.run", queries.due(now=now)),
        ("rescue.judge", incident_queries.to_judge(now=now)),
    ):
        for pk in rung.new(task, due, now=now):
            doorbell.ring(task, pk)
    if standbys.left_over().exists():
        doorbell.ring("rescue.tidy_standbys")
    if fleet_services.lead("reconcile", holder=str(uuid.uuid4()), until=now + RECONCILED_EVERY, now=now):
        doorbell.ring("rescue.reconcile")
    if fleet_services.lead("listen", holder=str(uuid.uuid4()), until=now + LISTENED_EVERY, now=now):
        listening.look(now=now)
    fleet_services.expire_commands(now=now)
    fleet_services.beat("sweep", now=now)
