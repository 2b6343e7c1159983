"""The probe of the clock: fake chrony, and a fake kernel."""

import struct

import pytest

from agents.probes.host import clock
from tests.agents.probe_run import ProbeRun
from tests.agents.tools import tracking


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        (tracking("05333243"), "pass", 5.333),
        (tracking("10000000"), "pass", 10.0),
        (tracking("10100000", way="slow"), "warn", 10.1),
    ],
)
def test_the_clock_by_chrony(tools, text, status, value):
    tools.say("chronyc", text)
    (found,) = ProbeRun(clock.ClockProbe(kernel=lambda: clock.KernelClock(True))).observe()
    assert (found.check.status, found.check.value, found.check.unit, found.is_fault) == (status, value, "ms", False)


@pytest.mark.parametrize("kept", [True, False])
def test_the_clock_by_the_kernel_where_chrony_cannot_say(tools, kept):
    probe_run = ProbeRun(clock.ClockProbe(kernel=lambda: clock.KernelClock(not kept)))
    assert probe_run.all() == [("clock", "", "pass" if kept else "warn")]
    tools.say("chronyc", "506 Cannot talk to daemon", status=1)
    assert probe_run.all() == [("clock", "", "pass" if kept else "warn")]
    tools.say("chronyc", tracking("00000000", leap="Not synchronised"))
    assert probe_run.all() == [("clock", "", "pass" if kept else "warn")]


@pytest.mark.parametrize(
    ("offset", "status", "kept"),
    [
        (-12_300_000, clock.STA_PLL | clock.STA_NANO, clock.KernelClock(False, 12.3)),
        (4_500, clock.STA_PLL, clock.KernelClock(False, 4.5)),  # microseconds
        (4_500, 0, clock.KernelClock(False)),  # chrony's: nobody set it
        (4_500, clock.STA_PLL | clock.STA_UNSYNC, clock.KernelClock(True)),
    ],
)
def test_the_kernels_clock_state_is_decoded(offset, status, kept):
    assert clock.read_timex(struct.pack("@Illlli", 0, offset, 1, 2, 3, status) + bytes(64)) == kept


@pytest.mark.parametrize(("offset", "status"), [(3.21, "pass"), (30.0, "warn")])
def test_the_offset_by_the_kernel_where_there_is_no_chrony(tools, offset, status):
    (found,) = ProbeRun(clock.ClockProbe(kernel=lambda: clock.KernelClock(False, offset))).observe()
    assert (found.check.status, found.check.value, found.check.unit, found.is_fault) == (status, offset, "ms", False)


def test_the_kernels_clock_state_of_this_machine_is_readable():
    assert clock.read_kernel_clock().unsynchronized in (True, False)
