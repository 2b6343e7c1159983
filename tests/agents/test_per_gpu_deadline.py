"""GPUs are queried one after the other, each under its own deadline."""

import threading

import pytest

from agents.probes.gpu.per_gpu_deadline import GpuHangs, PerGpuDeadline
from kcover.faults.fault import Gpu

GPU = Gpu(index=0, uuid="GPU-aaaaaaaa")


class Driver:
    """GpuHangs in its second call until it is released."""

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


def test_the_result_or_exception_of_the_call_is_passed_on():
    gpus = PerGpuDeadline("the answer", timeout=60)
    assert gpus.run(0, lambda question: "well") == "well"
    with pytest.raises(ZeroDivisionError):
        gpus.run(0, lambda question: 1 // 0)


def test_a_hanging_gpu_is_queried_once_and_named_until_it_returns(driver):
    gpus = PerGpuDeadline("the state", timeout=0.05)
    with pytest.raises(GpuHangs):
        gpus.run(0, driver.hang)
    assert driver.inside.wait(60)
    seconds = []
    for _ in range(3):
        with pytest.raises(GpuHangs, match="nvmlDeviceGetEccMode has not returned for") as hangs:
            gpus.run(0, driver.hang)
        assert hangs.value.gpu == GPU
        seconds.append(hangs.value.seconds)
    assert seconds == sorted(seconds)
    assert driver.asked == 1
    gpus.timeout = 60
    assert gpus.run(1, lambda question: "the next one") == "the next one"
    driver.release.set()
    assert gpus.run(0, lambda question: "back") == "back"


def test_two_kinds_of_questions_do_not_wait_for_each_other(driver):
    with pytest.raises(GpuHangs):
        PerGpuDeadline("the state, again", timeout=0.05).run(0, driver.hang)
    assert PerGpuDeadline("the name", timeout=60).run(0, lambda question: "answered") == "answered"
