"""Deadlines for calls that may hang."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_start_lock = threading.Lock()  # held while finding or starting a call


class DeadlineExceeded(Exception):
    """The call did not return in time. Its thread is left behind, waiting."""


class _Call(threading.Thread):
    """A call in progress."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.started_at = time.monotonic()


def within(seconds: float, call: Callable[[], T], *, what: str) -> T:
    """Return or raise the result of ``call``. Raises DeadlineExceeded after ``seconds``.

    A thread that hangs inside a driver cannot be ended. A second call with the same ``what`` therefore starts no second
    thread: it waits for the first one, until that has taken ``seconds`` itself. A driver that hangs for days costs one
    thread, not one an hour.
    """
    until = time.monotonic() + seconds
    answer: list[T] = []
    failure: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(call())
        except BaseException as error:
            failure.append(error)

    thread = _Call(target=ask, name=what, daemon=True)
    while (running := _start_or_join(thread)) is not thread:
        running.join(max(0.0, min(until, running.started_at + seconds) - time.monotonic()))
        if running.is_alive():
            raise DeadlineExceeded(f"{what}: an earlier call has not returned yet")
    thread.join(max(0.0, until - time.monotonic()))
    if failure:
        raise failure[0]
    if answer:
        return answer[0]
    raise DeadlineExceeded(f"{what}: no answer within {seconds:g} s")


def _start_or_join(thread: _Call) -> _Call:
    """The thread that makes this call: the running one, or this one, started."""
    with _start_lock:
        running = (other for other in threading.enumerate() if isinstance(other, _Call) and other.name == thread.name)
        found = next(running, None)
        if found is None:
            thread.started_at = time.monotonic()
            thread.start()
        return found or thread
