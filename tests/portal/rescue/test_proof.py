"""Invariant 38: a node takes work again only after its health is proved, and missing reports prove nothing."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover.faults.fault import Check, Fault
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.actions import verify
from tests.codes import code_of, codes_of
from tests.portal.rescue import agents
from tests.portal.rescue.test_actions_reset import POLICY as RESET, asked
from tests.portal.rescue.world import HEAL, NODE, PCI, World

pytestmark = pytest.mark.django_db
XID = Fault(kind="xid", code=62, pci=PCI, source="kmsg")
CHECKED = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: checked}
spec:
  rules:
    - priority: 10
      match: {checks: [remapped]}
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
"""


@pytest.fixture
def make():
    made = []

    def world(policy=HEAL, **guards):
        made.append(World(policy=policy))
        if guards:
            cluster_settings.set_guards(made[-1].cluster, guards, actor="t", reason="", now=made[-1].now)
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


def tell(world, status, *faults):
    """The agent tells how a check went."""
    check = Check(name="remapped", status=status, device=f"GPU-{NODE}-0", value=1.0)
    world.report(*faults, checks=(check,))


def reset_for_a_check(make):
    world = make(CHECKED, hold_down=5)
    agents.comes_up(world)
    tell(world, "fail", Fault(kind="check", code="remapped", gpu_uuid=f"GPU-{NODE}-0", source="check"))
    agents.answers(world, asked(world))
    for _ in range(10):
        world.pass_time(3)
        world.report()  # it lives; what is still so it tells again later
    return world


def test_inv_38_a_check_that_has_not_passed_since_the_repair_keeps_the_node_out(make):
    world = reset_for_a_check(make)
    assert world.step("verify").why == reasons.of("checks_not_passed_yet", checks=f"remapped GPU-{NODE}-0")
    assert world.kube.get_node(NODE).unschedulable
    tell(world, "pass")
    assert world.until("succeeded", seconds=5).outcome == "healed"


def test_inv_38_a_check_that_never_passes_is_held_for_a_person(make):
    world = reset_for_a_check(make)
    world.pass_time(verify.CHECK_WITHIN.total_seconds())
    world.report()
    world.pass_time(60)
    rescue = world.rescue()
    assert (rescue.state, rescue.needs_human) == ("held", True)
    assert code_of(rescue.because) == "checks_still_fail"


def test_inv_38_a_fault_that_a_person_closed_requires_no_check(make):
    world = reset_for_a_check(make)
    Incident.objects.update(state="closed")
    assert world.until("succeeded", seconds=5).outcome == "healed"


def test_inv_38_an_agent_that_reported_once_and_fell_silent_is_no_proof(make):
    world = make(hold_down=3600)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.pass_time(3600)
    world.pass_time(60)
    assert code_of(world.step("verify").because) == "verify_waits_for_silent_agent"
    assert world.rescue().state == "waiting"
    world.report()
    assert world.until("succeeded").outcome == "healed"


def test_inv_38_an_agent_that_stays_silent_leaves_the_node_to_a_person(make):
    world = make(hold_down=3600)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.pass_time(3600)
    for _ in range(3):
        world.pass_time(verify.AGENT_TIME_LIMIT.total_seconds())
    assert (world.rescue().state, world.kube.get_node(NODE).unschedulable) == ("held", True)


def test_inv_38_a_late_fault_of_the_boot_before_hides_none_of_this_boot(make):
    world = make()
    old = world.kube.get_node(NODE).boot_id
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.report(XID)
    world.report(XID, boot_id=old)
    world.report()
    for _ in range(20):
        world.pass_time(2)
        world.report()
    assert world.rescue().outcome != "healed"
    assert len(world.kube.called("ensure_job")) == 2


def test_inv_38_a_report_of_the_boot_before_is_no_report(make):
    world = make()
    old = world.kube.get_node(NODE).boot_id
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    for _ in range(10):
        world.pass_time(2)
        world.report(boot_id=old)
    assert code_of(world.step("verify").because) == "verify_waits_for_agent"
    assert world.kube.get_node(NODE).unschedulable


def test_inv_38_a_report_from_before_ready_is_no_report(make):
    world = make()
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.report()
    for _ in range(10):
        world.pass_time(2)
    assert code_of(world.step("verify").because) == "verify_waits_for_agent"
    assert world.kube.get_node(NODE).unschedulable


def test_inv_38_the_hold_down_time_is_waited_out(make):
    world = make(hold_down=300)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    back = world.step("ready").finished_at
    while world.rescue().state != "succeeded":
        assert world.kube.get_node(NODE).unschedulable
        world.pass_time(20)
        world.report()
        assert world.now - back < timedelta(minutes=10)
    assert world.now - back >= timedelta(minutes=5)


def test_inv_38_a_node_that_reboots_again_is_not_verified(make):
    world = make(hold_down=60)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.kube.reboot(NODE)
    for _ in range(5):
        world.pass_time(2)
        world.report()
    rescue = world.rescue()
    assert (rescue.state, rescue.needs_human) == ("failed", True)
    assert codes_of(rescue.because) == ["step_ended", "rebooted_again"]
    assert world.kube.get_node(NODE).unschedulable


def test_inv_35_resets_count_as_reboots_do(make):
    world = make(RESET, hold_down=2, repeats={"limit": 2})
    agents.comes_up(world)
    for times in (1, 2):
        world.fault(62)
        while len(agents.commands("reset_gpu")) < times:
            world.pass_time()
        agents.answers(world, agents.commands("reset_gpu")[-1])
        world.until("waiting", step="verify")
        world.pass_time()
        world.report()
        world.until("succeeded")
        world.pass_time(60)
    world.fault(62)
    for _ in range(10):
        world.pass_time(10)
    assert len(agents.commands("reset_gpu")) == 2
    assert Incident.objects.latest("pk").decisions.latest("pk").answer == "hold"
