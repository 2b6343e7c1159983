"""Xids of the driver and of the kernel log: each fault is reported once."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents.host import deadline
from agents.probes.gpu import nvml
from agents.probes.gpu.nvml_events import XidEventMonitor
from tests import waiting

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Node:
    def __init__(self):
        self.now = START
        self.log = []  # what the kernel log told: code, slot, when
        self.events = []
        self.reports = []
        self.opened = self.closed = 0
        self.error = None
        self.caught_up = True
        self.source = XidEventMonitor(
            seen_in_log=self.logged,
            caught_up=lambda: self.caught_up,
            sink=self.keep,
            clock=lambda: self.now,
            connect=self.connect,
        )

    def logged(self, code, pci, *, since):
        return any(one == code and slot == pci and at >= since for one, slot, at in self.log)

    def keep(self, checks, faults, now):
        self.reports += [(fault.code, fault.pci, fault.source) for fault in faults]
        self.counts = [fault.count for fault in faults]

    def connect(self):
        if self.error:
            raise self.error
        self.opened += 1
        return self

    def wait(self, seconds):
        return self.events.pop(0) if self.events else None

    def close(self):
        self.closed += 1

    def run_once(self, *, after=1.0):
        self.now += timedelta(seconds=after)
        return self.source.run_once()


@pytest.fixture
def node():
    return Node()


def test_an_event_that_the_log_shows_too_is_not_reported_again(node):
    node.events = [(79, "0000:4e:00")]
    node.run_once()
    node.log.append((79, "0000:4e:00", node.now))  # the log's line comes a moment later
    node.run_once(after=11)
    node.events = [(48, "0000:4e:00")]
    node.log.append((48, "0000:4e:00", node.now))  # or before
    node.run_once(after=5)
    node.run_once(after=11)
    assert node.reports == []


def test_an_event_that_the_log_lacks_is_reported_after_ten_seconds(node):
    node.events = [(79, "0000:4e:00")]
    node.log.append((79, "0000:5e:00", node.now))  # another GPU
    node.run_once()
    node.run_once(after=9)
    assert node.reports == []
    node.run_once(after=1)
    assert node.reports == [(79, "0000:4e:00", "nvml")]
    node.run_once(after=60)
    assert len(node.reports) == 1


def test_while_the_log_is_left_unread_events_wait_and_are_counted(node):
    """A full spool stops the reading; what the driver tells meanwhile is in the log, too."""
    node.caught_up = False
    for code in (79, 62) * 100:
        node.events = [(code, "0000:4e:00")]
        node.run_once()
    assert node.reports == []
    node.log.append((79, "0000:4e:00", node.now))  # there is room again, the log is read: it lacks the 62
    node.caught_up = True
    node.run_once()
    assert (node.reports, node.counts) == ([(62, "0000:4e:00", "nvml")], [100])


def test_an_absent_driver_is_queried_every_five_minutes(node):
    node.error = nvml.DriverError("not loaded", code=nvml.DRIVER_NOT_LOADED)
    assert node.run_once() == 300
    node.error = None
    assert node.run_once() == 0
    assert node.opened == 1


def test_a_broken_event_session_is_opened_again(node):
    node.run_once()
    node.wait = lambda seconds: (_ for _ in ()).throw(nvml.DriverError("reset", code=999))
    node.run_once()
    assert node.closed == 1
    del node.wait
    node.run_once()
    assert node.opened == 2


def test_event_sessions_are_released_and_opened_again(node):
    node.run_once()
    node.source._driver_lock = lock = waiting.CountedLock()
    with node.source.release_gpus():
        assert (node.opened, node.closed) == (1, 1)
        other = threading.Thread(target=node.source.run_once)  # its own thread goes on, and must not open the driver
        other.start()
        waiting.until(lambda: lock.asked == 2, "the other thread at the driver's lock")
        assert node.opened == 1
    other.join(60)
    node.run_once()
    assert node.opened == 2


@pytest.mark.parametrize("what", ["connect", "wait", "close"])
def test_a_driver_that_hangs_is_not_waited_for_forever(node, what):
    began, hung = threading.Event(), threading.Event()

    def hang(*args):
        began.set()
        hung.wait(60)
        return node if what == "connect" else None

    source = XidEventMonitor(
        seen_in_log=node.logged,
        caught_up=lambda: True,
        sink=node.keep,
        clock=lambda: node.now,
        connect=hang if what == "connect" else node.connect,
        release_timeout=0.05,
    )
    if what == "close":
        source.run_once()
        node.close = hang
    elif what == "wait":
        node.wait = hang
    if what != "close":
        listening = threading.Thread(target=source.run_once)
        listening.start()
        assert began.wait(60)
    with pytest.raises(deadline.DeadlineExceeded), source.release_gpus():
        pytest.fail("the driver is not let go of")
    hung.set()
    if what != "close":
        listening.join()
    listened = []
    node.wait = listened.append
    source.run_once()
    assert listened
