"""Stores the collected reports in one transaction, and answers each of them after the commit.

A shared commit makes durability nearly free. A report with a fault does not wait for others. A report with many
distinct faults has a transaction of its own, so that it does not delay others.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from django.db import close_old_connections
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover import wire
from kcover_portal.api.agent import ingest_counters
from kcover_portal.api.agent.body_room import BodyRoom
from kcover_portal.api.agent.group_commit import GroupCommit, QueueFull
from kcover_portal.incidents import services as incidents

log = logging.getLogger(__name__)

MAX_QUEUED_REPORTS = 5_000  # beyond these, agents are asked to come back
BATCH_REPORTS = 500  # in one transaction
MAX_BUFFERED_BYTES = 32 << 20  # of bodies in memory, being read or waiting
MAX_BUFFERED_BYTES_PER_CREDENTIAL = 4 << 20  # an agent sends one report after the other


class Writer:
    """Reports on their way into the database."""

    def __init__(self) -> None:
        self._room = BodyRoom()
        self._reports: GroupCommit[incidents.IncomingReport, wire.Answer] = GroupCommit(
            _keep_and_count, name="ingest", together=BATCH_REPORTS, capacity=MAX_QUEUED_REPORTS
        )

    def room(self, owner: str) -> AbstractContextManager[Callable[[int], None]]:
        """Room for a body of this credential, see ``BodyRoom.take``. Its function raises QueueFull."""
        return self._room.take(owner, total=MAX_BUFFERED_BYTES, each=MAX_BUFFERED_BYTES_PER_CREDENTIAL, full=QueueFull)

    async def keep(self, incoming: incidents.IncomingReport, *, alone: bool) -> wire.Answer:
        """Returns once the report is durable. Raises QueueFull, or the database's error.

        ``alone``: the report takes long, so that it shares no transaction with other nodes.
        """
        return await self._reports.ask(
            incoming,
            at_once=bool(incoming.faults or incoming.command_results),
            alone=(incoming.cluster.pk, incoming.node) if alone else None,
        )


def _keep_and_count(reports: Sequence[incidents.IncomingReport]) -> list[wire.Answer | Exception]:
    answers = _keep(reports)
    ingest_counters.taken(answers)
    return answers


def _keep(reports: Sequence[incidents.IncomingReport]) -> list[wire.Answer | Exception]:
    """One transaction for all; if it fails, one each, so that a poisonous report stands alone."""
    try:
        close_old_connections()
        return [*incidents.ingest(reports, now=timezone.now())]
    except Exception as error:
        if len(reports) > 1:
            log.warning("a batch of %d reports failed, storing them one by one: %s", len(reports), error)
            return [answer for incoming in reports for answer in _keep([incoming])]
        if not isinstance(error, DatabaseError):
            log.exception("a report of node %s could not be kept", reports[0].node)
        return [error]
