"""A log without new lines: the agent waits for a line, and seldom reads."""

import os
import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from agents import supervisor
from agents.probes.log.reader import LogReader
from agents.probes.log.sources import KmsgDevice, MemoryLog

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
LINE = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def pipe(tmp_path):
    """The path of a pipe with a writer, and the writer."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    yield path, writer
    os.close(writer)


def test_waiting_returns_whether_the_log_has_a_line(pipe):
    path, writer = pipe
    source = KmsgDevice(path)
    assert source.wait(0.01)  # not opened yet
    source.read(boot_id="b", now=NOW)
    assert not source.wait(0.01)
    os.write(writer, b"a line\n")
    assert source.wait(10.0)
    source.close()


def test_a_write_to_a_memory_log_wakes_a_waiting_reader():
    source = MemoryLog()
    assert not source.wait(0.01)
    source.write("a line", at=NOW)
    assert source.wait(10.0)
    source.read(boot_id="b", now=NOW)
    assert not source.wait(0.01)


def test_a_repeated_fault_is_held_until_its_window_closes():
    source = MemoryLog()
    logs = LogReader([source], {})
    for second in range(2):
        source.write(LINE, at=NOW + timedelta(seconds=second))
        assert logs.is_holding is False
        logs.read(boot_id="b", now=NOW + timedelta(seconds=second))
    assert logs.is_holding is True
    (fault,) = logs.read(boot_id="b", now=NOW + timedelta(seconds=9)).faults
    assert (fault.code, fault.count) == (79, 1)
    assert logs.is_holding is False


class Waiting:
    """An agent with a log that shows a line at the given wait, or never."""

    def __init__(self, *, line_at=None, is_holding=False):
        self.waits, self.reads, self._line_at = 0, 0, line_at
        self.now = 0.0  # of the monotonic clock
        self.logs = SimpleNamespace(sources=(self,), is_holding=is_holding)
        self.spool = SimpleNamespace(full=False)
        self.clock = lambda: NOW

    def observe(self, now):
        self.reads += 1
        return False

    def wait(self, seconds):
        self.waits += 1
        self.now += seconds
        return self.waits == self._line_at


@pytest.mark.parametrize(
    ("agent", "waits"),
    [(Waiting(), 5), (Waiting(line_at=2), 2), (Waiting(is_holding=True), 1)],
    ids=["no line", "a line", "a held fault"],
)
def test_reads_of_an_idle_log_are_delayed(agent, waits, monkeypatch):
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: agent.now))
    monkeypatch.setattr(supervisor, "IDLE_LOG_SECONDS", 5 * supervisor.LOG_POLL_SECONDS)
    supervisor._observe(agent, threading.Event(), threading.Event())
    assert (agent.reads, agent.waits) == (1, waits)


def test_an_agent_that_stops_waits_no_longer():
    agent, stop = Waiting(), threading.Event()
    stop.set()
    supervisor._observe(agent, threading.Event(), stop)
    assert agent.waits == 1
