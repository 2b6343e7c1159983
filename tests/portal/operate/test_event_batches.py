"""Events that arrive together are handed on together, in order, and a lone event is not kept waiting."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kcover_portal.operate import event_batches
from tests import waiting
from tests.waiting import HANG_SECONDS


class CountingQueue(queue.Queue[Any]):
    """A queue that counts how often it had no room."""

    full_puts = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        try:
            super().put(item, block, timeout)
        except queue.Full:
            CountingQueue.full_puts += 1
            raise


def test_a_burst_is_a_few_batches_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "QUIET_SECONDS", 0.5)  # longer than a busy core delays the reader
    monkeypatch.setattr(event_batches, "GATHER_SECONDS", 60.0)
    found = list(event_batches.batches(iter(range(150))))
    assert [event for batch in found for event in batch] == list(range(150))
    assert len(found) < 15


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "MAX_EVENTS", 4)
    found = list(event_batches.batches(iter(range(10))))
    assert [event for batch in found for event in batch] == list(range(10))
    assert max(len(batch) for batch in found) <= 4


def test_a_lone_event_does_not_wait_for_the_next() -> None:
    more = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        assert more.wait(HANG_SECONDS)
        yield 2

    found = event_batches.batches(source())
    assert next(found) == [1]
    more.set()
    assert list(found) == [[2]]


def test_a_steady_stream_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "QUIET_SECONDS", 0.02)
    stop = threading.Event()

    def source() -> Iterator[int]:
        number = 0
        while not stop.wait(0.001):
            yield (number := number + 1)

    found = event_batches.batches(source())
    first = next(found)
    assert first == list(range(1, len(first) + 1))
    stop.set()
    list(found)


def test_an_error_comes_after_the_events_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the connection broke")

    found = event_batches.batches(source())
    seen = next(found)
    with pytest.raises(ValueError, match="the connection broke"):
        seen.extend(event for batch in found for event in batch)
    assert seen == [1, 2]


def test_an_empty_stream_has_no_batches() -> None:
    assert list(event_batches.batches(iter(()))) == []


def test_the_source_is_closed_after_the_caller_left() -> None:
    more, closed = threading.Event(), threading.Event()
    read: list[int] = []

    def source() -> Iterator[int]:
        try:
            for event in range(1, 5):
                yield event
                read.append(event)
                assert more.wait(HANG_SECONDS)
        finally:
            closed.set()

    found = event_batches.batches(source())
    assert next(found) == [1]
    found.close()
    del found
    more.set()
    assert closed.wait(HANG_SECONDS)
    assert read == [1]


def test_the_source_waits_while_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "MAX_QUEUED_EVENTS", 5)
    monkeypatch.setattr(event_batches, "MAX_EVENTS", 3)
    monkeypatch.setattr(event_batches, "LEFT_POLL_SECONDS", 0.01)
    monkeypatch.setattr(event_batches.queue, "Queue", CountingQueue)
    read: list[int] = []
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            for event in range(1_000):
                read.append(event)
                yield event
        finally:
            closed.set()

    found = event_batches.batches(source())
    first = next(found)
    most = len(first) + 5 + 1  # those in the queue, and one that waits for room
    waiting.until(lambda: len(read) == most, "the queue to be full")
    full = CountingQueue.full_puts
    waiting.until(lambda: CountingQueue.full_puts >= full + 3, "the reader to look for room again and again")
    assert not closed.is_set()
    assert len(read) == most
    found.close()
    assert closed.wait(HANG_SECONDS)  # a reader that waits for room notices that the caller has left
    assert len(read) == most


def test_a_slow_caller_gets_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "MAX_QUEUED_EVENTS", 5)
    found = event_batches.batches(iter(range(200)))
    assert [event for batch in found for event in batch] == list(range(200))
