"""Many reports, one transaction: a thread takes whatever has gathered, keeps it, and answers after the commit.

At rest a report is kept at once; under load a commit is shared, which makes durability nearly free
(group commit). A full queue says so instead of growing.
"""

import asyncio
import logging
import threading
from collections import deque
from dataclasses import dataclass

from django.db import close_old_connections, connection
from django.db.utils import Error as DatabaseError
from django.utils import timezone

from kcover import wire
from kcover_portal.incidents import services as incidents

log = logging.getLogger(__name__)

CAPACITY = 5_000  # reports waiting; beyond it agents are asked to come back
TOGETHER = 500  # reports in one transaction


class Full(Exception):
    """More reports wait than may: come back later."""


@dataclass(slots=True)
class _Waiting:
    delivery: incidents.Delivery
    loop: asyncio.AbstractEventLoop
    answer: "asyncio.Future[wire.Answer]"


class Writer:
    """One thread with one database connection; started with the first report."""

    def __init__(self) -> None:
        self._queue: deque[_Waiting] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None

    async def keep(self, delivery: incidents.Delivery) -> wire.Answer:
        """Returns once the report is durable. Raises Full, or the database's error."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(delivery, loop, loop.create_future())
        with self._ready:
            if len(self._queue) >= CAPACITY:
                raise Full
            self._queue.append(waiting)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)
                self._thread.start()
            self._ready.notify()
        return await waiting.answer

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue:
                    if not self._ready.wait(timeout=60):
                        connection.close()
                batch = [self._queue.popleft() for _ in range(min(TOGETHER, len(self._queue)))]
            self._keep(batch)

    def _keep(self, batch: list[_Waiting]) -> None:
        """One transaction for all; if it fails, one each, so that a poisonous report stands alone."""
        try:
            close_old_connections()
            answers = incidents.ingest([one.delivery for one in batch], now=timezone.now())
        except Exception as error:
            if len(batch) > 1:
                log.warning("a batch of %d reports failed, keeping them one by one: %s", len(batch), error)
                for one in batch:
                    self._keep([one])
                return
            if not isinstance(error, DatabaseError):
                log.exception("a report of node %s could not be kept", batch[0].delivery.node)
            _fail(batch[0], error)
            return
        for one, answer in zip(batch, answers, strict=True):
            one.loop.call_soon_threadsafe(_resolve, one.answer, answer)


def _fail(waiting: _Waiting, error: Exception) -> None:
    waiting.loop.call_soon_threadsafe(_reject, waiting.answer, error)


def _resolve(future: "asyncio.Future[wire.Answer]", answer: wire.Answer) -> None:
    if not future.done():  # the agent may have hung up meanwhile
        future.set_result(answer)


def _reject(future: "asyncio.Future[wire.Answer]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
