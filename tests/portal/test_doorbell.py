"""The doorbell while Redis accepts connections but does not answer: callers wait briefly, and nothing is lost."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from celery import Celery

from kcover_portal.config import broker
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Rescue
from tests import waiting
from tests.portal.rescue.world import World
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.django_db


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The portal's broker is a server that takes connections and never says a word; it is given up soon."""
    assert 1 < broker.Channel.socket_timeout < 5
    monkeypatch.setattr(broker.Channel, "socket_timeout", 0.1)
    doorbell.forget_failure()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        app = Celery("t", broker=f"redis://127.0.0.1:{server.getsockname()[1]}/0", set_as_current=False)
        app.conf.broker_transport_options = {"max_retries": 0}
        monkeypatch.setattr(doorbell, "current_app", app)
        yield
        app.close()
    doorbell.forget_failure()


def test_a_redis_that_hangs_delays_no_report_and_loses_no_fault(
    silent: None, django_capture_on_commit_callbacks: Any
) -> None:
    world = World()
    began = time.monotonic()
    with django_capture_on_commit_callbacks(execute=True) as rung:
        for n in range(8):
            world.fault(pci=f"0000:0{n}:00")
    took = time.monotonic() - began
    assert len(rung) >= 8
    assert took < HANG_SECONDS
    world.work()
    assert Rescue.objects.count() == 1
    world.uninstall()


def test_a_broker_that_hung_is_let_alone_for_a_while(
    silent: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    monkeypatch.setattr(doorbell, "BACKOFF_FACTOR", 300.0)
    with django_capture_on_commit_callbacks(execute=True):
        doorbell.ring("rescue.decide", 1)
        doorbell.ring("rescue.decide", 2)
    assert len(caplog.records) == 1  # the second one asked nobody


def test_signals_do_not_pile_up_behind_a_redis_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, django_capture_on_commit_callbacks: Any
) -> None:
    class Hung:
        asked = 0

        async def group_send(self, group: str, message: object) -> None:
            self.asked += 1
            await asyncio.Event().wait()

    layer = Hung()
    monkeypatch.setattr(doorbell, "get_channel_layer", lambda: layer)
    monkeypatch.setattr(doorbell, "SEND_TIMEOUT_SECONDS", 0.01)
    with django_capture_on_commit_callbacks(execute=True):
        for record in range(100):
            doorbell.publish("node", record)
    # The batch may also have what earlier tests signalled.
    given_up = waiting.until(lambda: re.search(r"of (\d+) records", caplog.text), "the signals to be given up")
    assert int(given_up[1]) >= 100
    assert layer.asked == 1
