"""Figures of GPUs: what probes find goes with one heartbeat in each quarter of an hour."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.probes.figures import MAX_AGE, GpuFigures
from agents.probes.finding import Observation, Severity, finding
from agents.uplink.protocol import UplinkError
from kcover.nodes.gpu_figures import QUARTER
from tests.agents.test_agent import Bench

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
FOUND = Observation(
    findings=(
        finding("temperature", Severity.OK, device="GPU-1", value=41, unit="C to slowdown"),
        finding("ecc", Severity.WARNING, device="GPU-1", value=2, message="2 errors"),
        finding("clocks", Severity.OK, device="GPU-1", value=4),  # no figure
        finding("remapped", Severity.SKIPPED, device="GPU-1"),
        finding("nvlink", Severity.OK, value=18),  # of no GPU
    ),
    figures={("GPU-1", "power"): 412.5, ("GPU-2", "power"): 300.0},
)
VALUES = {"GPU-1": {"power": 412.5, "temperature": 41, "ecc": 2}, "GPU-2": {"power": 300.0}}


def test_figures_are_due_once_a_quarter():
    figures = GpuFigures("gpu-1")
    assert figures.due(START) == {}
    figures.note(FOUND, START)
    assert figures.due(START) == figures.due(START + timedelta(seconds=30)) == VALUES
    figures.accepted(START)
    times = [START + timedelta(seconds=30) * number for number in range(120)]
    sent = []
    for now in times:
        figures.note(FOUND, now)
        if figures.due(now):
            sent.append(now)
            figures.accepted(now)
    assert len(sent) == 4
    assert {later - earlier for earlier, later in itertools.pairwise(sent)} == {QUARTER}


def test_repeated_findings_are_no_new_values():
    """MetaX GPUs are measured once a day, and their findings repeated each minute."""
    figures = GpuFigures("gpu-1")
    figures.note(replace(FOUND, repeated=True), START)
    assert figures.due(START) == {}


def test_a_fleet_does_not_send_at_once():
    moments = set()
    for number in range(100):
        figures = GpuFigures(f"gpu-{number:04}")
        figures.accepted(START)
        moments.add(next(second for second in range(900) if figures.are_due(START + timedelta(seconds=second))))
    assert len(moments) > 60


def test_figures_of_a_probe_that_hangs_are_not_sent():
    figures = GpuFigures("gpu-1")
    figures.note(FOUND, START)
    figures.note(Observation(figures={("GPU-1", "power"): 99.0}), START + timedelta(minutes=4))
    assert figures.due(START + MAX_AGE) == {"GPU-1": VALUES["GPU-1"] | {"power": 99.0}, "GPU-2": {"power": 300.0}}
    assert figures.due(START + MAX_AGE + timedelta(seconds=1)) == {"GPU-1": {"power": 99.0}}


@pytest.mark.parametrize("lost", [False, True])
def test_a_heartbeat_carries_them_until_one_arrives(lost):
    bench = Bench()
    bench.step()
    bench.agent.figures.note(FOUND, bench.now)
    bench.portal.errors = [UplinkError("down")] if lost else []
    sent = [report.figures for _ in range(200) for report in bench.step(1)]
    assert [figures for figures in sent if figures] == [VALUES] * (1 + lost)
