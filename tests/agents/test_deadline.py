"""Calls that may never return."""

import threading
import time

import pytest

from agents.host import deadline
from tests import waiting


def test_a_hanging_call_uses_one_thread_however_often_it_is_repeated():
    release, asked = threading.Event(), []

    def hang():
        asked.append(1)
        release.wait(60)

    for _ in range(5):
        with pytest.raises(deadline.DeadlineExceeded):
            deadline.within(0.02, hang, what="a driver that hangs")
    assert len(asked) == 1
    assert deadline.within(60, lambda: "another question", what="another driver") == "another question"
    release.set()
    assert deadline.within(60, lambda: "back", what="a driver that hangs") == "back"


def test_a_call_that_hangs_is_not_waited_for_again():
    release = threading.Event()
    waited = []
    for _ in range(20):
        started = time.monotonic()
        with pytest.raises(deadline.DeadlineExceeded):
            deadline.within(0.5, lambda: release.wait(60), what="a driver that went away")
        waited.append(time.monotonic() - started)
    assert min(waited) < 0.5 <= max(waited)
    release.set()


def test_two_callers_of_the_same_driver_both_get_their_answers():
    release, began = threading.Event(), threading.Event()

    def slow():
        began.set()
        release.wait(60)
        return "slow"

    answers = []
    first = threading.Thread(target=lambda: answers.append(deadline.within(60, slow, what="one driver")))
    first.start()
    assert began.wait(60)
    threading.Timer(0.05, release.set).start()
    assert deadline.within(60, lambda: "quick", what="one driver") == "quick"
    first.join()
    assert answers == ["slow"]


def test_two_concurrent_callers_use_one_thread_at_a_time(monkeypatch):
    lock, at_once, most = waiting.CountedLock(), [], []
    enumerate_threads = threading.enumerate

    def look_at_once():
        found = enumerate_threads()
        waiting.until(lambda: lock.asked >= 2, "the other caller at the lock")
        return found

    def ask():
        at_once.append(1)
        most.append(len(at_once))
        entered.set()
        go_on.wait(60)
        at_once.pop()
        return "answered"

    entered, go_on, answers = threading.Event(), threading.Event(), []
    monkeypatch.setattr(deadline.threading, "enumerate", look_at_once)
    monkeypatch.setattr(deadline, "_start_lock", lock)
    callers = [
        threading.Thread(target=lambda: answers.append(deadline.within(60, ask, what="a GPU"))) for _ in range(2)
    ]
    for caller in callers:
        caller.start()
    assert entered.wait(60)
    threading.Timer(0.05, go_on.set).start()
    for caller in callers:
        caller.join()
    assert (answers, max(most)) == (["answered"] * 2, 1)


def test_an_exception_of_the_call_is_raised_to_the_caller():
    with pytest.raises(ValueError, match="no such GPU"):
        deadline.within(60, _refuse, what="a driver")


def _refuse():
    raise ValueError("no such GPU")
