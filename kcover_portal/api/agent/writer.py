"""Keeping reports: those that gathered in one transaction, each answered after the commit.

A commit that many share makes durability nearly free. A report with a fault waits for no others.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover import wire
from kcover_portal.api.agent import tallying
from kcover_portal.api.agent.gathering import Full, Gathering
from kcover_portal.incidents import services as incidents

log = logging.getLogger(__name__)

CAPACITY = 5_000  # reports waiting; beyond it agents are asked to come back
TOGETHER = 500  # reports in one transaction
MOST_HELD = 32 << 20  # bytes of bodies in memory, being read or waiting


class Writer:
    """Reports on their way into the database."""

    def __init__(self) -> None:
        self._held = 0
        self._reports: Gathering[incidents.Delivery, wire.Answer] = Gathering(
            _keep_and_count, name="ingest", together=TOGETHER, capacity=CAPACITY
        )

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Room for a body of so many bytes while it is read and kept. Raises Full."""
        if self._held + size > MOST_HELD:
            raise Full
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    async def keep(self, delivery: incidents.Delivery) -> wire.Answer:
        """Returns once the report is durable. Raises Full, or the database's error."""
        report = delivery.decoded.report
        return await self._reports.ask(delivery, at_once=bool(report.faults or report.command_results))


def _keep_and_count(deliveries: Sequence[incidents.Delivery]) -> list[wire.Answer | Exception]:
    answers = _keep(deliveries)
    tallying.taken(answers)
    return answers


def _keep(deliveries: Sequence[incidents.Delivery]) -> list[wire.Answer | Exception]:
    """One transaction for all; if it fails, one each, so that a poisonous report stands alone."""
    try:
        close_old_connections()
        return [*incidents.ingest(deliveries, now=timezone.now())]
    except Exception as error:
        if len(deliveries) > 1:
            log.warning("a batch of %d reports failed, keeping them one by one: %s", len(deliveries), error)
            return [answer for delivery in deliveries for answer in _keep([delivery])]
        if not isinstance(error, DatabaseError):
            log.exception("a report of node %s could not be kept", deliveries[0].node)
        return [error]
