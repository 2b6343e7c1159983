"""Asking something that may never answer."""

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_starting = threading.Lock()  # whoever looks for a question under way, and asks where there is none


class Late(Exception):
    """It did not answer in time; its thread is left behind, waiting."""


class _Asking(threading.Thread):
    """A question under way."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.since = time.monotonic()


def within(seconds: float, call: Callable[[], T], *, what: str) -> T:
    """What ``call`` returns or raises; raises Late after ``seconds``.

    A thread that hangs inside a driver cannot be ended. Whoever asks the same (by ``what``) before it came back waits
    for it, until it took ``seconds`` itself, and adds none: a driver that hangs for days takes no thread an hour.
    """
    until = time.monotonic() + seconds
    answer: list[T] = []
    failure: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(call())
        except BaseException as error:
            failure.append(error)

    thread = _Asking(target=ask, name=what, daemon=True)
    while (earlier := _began(thread)) is not thread:
        earlier.join(max(0.0, min(until, earlier.since + seconds) - time.monotonic()))
        if earlier.is_alive():
            raise Late(f"{what} did not come back since it was asked before")
    thread.join(max(0.0, until - time.monotonic()))
    if failure:
        raise failure[0]
    if answer:
        return answer[0]
    raise Late(f"{what} did not answer within {seconds:g} s")


def _began(thread: _Asking) -> _Asking:
    """The thread that asks this now: another one, or this one, begun."""
    with _starting:
        same = (one for one in threading.enumerate() if isinstance(one, _Asking) and one.name == thread.name)
        found = next(same, None)
        if found is None:
            thread.since = time.monotonic()
            thread.start()
        return found or thread
