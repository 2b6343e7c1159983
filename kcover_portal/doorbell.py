"""After commit: wakes a worker by task name, and tells open pages which record changed.

Carries ids only. A ring that gets lost costs at most a sweep interval; a signal that gets lost is repaired when the page
fetches again.
"""

import logging
from functools import partial

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from kcover_portal.celery import app

log = logging.getLogger(__name__)

PAGES = "pages"  # the group that every signed-in page's socket joins


def ring(task: str, *ids: int) -> None:
    """Wakes a worker for ``task`` once the present transaction is committed."""
    transaction.on_commit(partial(_ring, task, ids), robust=True)


def tell(topic: str, record: int | str, *, cluster: str = "") -> None:
    """Tells open pages, once committed, that a record of a topic (node, incident, rescue, ...) was written."""
    transaction.on_commit(partial(_tell, topic, record, cluster), robust=True)


def _ring(task: str, ids: tuple[int, ...]) -> None:
    try:
        app.send_task(task, args=ids, retry=False)
    except (OperationalError, RedisError, OSError) as error:
        log.warning("the broker did not take %s%r, the sweep will find it: %s", task, ids, error)


def _tell(topic: str, record: int | str, cluster: str) -> None:
    layer = get_channel_layer()
    message = {"type": "record.written", "topic": topic, "id": record, "cluster": cluster}
    try:
        async_to_sync(layer.group_send)(PAGES, message)
    except (RedisError, OSError) as error:
        log.warning("pages were not told of %s %s: %s", topic, record, error)
