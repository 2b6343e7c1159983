"""GPUs asked one after the other, each under a deadline of its own."""

import threading

import pytest

from agents.probes.in_turn import Hangs, InTurn
from kcover.fault import Gpu

GPU = Gpu(index=0, uuid="GPU-aaaaaaaa")


class Driver:
    """Hangs in its second call until it is released."""

    def __init__(self):
        self.asked, self.inside, self.release = 0, threading.Event(), threading.Event()

    def hang(self, question):
        self.asked += 1
        question.gpu, question.call = GPU, "nvmlDeviceGetEccMode"
        self.inside.set()
        self.release.wait(60)


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.release.set()


def test_what_answers_is_returned_or_raised():
    gpus = InTurn("the answer", patience=60)
    assert gpus.ask(0, lambda question: "well") == "well"
    with pytest.raises(ZeroDivisionError):
        gpus.ask(0, lambda question: 1 // 0)


def test_one_that_hangs_is_asked_once_and_says_who_it_is_and_where_until_it_comes_back(driver):
    gpus = InTurn("the state", patience=0.05)
    with pytest.raises(Hangs):
        gpus.ask(0, driver.hang)
    assert driver.inside.wait(60)
    seconds = []
    for _ in range(3):
        with pytest.raises(Hangs, match="nvmlDeviceGetEccMode has not come back since") as hangs:
            gpus.ask(0, driver.hang)
        assert hangs.value.gpu == GPU
        seconds.append(hangs.value.seconds)
    assert seconds == sorted(seconds)
    assert driver.asked == 1
    gpus.patience = 60
    assert gpus.ask(1, lambda question: "the next one") == "the next one"
    driver.release.set()
    assert gpus.ask(0, lambda question: "back") == "back"


def test_two_kinds_of_questions_do_not_wait_for_each_other(driver):
    with pytest.raises(Hangs):
        InTurn("the state, again", patience=0.05).ask(0, driver.hang)
    assert InTurn("the name", patience=60).ask(0, lambda question: "answered") == "answered"
