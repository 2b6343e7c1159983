"""Approvals on the engine: who may say yes to what, for how long, and what happens when nobody does."""

import pytest

from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db

GATED = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: gated}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      approval: {required: true, approvers: %d, expires: 1h}
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: reboot, attribute: {unCordon: "true"}}
"""


@pytest.fixture
def gated(request):
    world = World(policy=GATED % getattr(request, "param", 1))
    world.fault(62)
    world.work()
    yield world
    world.uninstall()


def vote(world: World, by: str, *, yes: bool = True) -> Rescue:
    act = services.approve if yes else services.reject
    return act(world.rescue(), actor=f"user:{by}", reason="seen", now=world.now, plan_hash=world.rescue().plan_hash)


def test_inv_43_a_gated_step_waits_and_what_is_safe_was_done(gated: World) -> None:
    rescue = gated.rescue()
    assert (rescue.state, rescue.hold, rescue.needs_human, rescue.gate) == ("held", "approval", True, 1)
    assert gated.kube.get_node(NODE).unschedulable
    assert gated.step("drain").attempts == 0
    gated.pass_time(600)
    assert gated.step("drain").attempts == 0
    vote(gated, "ann")
    gated.until_reboot_is_asked()
    gated.reboot()
    assert gated.until("succeeded").outcome == "healed"
    assert Approval.objects.get().step == 1


def test_inv_43_a_yes_for_another_plan_is_refused(gated: World) -> None:
    with pytest.raises(services.Refused, match="plan"):
        services.approve(gated.rescue(), actor="user:ann", reason="", now=gated.now, plan_hash="0" * 16)
    assert not Approval.objects.exists()


def test_inv_43_a_plan_that_changed_after_the_yes_is_not_run(gated: World) -> None:
    vote(gated, "ann")
    Rescue.objects.update(plan_hash="f" * 16)  # whoever changed it, the yes was to another
    gated.work()
    rescue = gated.rescue()
    assert (rescue.state, rescue.hold) == ("held", "approval")
    assert gated.step("drain").attempts == 0


def test_inv_44_expiry_leads_to_the_safe_state_isolated_not_rebooted(gated: World) -> None:
    gated.pass_time(3601)
    services.sweep(now=gated.now)
    rescue = gated.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "expired", True)
    assert gated.kube.get_node(NODE).unschedulable
    assert gated.kube.called("evict") == []
    assert gated.kube.called("ensure_job") == []
    with pytest.raises(services.Refused):
        vote(gated, "ann")


def test_inv_44_a_yes_after_the_fault_healed_does_nothing(gated: World) -> None:
    incidents.close([Incident.objects.get().pk], because="gone", actor="user:bob", now=gated.now)
    rescue = vote(gated, "ann")
    assert (rescue.state, rescue.outcome) == ("cancelled", "void")
    gated.pass_time()
    assert gated.kube.called("evict") == []


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_inv_44_two_persons_and_neither_counts_twice(gated: World) -> None:
    assert vote(gated, "ann").state == "held"
    with pytest.raises(services.Refused, match="already"):
        vote(gated, "ann")
    assert vote(gated, "bob").state == "running"


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_one_no_is_enough(gated: World) -> None:
    vote(gated, "ann")
    rescue = vote(gated, "bob", yes=False)
    assert (rescue.state, rescue.outcome) == ("cancelled", "rejected")
    assert gated.kube.get_node(NODE).unschedulable


def test_inv_44_who_asked_cannot_approve(gated: World) -> None:
    Rescue.objects.update(requested_by="user:ann")
    with pytest.raises(services.Refused, match="somebody else"):
        vote(gated, "ann")


def test_inv_45_of_two_clicks_one_is_told_that_it_was_late(gated: World) -> None:
    vote(gated, "ann")
    with pytest.raises(services.Refused, match="any more"):
        vote(gated, "bob")
    gated.until_reboot_is_asked()
    assert len(gated.kube.called("ensure_job")) == 1


def test_in_approve_mode_nothing_is_done_before_the_yes() -> None:
    world = World()
    Cluster.objects.update(mode="approve")
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.gate) == ("held", "approval", 0)
    assert not world.kube.get_node(NODE).unschedulable
    vote(world, "ann")
    world.work()
    assert world.kube.get_node(NODE).unschedulable
    world.uninstall()


def test_inv_43_an_attempt_that_a_guard_held_back_uses_up_no_approval(gated: World) -> None:
    vote(gated, "ann")
    fleet.pause(cluster=gated.cluster, reason="stop", actor="user:bob", now=gated.now)
    gated.pass_time(10)
    gated.pass_time(4000)  # the yes has run out meanwhile
    fleet.resume(cluster=gated.cluster, reason="go", actor="user:bob", now=gated.now)
    for _ in range(3):
        gated.pass_time(10)
    rescue = gated.rescue()
    assert (rescue.state, rescue.hold) == ("held", "approval")
    assert gated.kube.called("evict") == []
    assert gated.kube.called("ensure_job") == []


def test_inv_20_an_uncordon_by_hand_ends_the_question(gated: World) -> None:
    gated.kube.apply_node(NODE, port.NodeChange(cordon=False))
    gated.pass_time(1)
    for _ in range(3):
        gated.pass_time(31)
    node = gated.kube.get_node(NODE)
    assert Rescue.objects.filter(origin="policy").get().state == "cancelled"
    assert not [key for key in (*node.labels, *node.annotations) if key.startswith("kcover.io/")]
    assert not node.unschedulable


def test_a_question_about_what_has_healed_is_taken_back(gated: World) -> None:
    incidents.close([Incident.objects.get().pk], because="gone", actor="user:bob", now=gated.now)
    services.sweep(now=gated.now)
    assert (gated.rescue().state, gated.rescue().outcome) == ("cancelled", "void")
