"""The brokers: Redis between processes, and the memory of a single process.

kombu's channel for Redis stores each message that a worker holds, and restores it if the worker dies. That takes two
transactions per message. After the connection is lost it raises an exception that Celery does not expect, so that the
worker exits (kombu 5.7). The portal skips it without loss: the rows are the queue, and the sweep finds whatever is due.

Socket time-outs protect threads from a Redis that accepts connections but does not answer.

Kombu's broker in memory looks for messages a hundred times a second. This one waits for them.
"""

import math
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kcover_portal.config import deferred

# redis-py imports OpenTelemetry if it is installed, although nothing here uses it: 0.1 s and 4 MiB for each process.
with deferred.hidden("opentelemetry"):
    from kombu import Connection
    from kombu.transport import TRANSPORT_ALIASES, memory, redis
    from redis import Redis

MAX_WAIT_SECONDS = 0.5


class Channel(redis.Channel):
    """A channel that keeps and restores no messages, and uses one client for all commands."""

    ack_emulation = False
    do_restore = False
    socket_timeout = 3.0  # longer than kombu's brpop_timeout (1 s), which bounds a worker's blocking read
    socket_connect_timeout = 2.0
    _kept: Redis | None = None  # the client of ``pool``; several threads may use it

    @contextmanager
    def conn_or_acquire(self, client: Redis | None = None) -> Iterator[Redis]:
        """Gives a client for commands. kombu creates one for each command, which takes 0.1 ms of CPU."""
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = Redis(connection_pool=self.pool)
        yield client or self._kept


class Transport(redis.Transport):
    """kombu's Redis transport with this channel."""

    Channel = Channel


class MemoryChannel(memory.Channel):
    """A channel whose readers wait for ``changed``."""

    changed = threading.Event()  # a message has arrived, or a reader may take another one

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledges a message."""
        super().basic_ack(delivery_tag, multiple=multiple)
        self.changed.set()

    def _put(self, queue: str, message: Any, **more: Any) -> None:
        super()._put(queue, message, **more)
        self.changed.set()

    def _put_fanout(self, exchange: str, message: Any, routing_key: str | None = None, **more: Any) -> None:
        super()._put_fanout(exchange, message, routing_key=routing_key, **more)
        self.changed.set()


class MemoryTransport(memory.Transport):
    """kombu's transport in memory, which waits instead of polling."""

    Channel = MemoryChannel

    def drain_events(self, connection: Connection, timeout: float | None = None) -> None:  # type: ignore[override]
        """Delivers a message. Raises TimeoutError if none arrives in time."""
        assert self.cycle is not None  # set by the constructor
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self.Channel.changed.clear()
            try:
                self.cycle.get(self._deliver, timeout=timeout)
            except queue.Empty:
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError from None
                self.Channel.changed.wait(min(left, MAX_WAIT_SECONDS))
            else:
                return


def install() -> None:
    """Registers these transports."""
    for scheme, transport in (("redis", Transport), ("rediss", Transport), ("memory", MemoryTransport)):
        TRANSPORT_ALIASES[scheme] = f"{transport.__module__}:{transport.__qualname__}"
