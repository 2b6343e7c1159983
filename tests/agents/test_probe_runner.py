"""Probes under deadlines: a probe that hangs or breaks is a finding, and does not delay others."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from agents.probes.finding import Observation, Severity, finding
from agents.probes.probe_runner import ProbeRunner
from kcover.faults.fault import Fault
from tests import waiting

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Probe:
    def __init__(self, name, *, interval_seconds=60.0, deadline_seconds=30.0, hang_severity=Severity.FAILURE):
        self.name, self.hang_severity = name, hang_severity
        self.interval_seconds, self.deadline_seconds = interval_seconds, deadline_seconds
        self.looks = 0
        self.hangs = threading.Event()
        self.hangs.set()
        self.reading = Observation(findings=(finding(name, Severity.OK),))

    def observe(self, now):
        self.looks += 1
        assert self.hangs.wait(waiting.HANG_SECONDS)
        if isinstance(self.reading, Exception):
            raise self.reading
        return self.reading


class Node:
    def __init__(self, *probes):
        self.seconds = 0.0
        self.checks, self.faults, self.observed = [], [], []
        self.probes = probes
        self.runner = ProbeRunner(
            probes, sink=self.keep, observed=self.observe, clock=self.clock, monotonic=lambda: self.seconds
        )

    def clock(self):
        return START + timedelta(seconds=self.seconds)

    def observe(self, observation, now):
        self.observed.append((observation, now))

    def keep(self, checks, faults, now):
        self.checks += [(check.name, check.device, check.status) for check in checks]
        self.faults += [(fault.kind, fault.code) for fault in faults]

    def turn(self, *, after=0.0):
        """Time passes; then every look that does not hang ends and is taken in."""
        self.seconds += after
        self.runner.run_due()
        ending = {f"probe-{probe.name}" for probe in self.probes if probe.hangs.is_set()}
        for thread in threading.enumerate():
            if thread.name in ending:
                thread.join(waiting.HANG_SECONDS)
        waiting.until(lambda: all(probe.looks for probe in self.probes), "every probe to have looked")
        self.runner.run_due()
        reported, self.checks = self.checks, []
        return reported


@pytest.fixture
def probe():
    probe = Probe("nvml", hang_severity=Severity.FAULT)
    yield probe
    probe.hangs.set()


def test_each_probe_looks_when_it_is_due(probe):
    other = Probe("clock", interval_seconds=300.0)
    node = Node(probe, other)
    reported = node.turn()
    assert sorted(reported) == [
        ("clock", "", "pass"),
        ("nvml", "", "pass"),
        ("probe", "clock", "pass"),
        ("probe", "nvml", "pass"),
    ]
    for _ in range(6):
        assert node.turn(after=50) == []
    assert (probe.looks, other.looks) == (4, 2)
    assert [observation for observation, _now in node.observed].count(probe.reading) == 4  # also what is not reported


def test_a_probe_that_breaks_is_an_error_of_the_probe(probe):
    node = Node(probe)
    node.turn()
    probe.reading = RuntimeError("what is this")
    assert node.turn(after=61) == [("probe", "nvml", "error")]
    assert node.faults == []
    probe.reading = Observation()
    assert node.turn(after=61) == [("probe", "nvml", "pass")]


def test_a_probe_that_hangs_is_late_then_hung_and_delays_no_other_probe(probe):
    other = Probe("clock", interval_seconds=10.0)
    node = Node(probe, other)
    probe.hangs.clear()
    assert ("probe", "clock", "pass") in node.turn()
    assert node.runner.late_probes == ()
    assert node.turn(after=31) == [("probe", "nvml", "warn")]
    assert node.runner.late_probes == ("nvml",)
    assert node.faults == []
    assert node.turn(after=90) == [("probe", "nvml", "fail")]
    assert node.faults == [("check", "probe")]
    assert (probe.looks, other.looks) == (1, 3)  # nobody asks a hung driver again
    probe.hangs.set()
    assert ("probe", "nvml", "pass") in node.turn(after=1)
    assert node.runner.late_probes == ()


def test_faults_beside_findings_are_reported_each_time(probe):
    probe.reading = Observation(faults=(Fault(kind="xid", code=79, pci="0000:4e:00"),))
    node = Node(probe)
    node.turn()
    node.turn(after=61)
    assert node.faults == [("xid", 79)] * 2
