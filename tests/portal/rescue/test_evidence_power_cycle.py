"""A power cycle destroys evidence like a reboot, and waits for it like one."""

from datetime import timedelta

import pytest

from kcover_portal.rescue.step.evidence import WAIT_LIMIT
from tests import proofs
from tests.codes import code_of
from tests.portal.rescue.test_actions_power_cycle import Machine, machine
from tests.portal.rescue.test_evidence import drained, entries, requested, upload

__all__ = ["machine"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def collecting(machine: Machine) -> Machine:
    """The machine, whose agent collects evidence and whose fault is at the power cycle."""
    machine.collects_evidence = True
    machine.report()
    machine.fault(62)
    drained(machine)
    return machine


def test_the_machine_stays_on_until_the_evidence_is_there(collecting: Machine) -> None:
    (command,) = requested()
    collecting.work()
    assert collecting.controller.asked == []
    upload(collecting, command)
    collecting.heal()
    assert collecting.controller.asked == ["ForceOff", "On"]
    assert code_of(collecting.step("power_cycle").progress["evidence"]) == "evidence_stored"
    assert proofs.broken_claim(collecting.rescue()) == ""


def test_inv_49_evidence_delays_a_power_cycle_by_20_s_at_most(collecting: Machine) -> None:
    began = collecting.now
    while not collecting.controller.asked:
        assert collecting.now - began < WAIT_LIMIT + timedelta(seconds=3), collecting.step("power_cycle").because
        collecting.pass_time(2)
        collecting.report()
        collecting.work()
    assert collecting.now - began >= WAIT_LIMIT
    (entry,) = entries("evidence.missed")
    assert entry.data["name"] == "power_cycle"
    collecting.heal()
    assert proofs.broken_claim(collecting.rescue()) == ""
