"""After commit: wakes a worker by task name, and tells open pages which record changed.

Carries ids only. A ring that gets lost costs at most a sweep interval; a signal that gets lost is repaired when the
page fetches again.
"""

import asyncio
import logging
import threading
from concurrent.futures import Future
from functools import partial

from celery import current_app
from channels.layers import get_channel_layer
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

log = logging.getLogger(__name__)

PAGES = "pages"  # the group that every signed-in page's socket joins

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def attach(loop: asyncio.AbstractEventLoop) -> None:
    """Sends signals from this loop. Where pages and workers share one process, their in-memory layer lives in it."""
    global _loop
    with _lock:
        _loop = loop


def _sender() -> asyncio.AbstractEventLoop:
    """The attached loop, else one of our own in a thread: one connection for all of a worker's signals."""
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="doorbell", daemon=True).start()
        return _loop


def ring(task: str, *ids: int) -> None:
    """Wakes a worker for ``task`` once the present transaction is committed."""
    transaction.on_commit(partial(_ring, task, ids), robust=True)


def tell(topic: str, record: int | str, *, cluster: str = "") -> None:
    """Tells open pages, once committed, that a record of a topic (node, incident, rescue, ...) was written."""
    transaction.on_commit(partial(_tell, topic, record, cluster), robust=True)


def _ring(task: str, ids: tuple[int, ...]) -> None:
    try:
        current_app.send_task(task, args=ids, retry=False)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("the broker did not take %s%r, the sweep will find it: %s", task, ids, error)


def _tell(topic: str, record: int | str, cluster: str) -> None:
    layer = get_channel_layer()
    message = {"type": "record.written", "topic": topic, "id": record, "cluster": cluster}
    sent = asyncio.run_coroutine_threadsafe(layer.group_send(PAGES, message), _sender())
    sent.add_done_callback(partial(_told, topic))


def _told(topic: str, sent: "Future[None]") -> None:
    error = None if sent.cancelled() else sent.exception()
    if error is not None:
        log.warning("pages were not told of a %s: %s", topic, error)
