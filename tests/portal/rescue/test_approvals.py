"""Approvals on the engine: permissions, lifetime, and requests without an answer."""

from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Decision, Rescue
from tests import proofs
from tests.codes import codes_of, refused
from tests.portal.rescue import worker_kills
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


CORDON_ONLY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: cordon}
spec: {rules: [{priority: 10, errorCode: ["62"], actions: [{name: cordon}]}]}
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


def test_inv_43_a_gated_step_waits_and_the_safe_steps_are_done(gated: World) -> None:
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


def test_inv_46_no_call_is_begun_before_the_first_approval(db: None) -> None:
    world = World()
    Cluster.objects.update(mode="approve", isolate_before_approval=False)
    world.fault(62)
    services.decide_and_run([Incident.objects.get().pk], clock=world.clock)
    assert (world.rescue().hold, world.rescue().calls_begun) == ("approval", 0)
    assert not Entry.objects.filter(verb="cordon.begun").exists()
    world.uninstall()


def test_inv_43_an_approval_for_another_plan_is_refused(gated: World) -> None:
    with refused(services.RescueRefused, "plan_changed"):
        services.approve(gated.rescue(), actor="user:ann", reason="", now=gated.now, plan_hash="0" * 16)
    assert not Approval.objects.exists()


def test_inv_43_a_plan_that_changed_after_the_approval_is_not_run(gated: World) -> None:
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
    with pytest.raises(services.RescueRefused):
        vote(gated, "ann")


def test_inv_44_an_approval_after_the_fault_healed_does_nothing(gated: World) -> None:
    incidents.close(
        [Incident.objects.get().pk],
        because=reasons.of("closed_by_because", by="test", why="gone"),
        actor="user:bob",
        now=gated.now,
    )
    rescue = vote(gated, "ann")
    assert (rescue.state, rescue.outcome) == ("cancelled", "void")
    gated.pass_time()
    assert gated.kube.called("evict") == []


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_inv_44_two_people_must_approve_and_each_counts_once(gated: World) -> None:
    assert vote(gated, "ann").state == "held"
    with refused(services.RescueRefused, "already_answered"):
        vote(gated, "ann")
    assert vote(gated, "bob").state == "running"


@pytest.mark.parametrize("gated", [2], indirect=True)
def test_one_denial_is_enough(gated: World) -> None:
    vote(gated, "ann")
    rescue = vote(gated, "bob", yes=False)
    assert (rescue.state, rescue.outcome) == ("cancelled", "rejected")
    assert gated.kube.get_node(NODE).unschedulable


def test_inv_44_a_requester_cannot_approve(gated: World) -> None:
    Rescue.objects.update(requested_by="user:ann")
    with refused(services.RescueRefused, "own_request"):
        vote(gated, "ann")


def test_inv_45_the_second_of_two_approvals_is_refused_as_late(gated: World) -> None:
    vote(gated, "ann")
    with refused(services.RescueRefused, "not_awaiting_approval"):
        vote(gated, "bob")
    gated.until_reboot_is_asked()
    assert len(gated.kube.called("ensure_job")) == 1


def test_in_approve_mode_no_step_runs_before_the_approval_if_the_cluster_says_so() -> None:
    world = World()
    Cluster.objects.update(mode="approve", isolate_before_approval=False)
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.gate) == ("held", "approval", 0)
    assert not world.kube.get_node(NODE).unschedulable
    vote(world, "ann")
    world.work()
    assert world.kube.get_node(NODE).unschedulable
    world.uninstall()


def in_approve_mode(*, nodes: int = 2, **world: Any) -> World:
    made = World(nodes=nodes, **world)
    Cluster.objects.update(mode="approve")
    return made


def test_inv_43_in_approve_mode_the_node_is_isolated_before_the_approval() -> None:
    world = in_approve_mode()
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.gate) == ("held", "approval", 1)
    assert world.kube.get_node(NODE).unschedulable
    assert (world.step("cordon").state, world.step("drain").attempts) == ("done", 0)
    assert codes_of(rescue.opened_because) == ["rule_matches", "approve_after_isolation"]
    vote(world, "ann")
    world.until_reboot_is_asked()
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert proofs.broken_claim(world.rescue()) == ""
    world.uninstall()


def test_inv_43_a_plan_that_only_isolates_needs_no_approval() -> None:
    world = in_approve_mode(policy=CORDON_ONLY)
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.gate, rescue.state) == (None, "succeeded")
    assert world.kube.get_node(NODE).unschedulable
    assert proofs.broken_claim(rescue) == ""
    world.uninstall()


def planned(*actions: str) -> str:
    """A policy with one rule for Xid 62 and these actions."""
    return f"""
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: planned}}
spec: {{rules: [{{priority: 10, errorCode: ["62"], actions: [{", ".join(actions)}]}}]}}
"""


DRAIN = "{name: drain}"
MIG = "nvidia.com/mig.config"
LABEL = f"{{name: label, attribute: {{key: {MIG}, value: all-disabled}}}}"
DELETES = "{name: taint, attribute: {key: node.kubernetes.io/out-of-service, value: nodeshutdown}}"


