"""The driver's Xids beside the kernel log's: one fault is told once."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents import deadline
from agents.probes import nvml
from agents.second_source import SecondSource

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Node:
    def __init__(self):
        self.now = START
        self.log = []  # what the kernel log told: code, slot, when
        self.events = []
        self.told = []
        self.opened = self.closed = 0
        self.error = None
        self.caught_up = True
        self.source = SecondSource(
            logged=self.logged,
            caught_up=lambda: self.caught_up,
            keep=self.keep,
            clock=lambda: self.now,
            connect=self.connect,
        )

    def logged(self, code, pci, *, since):
        return any(one == code and slot == pci and at >= since for one, slot, at in self.log)

    def keep(self, checks, faults, now):
        self.told += [(fault.code, fault.pci, fault.source) for fault in faults]
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

    def turn(self, *, after=1.0):
        self.now += timedelta(seconds=after)
        return self.source.turn()


@pytest.fixture
def node():
    return Node()


def test_what_the_log_tells_too_is_told_once(node):
    node.events = [(79, "0000:4e:00")]
    node.turn()
    node.log.append((79, "0000:4e:00", node.now))  # the log's line comes a moment later
    node.turn(after=11)
    node.events = [(48, "0000:4e:00")]
    node.log.append((48, "0000:4e:00", node.now))  # or before
    node.turn(after=5)
    node.turn(after=11)
    assert node.told == []


def test_what_the_log_does_not_tell_is_told_after_a_moment(node):
    node.events = [(79, "0000:4e:00")]
    node.log.append((79, "0000:5e:00", node.now))  # another GPU
    node.turn()
    node.turn(after=9)
    assert node.told == []
    node.turn(after=1)
    assert node.told == [(79, "0000:4e:00", "nvml")]
    node.turn(after=60)
    assert len(node.told) == 1


def test_while_the_log_is_left_unread_events_wait_and_are_counted(node):
    """A full spool stops the reading; what the driver tells meanwhile is in the log, too."""
    node.caught_up = False
    for code in (79, 62) * 100:
        node.events = [(code, "0000:4e:00")]
        node.turn()
    assert node.told == []
    node.log.append((79, "0000:4e:00", node.now))  # there is room again, the log is read: it lacks the 62
    node.caught_up = True
    node.turn()
    assert (node.told, node.counts) == ([(62, "0000:4e:00", "nvml")], [100])


def test_without_a_driver_it_is_asked_seldom(node):
    node.error = nvml.DriverError("not loaded", code=nvml.DRIVER_NOT_LOADED)
    assert node.turn() == 300
    node.error = None
    assert node.turn() == 0
    assert node.opened == 1


def test_a_line_that_breaks_is_opened_anew(node):
    node.turn()
    node.wait = lambda seconds: (_ for _ in ()).throw(nvml.DriverError("reset", code=999))
    node.turn()
    assert node.closed == 1
    del node.wait
    node.turn()
    assert node.opened == 2


def test_hands_off_lets_go_and_takes_up_again(node):
    node.turn()
    with node.source.hands_off():
        assert (node.opened, node.closed) == (1, 1)
        other = threading.Thread(target=node.source.turn)  # its own thread goes on, and must not open the driver
        other.start()
        other.join(0.3)
        assert node.opened == 1
    other.join(10)
    node.turn()
    assert node.opened == 2


@pytest.mark.parametrize("what", ["connect", "wait", "close"])
def test_a_driver_that_hangs_is_not_waited_for_for_ever(node, what):
    began, hung = threading.Event(), threading.Event()

    def hang(*args):
        began.set()
        hung.wait(10)
        return node if what == "connect" else None

    source = SecondSource(
        logged=node.logged,
        caught_up=lambda: True,
        keep=node.keep,
        clock=lambda: node.now,
        connect=node.connect,
        patience=0.05,
    )
    if what == "close":
        source.turn()
        node.close = hang
    elif what == "wait":
        node.wait = hang
    else:
        source._connect = hang
    if what != "close":
        listening = threading.Thread(target=source.turn)
        listening.start()
        assert began.wait(10)
    with pytest.raises(deadline.Late), source.hands_off():
        pytest.fail("the driver is not let go of")
    hung.set()
    if what != "close":
        listening.join()
    assert source._resume.is_set()
