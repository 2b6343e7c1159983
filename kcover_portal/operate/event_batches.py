"""Batches of watch events, so that a burst of changes is written with a few statements."""

import queue
import threading
import time
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

QUIET_SECONDS: Final = 0.01  # a batch ends when nothing arrives for this long, so a lone event waits no longer
GATHER_SECONDS: Final = 0.05  # events of a longer burst wait at most this long
MAX_EVENTS: Final = 500
MAX_QUEUED_EVENTS: Final = 1_000  # beyond these, the reader of the source waits
LEFT_POLL_SECONDS: Final = 0.5  # a reader that waits for room notices within this time that the caller has left
T = TypeVar("T")


class _End:
    """The end of the source, with the error that it raised, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def batches(source: Iterator[T]) -> Generator[list[T]]:
    """Yields the events of a source that blocks, in their order, with those that arrive shortly after one another.

    A thread reads the source. An error of the source is raised after the events that arrived before it. If the caller
    leaves early, the thread ends with the next event, or when the source ends. While MAX_QUEUED_EVENTS wait for the
    caller, the source is not read.
    """
    arrived: queue.Queue[T | _End] = queue.Queue(MAX_QUEUED_EVENTS)
    left = threading.Event()
    threading.Thread(target=_read, args=(source, arrived, left), name="watch-events", daemon=True).start()
    try:
        while True:
            batch, end = _gather(arrived)
            if batch:
                yield batch
            if end is not None:
                if end.error is not None:
                    raise end.error
                return
    finally:
        left.set()


def _read(source: Iterator[T], arrived: "queue.Queue[T | _End]", left: threading.Event) -> None:
    error = None
    try:
        for event in source:
            if not _put(arrived, event, left):
                break
    except BaseException as raised:  # the reader of the batches handles it
        error = raised
    _put(arrived, _End(error), left)


def _put(arrived: "queue.Queue[T | _End]", item: T | _End, left: threading.Event) -> bool:
    """Waits for room in the queue. Returns False once the caller has left."""
    while not left.is_set():
        try:
            arrived.put(item, timeout=LEFT_POLL_SECONDS)
        except queue.Full:
            continue
        return True
    return False


def _gather(arrived: "queue.Queue[T | _End]") -> tuple[list[T], _End | None]:
    """Waits for an event; returns it with those that follow shortly, and the end of the source if it is reached."""
    batch: list[T] = []
    end = _take(arrived, batch, block=True)
    until = time.monotonic() + GATHER_SECONDS
    while end is None and len(batch) < MAX_EVENTS and time.monotonic() < until:
        time.sleep(QUIET_SECONDS)
        before = len(batch)
        end = _take(arrived, batch, block=False)
        if len(batch) == before:
            break
    return batch, end


def _take(arrived: "queue.Queue[T | _End]", batch: list[T], *, block: bool) -> _End | None:
    """Adds what has arrived to the batch; ``block``: waits for the first event. Returns the end if it is reached."""
    while len(batch) < MAX_EVENTS:
        try:
            item = arrived.get(block=block)
        except queue.Empty:
            return None
        if isinstance(item, _End):
            return item
        batch.append(item)
        block = False
    return None
