"""Loss of Redis: the worker loses its connection and keeps running."""

import contextlib
import shutil

import kombu
import pytest
from celery import current_app
from kombu.common import ignore_errors

from kcover_portal.config import broker
from tests import servers

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")


def test_a_connection_that_is_gone_is_let_go_of_as_it_is() -> None:
    with servers.Redis() as redis, kombu.Connection(redis.url) as connection:
        queue = connection.SimpleQueue("kcover")
        queue.put("done already")
        queue.put("not begun yet")
        done, not_begun = queue.get(timeout=60), queue.get(timeout=60)

        redis.kill()
        with contextlib.suppress(Exception):  # as the worker does before it connects again
            connection.collect()
        ignore_errors(connection, connection.close)
        done.ack()
        not_begun.ack()


def test_the_portals_workers_use_it() -> None:
    with current_app.connection_for_read("redis://127.0.0.1:1/0") as connection:
        assert isinstance(connection.transport, broker.Transport)
