"""The broker in memory: its readers wait for messages instead of polling."""

import threading
import time
from collections.abc import Iterator

import pytest
from kombu import Connection, Queue

from kcover_portal.config import broker
from tests.waiting import HANG_SECONDS

QUEUE = Queue("memory-broker-test")


@pytest.fixture
def connection() -> Iterator[Connection]:
    broker.install()
    with Connection("memory://") as made:
        yield made


def test_a_message_wakes_the_reader(connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "MAX_WAIT_SECONDS", 4 * HANG_SECONDS)
    read: list[str] = []

    def put() -> None:
        with Connection("memory://") as other:
            other.Producer().publish("hello", routing_key=QUEUE.name, declare=[QUEUE])

    with connection.Consumer(QUEUE, callbacks=[lambda body, message: (read.append(body), message.ack())]):
        writer = threading.Timer(0.05, put)
        writer.start()
        began = time.monotonic()
        connection.drain_events(timeout=broker.MAX_WAIT_SECONDS)
        writer.join()
    assert read == ["hello"]
    assert time.monotonic() - began < HANG_SECONDS


def test_a_reader_without_a_message_gives_up_after_the_time_out(connection) -> None:
    with connection.Consumer(QUEUE), pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.01)


def test_a_reader_that_may_take_no_more_goes_on_after_an_acknowledgement(connection) -> None:
    held = []
    producer = connection.Producer()
    for number in range(2):
        producer.publish(number, routing_key=QUEUE.name, declare=[QUEUE])
    with connection.Consumer(QUEUE, callbacks=[lambda _body, message: held.append(message)], prefetch_count=1):
        connection.drain_events(timeout=1)
        threading.Timer(0.05, held[0].ack).start()
        connection.drain_events(timeout=broker.MAX_WAIT_SECONDS)
    assert [message.payload for message in held] == [0, 1]
    held[1].ack()
