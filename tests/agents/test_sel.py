"""The probe of the IPMI event log, with a fake ipmitool."""

import pytest

from agents.probes.host import sel
from tests.agents.probe_run import ProbeRun

SEL = """   1 | 10/02/2026 | 11:00:00 | Drive Slot / Bay #0x52 | Drive Present | Asserted
   2 | 10/02/2026 | 11:00:02 | Critical Interrupt #0x17 | Bus Fatal Error | Asserted
   3 | 10/02/2026 | 11:00:09 | Critical Interrupt #0x17 | Bus Fatal Error | Deasserted
"""


@pytest.fixture
def controller(tmp_path):
    (tmp_path / "ipmi0").touch()
    return ProbeRun(sel.SelProbe(devices=(tmp_path / "none", tmp_path / "ipmi0")))


def test_a_new_critical_interrupt_warns_once_and_an_old_one_is_history(tools, controller):
    tools.say("ipmitool", SEL)
    assert controller.bad() == []
    tools.say(
        "ipmitool", SEL + "   4 | 11/21/2026 | 08:01:02 | Critical Interrupt #0x17 | Bus Fatal Error | Asserted\n"
    )
    (found,) = controller.observe()
    assert (found.check.status, found.check.value, found.is_fault) == ("warn", 1, False)
    assert found.check.message == "4 11/21/2026 08:01:02 Critical Interrupt #0x17 Bus Fatal Error"
    assert controller.bad() == []
    tools.say("ipmitool", "SEL has no entries")  # somebody cleared it
    assert controller.bad() == []


def test_inv_42_a_controller_that_cannot_be_queried_is_no_bad_node(tools, controller, tmp_path):
    assert controller.bad() == [("sel", "", "skipped", False)]
    tools.say("ipmitool", "Could not open device at /dev/ipmi0", status=1)
    assert controller.bad() == [("sel", "", "error", False)]
    tools.add("ipmitool", f"[ \"$*\" = 'sel list last 100' ] && echo '{SEL}'")
    assert controller.bad() == []
    assert ProbeRun(sel.SelProbe(devices=(tmp_path / "none",))).observe() == ()