@pytest.mark.parametrize(
    ("actions", "done"),
    [
        (("{name: cordon}", LABEL, "{name: notify}", DRAIN, "{name: reboot}"), ["cordon"]),
        (("{name: cordon}", "{name: taint}", LABEL, DRAIN, "{name: reboot}"), ["cordon", "taint"]),
        (("{name: cordon}", LABEL), ["cordon"]),
        (("{name: cordon}", DELETES, "{name: notify}"), ["cordon"]),
        (("{name: cordon}", "{name: notify}", DRAIN, "{name: reboot}"), ["cordon", "notify"]),
    ],
)
def test_inv_43_in_approve_mode_the_gate_is_before_steps_that_another_controller_may_act_on(
    actions: tuple[str, ...], done: list[str]
) -> None:
    world = in_approve_mode(policy=planned(*actions))
    world.fault(62)
    for _ in range(5):  # nobody has to receive a message
        world.pass_time(60)
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.gate) == ("held", "approval", len(done))
    assert [step.name for step in rescue.steps.order_by("index") if step.state != "pending"] == done
    node = world.kube.get_node(NODE)
    assert node.unschedulable
    assert MIG not in node.labels
    assert {taint.key for taint in node.taints} <= {"kcover.io/unhealthy", "node.kubernetes.io/unschedulable"}
    assert world.kube.called("ensure_job") == []
    vote(world, "ann")
    world.pass_time(60)
    assert world.rescue().state != "held"
    assert (MIG in world.kube.get_node(NODE).labels) == (LABEL in actions)
    assert proofs.broken_claim(world.rescue()) == ""
    world.uninstall()


def test_in_approve_mode_a_rule_that_requires_approval_is_held_before_its_cordon() -> None:
    asks = "{priority: 10, approval: {required: true},"
    world = in_approve_mode(policy=planned("{name: cordon}").replace("{priority: 10,", asks))
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert (rescue.state, rescue.gate) == ("held", 0)
    assert codes_of(rescue.opened_because) == ["rule_matches", "approve"]
    assert not world.kube.get_node(NODE).unschedulable
    vote(world, "ann")
    world.work()
    assert world.kube.get_node(NODE).unschedulable
    assert proofs.broken_claim(world.rescue()) == ""
    world.uninstall()


def test_in_approve_mode_the_reason_claims_no_isolation_where_the_plan_only_notifies() -> None:
    world = in_approve_mode(policy=planned("{name: notify}", "{name: webhook, attribute: {url: 'https://x.example/'}}"))
    world.fault(62)
    for _ in range(5):
        world.pass_time(60)
    rescue = world.rescue()
    assert (rescue.state, rescue.gate) == ("held", 1)
    assert codes_of(rescue.opened_because) == ["rule_matches", "approve_after_notice"]
    assert not world.kube.get_node(NODE).unschedulable
    assert proofs.broken_claim(rescue) == ""
    world.uninstall()


@pytest.mark.parametrize(
    ("held_back", "code"),
    [
        ({"breaker": {"limit": 1}}, "breaker"),
        ({"budget": {"limit": 1}}, "budget"),
    ],
)
def test_inv_43_before_an_approval_the_guards_bound_the_isolation(held_back: dict[str, Any], code: str) -> None:
    world = in_approve_mode(nodes=8)
    Cluster.objects.update(guards=held_back)
    for number in (1, 2, 3):
        world.fault(62, node=f"gpu-{number}")
    world.work()
    names = ["gpu-1", "gpu-2", "gpu-3"]
    assert [name for name in names if world.kube.get_node(name).unschedulable] == ["gpu-1"]
    assert Rescue.objects.count() == 1
    late = Decision.objects.filter(answer="hold").first()
    assert late is not None
    assert code in [reason.code for reason in late.reasons]
    world.uninstall()


@pytest.mark.parametrize("stop", [{"mode": "shadow"}, {"mode": "paused"}])
def test_inv_43_shadow_and_pause_isolate_nothing(stop: dict[str, str]) -> None:
    world = in_approve_mode()
    Cluster.objects.update(**stop)
    world.fault(62)
    world.work()
    assert not Rescue.objects.exists()
    assert not world.kube.get_node(NODE).unschedulable
    world.uninstall()


@pytest.mark.parametrize("after", [False, True])
def test_inv_43_a_worker_that_dies_at_the_cordon_isolates_and_requests_approval(*, after: bool) -> None:
    world = in_approve_mode()
    worker_kills.kill_at(world.kube, "apply_node", call=1, after=after)
    world.fault(62)
    assert worker_kills.work(world)
    for _ in range(3):
        world.pass_time(10)
    assert (world.rescue().state, world.rescue().hold, world.rescue().gate) == ("held", "approval", 1)
    assert world.kube.get_node(NODE).unschedulable
    assert (world.kube.called("evict"), world.step("drain").attempts) == ([], 0)
    world.uninstall()


