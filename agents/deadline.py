"""Asking something that may never answer."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Late(Exception):
    """It did not answer in time; its thread is left behind, waiting."""


def within(seconds: float, call: Callable[[], T], *, what: str) -> T:
    """What ``call`` returns or raises; raises Late after ``seconds``. A thread that hangs inside a driver cannot be
    ended: whoever asks again before it came back adds another one, so ask seldom."""
    answer: list[T] = []
    failure: list[BaseException] = []

    def ask() -> None:
        try:
            answer.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=ask, name=what, daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if answer:
        return answer[0]
    raise Late(f"{what} did not answer within {seconds:g} s")
