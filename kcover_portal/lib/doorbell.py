"""Wakes workers by task name and notifies open pages of changed records, after commit.

Messages carry ids only. A lost ring costs at most one sweep interval (four when many rows are due). After a lost
signal, a page is up to date again with its next fetch.
"""

import asyncio
import logging
import threading
import time
from functools import partial
from typing import Any

from celery import current_app
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

GATHERED_SECONDS = 0.1  # invisible on a page; a burst of writes becomes one signal per record
# After a failure the broker is left alone for this many times the duration of the failed call, so that a hanging broker
# takes at most a quarter of a caller's time.
BACKOFF_FACTOR = 3.0
SEND_TIMEOUT_SECONDS = 5.0  # for one message to the open pages
PAGES = "pages"  # the group that every signed-in page's socket joins

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_sending: asyncio.AbstractEventLoop | None = None  # the loop in which a batch of signals is about to be sent
_gathered: dict[tuple[Any, ...], dict[str, Any]] = {}
_calm_until = 0.0  # by the monotonic clock


def attach(loop: asyncio.AbstractEventLoop) -> None:
    """Send signals from this event loop. Needed if pages and workers share one process and its in-memory layer."""
    global _loop
    with _lock:
        _loop = loop


def _sender() -> asyncio.AbstractEventLoop:
    """Return the attached loop, or start a loop in a thread. Call it with ``_lock`` held.

    One loop means one connection for all signals of a worker.
    """
    global _loop
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, name="doorbell", daemon=True).start()
    return _loop


def forget_failure() -> None:
    """Ring the broker again at once, even if it failed a moment ago."""
    global _calm_until
    _calm_until = 0.0


def ring(task: str, *ids: int, expires: float | None = None) -> None:
    """Wake a worker for ``task`` after the current transaction commits.

    A message that no worker took within ``expires`` seconds is dropped.
    """
    lasting = () if expires is None else (expires,)
    transaction.on_commit(partial(_ring, task, ids, *lasting), robust=True)


def publish(topic: str, record: int | str, *, cluster: str = "") -> None:
    """Tell open pages after commit that a record of a topic (node, incident, rescue, ...) was written."""
    transaction.on_commit(partial(_publish, topic, record, cluster), robust=True)


def _ring(task: str, ids: tuple[int, ...], expires: float | None = None) -> None:
    global _calm_until
    began = time.monotonic()
    if began < _calm_until:
        return
    try:
        current_app.send_task(task, args=ids, expires=expires, retry=False)
    except (OperationalError, RedisError, OSError) as error:
        ended = time.monotonic()
        _calm_until = ended + BACKOFF_FACTOR * (ended - began)
        log.warning("the broker did not accept %s%r; the sweep will find it: %s", task, ids, error)


def _publish(topic: str, record: int | str, cluster: str) -> None:
    """Batch signals briefly, because a rescue's step writes its rows several times and a page needs one signal."""
    global _sending
    key = (topic, cluster) if topic == "audit" else (topic, cluster, record)
    with _lock:
        _gathered[key] = {"topic": topic, "id": record, "cluster": cluster}
        loop = _sender()
        if _sending is not loop:
            _sending = loop
            asyncio.run_coroutine_threadsafe(_send(), loop)


async def _send() -> None:
    """Send the batch as one message."""
    global _sending
    await asyncio.sleep(GATHERED_SECONDS)
    with _lock:
        records = list(_gathered.values())
        _gathered.clear()
        _sending = None
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await get_channel_layer().group_send(PAGES, {"type": "records.written", "records": records})
    except TimeoutError:
        log.warning("open pages were not notified of %d records: Redis does not answer", len(records))
    except (RedisError, OSError, ChannelFull) as error:
        log.warning("open pages were not notified of %d records: %s", len(records), error)