def test_inv_44_a_denial_says_that_the_node_stays_isolated() -> None:
    world = in_approve_mode()
    world.fault(62)
    world.work()
    rescue = vote(world, "ann", yes=False)
    assert (rescue.outcome, rescue.needs_human, codes_of(rescue.because)[-1]) == ("rejected", True, "stays_isolated")
    assert world.kube.get_node(NODE).unschedulable
    world.pass_time(600)
    assert Rescue.objects.count() == 1  # nobody is asked again, and nothing more is done
    services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
    world.work()
    assert not world.kube.get_node(NODE).unschedulable
    world.uninstall()


def test_inv_43_an_attempt_that_a_guard_held_uses_up_no_approval(gated: World) -> None:
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


def test_inv_20_a_manual_uncordon_ends_the_approval_request(gated: World) -> None:
    gated.kube.apply_node(NODE, port.NodeChange(cordon=False))
    gated.pass_time(1)
    for _ in range(3):
        gated.pass_time(31)
    node = gated.kube.get_node(NODE)
    assert Rescue.objects.filter(origin="policy").get().state == "cancelled"
    assert not [key for key in (*node.labels, *node.annotations) if key.startswith("kcover.io/")]
    assert not node.unschedulable


def test_the_approval_request_of_a_healed_fault_is_withdrawn(gated: World) -> None:
    incidents.close(
        [Incident.objects.get().pk],
        because=reasons.of("closed_by_because", by="test", why="gone"),
        actor="user:bob",
        now=gated.now,
    )
    services.sweep(now=gated.now)
    assert (gated.rescue().state, gated.rescue().outcome) == ("cancelled", "void")


def _refused_drain(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})


def test_inv_43_skipping_an_approved_step_does_not_approve_the_next(gated: World) -> None:
    _refused_drain(gated)
    vote(gated, "ann")
    gated.until("held", seconds=30)
    gated.pass_time(7200)  # the yes has run out
    services.skip(gated.rescue(), actor="user:oper", reason="never mind the pods", now=gated.now)
    gated.pass_time()
    rescue = gated.rescue()
    assert (rescue.state, rescue.hold, gated.step("reboot").index) == ("held", "approval", rescue.gate)
    assert gated.kube.called("ensure_job") == []
    vote(gated, "ann")
    gated.until_reboot_is_asked()
    assert [one.step for one in Approval.objects.order_by("step")] == [1, 2]


def _approve_mode(world: World) -> None:
    fleet.resume(cluster=world.cluster, reason="not without us", actor="user:ann", now=world.now, mode="approve")


def test_inv_43_approve_mode_applies_to_running_rescues(world: World) -> None:
    _refused_drain(world)
    world.fault(62)
    world.until("waiting", step="drain")
    before = len(world.kube.called("evict"))
    _approve_mode(world)
    world.pass_time(20)
    rescue = world.rescue()
    assert (rescue.state, rescue.hold, rescue.gate, rescue.needs_human) == ("held", "approval", 1, True)
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    world.pass_time(1200)  # more than the drain's time
    assert len(world.kube.called("evict")) == before
    vote(world, "ann")
    world.until_reboot_is_asked()
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert len(world.kube.called("evict")) == before + 1, "the time of the question is not the drain's"


def test_inv_43_an_approval_of_a_running_rescue_expires(world: World) -> None:
    _refused_drain(world)
    world.fault(62)
    world.until("waiting", step="drain")
    _approve_mode(world)
    world.pass_time(20)
    vote(world, "ann")
    fleet.pause(cluster=world.cluster, reason="stop", actor="user:bob", now=world.now)
    world.pass_time(10)
    before = len(world.kube.called("evict"))
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    world.now += timedelta(days=1)
    fleet.resume(cluster=world.cluster, reason="go", actor="user:bob", now=world.now)
    for _ in range(3):
        world.pass_time(10)
    rescue = world.rescue()
    assert (rescue.state, rescue.hold) == ("held", "approval")
    assert len(world.kube.called("evict")) == before
    vote(world, "bob")
    world.until_reboot_is_asked()


def test_a_persons_request_waits_for_approval_once_approve_mode_is_set(world: World) -> None:
    services.request(world.node(), "reboot", actor="user:ann", reason="", now=world.now)
    _approve_mode(world)
    assert world.until("held").hold == "approval"
    assert world.step("drain").state == "waiting"
    with refused(services.RescueRefused, "own_request"):
        vote(world, "ann")
    vote(world, "bob")
    world.until_reboot_is_asked()


def test_a_cluster_may_exempt_manual_acts_from_approval(world: World) -> None:
    Cluster.objects.update(hand_approval="never")
    services.request(world.node(), "reboot", actor="user:ann", reason="", now=world.now)
    _approve_mode(world)
    world.until_reboot_is_asked()


def test_a_programs_request_waits_for_approval_too(world: World) -> None:
    services.request(world.node(), "reboot", actor="token:operator kco_1", reason="", now=world.now, requester="token")
    _approve_mode(world)
    assert world.until("held").hold == "approval"
    assert world.step("drain").state == "waiting"
