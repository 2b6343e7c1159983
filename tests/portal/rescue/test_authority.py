"""Permissions on the engine: a program cannot override a person."""

import pytest

from kcover.plans import kce_actions
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.codes import codes_of, refused
from tests.portal.rescue.world import CORDON, NODE, World

NO_EXECUTE = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: noexec}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      %s
      actions:
        - name: cordon
        - {name: taint, attribute: {effect: %s}}
        - {name: drain, attribute: {waittime: 10min}}
"""

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("by_person", "lifted"), [(True, True), (False, False)])
def test_inv_18_only_a_person_lifts_a_foreign_cordon(world: World, by_person: bool, lifted: bool) -> None:
    world.kube.cordon(NODE)
    world.sync()
    who = "user:ann" if by_person else "token:operator kco_1"
    assert services.preview(world.node(), "uncordon", now=world.now, by_person=by_person).steps[0]["args"] == (
        {"foreign": True} if by_person else {}
    )
    requester = "person" if by_person else "token"
    services.request(world.node(), "uncordon", actor=who, reason="", now=world.now, requester=requester)
    world.work()
    assert world.kube.get_node(NODE).unschedulable is not lifted


def _drain_is_refused(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})


def _drain_may_go_on(world: World) -> None:
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")


def _close(world: World) -> None:
    incidents.close_by_hand(Incident.objects.get(), actor="user:ann", reason="false alarm", now=world.now)


def test_inv_44_a_closed_fault_stops_steps_that_take_work_away(world: World) -> None:
    _drain_is_refused(world)
    world.fault(62)
    world.until("waiting", step="drain")
    _close(world)
    before = len(world.kube.called("evict"))
    _drain_may_go_on(world)
    world.pass_time(20)
    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "void", True)
    assert "fault_cleared" in codes_of(rescue.because)
    assert len(world.kube.called("evict")) == before
    assert world.kube.called("ensure_job") == []
    assert world.kube.get_node(NODE).unschedulable, "whoever closed it releases the node, too"


def test_a_requested_reboot_is_completed_after_the_fault_is_closed(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    _close(world)
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert not world.kube.get_node(NODE).unschedulable


def _ask(world: World) -> None:
    """A decision system's request for a reboot, by its own door."""
    actions = [{"name": "cordon"}, {"name": "drain"}, {"name": "reboot", "maps": [{"unCordon": "true"}]}]
    asked = kce_actions.parse({"nodeName": NODE, "xid": 62, "actions": actions}, now=world.now)
    services.request_plan(world.node(), asked, actor="token:decision x", payload={}, now=world.now)


@pytest.mark.parametrize(
    ("limits", "code"),
    [({"repeats": {"limit": 1}}, "reboots_repeat"), ({"ladder": {"reboots": 1}}, "inspection")],
)
def test_inv_11_a_decision_system_has_the_reboot_limits_of_a_policy(
    world: World, limits: dict[str, object], code: str
) -> None:
    cluster_settings.set_guards(world.cluster, limits, actor="t", reason="", now=world.now)
    _ask(world)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    with refused(services.RescueRefused, code):
        _ask(world)
    assert services.request(world.node(), "reboot", actor="user:ann", reason="mine to ask", now=world.now)


def test_inv_11_a_program_has_the_same_reboot_limits_at_every_endpoint(world: World) -> None:
    cluster_settings.set_guards(world.cluster, {"repeats": {"limit": 1}}, actor="t", reason="", now=world.now)
    who = {"actor": "token:decision x", "reason": "", "origin": Rescue.Origin.API, "requester": "token"}
    rescue = services.request(world.node(), "reboot", now=world.now, **who)
    services.cancel(rescue, actor="token:decision x", reason="again", now=world.now)
    world.pass_time(1)
    with refused(services.RescueRefused, "reboots_repeat"):
        services.request(world.node(), "reboot", now=world.now, **who)


def test_inv_11_a_decision_system_cannot_act_on_a_node_left_to_people(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(79)
    assert world.until("failed").needs_human
    with refused(services.RescueRefused, "left_to_people"):
        _ask(world)
    for verb in ("uncordon", "release"):
        with refused(services.RescueRefused, "waits_for_person", "step_ended", "faults_since_repair"):
            services.request(
                world.node(), verb, actor="token:decision x", reason="", now=world.now, origin="api", requester="token"
            )


def _effects(world: World) -> list[str]:
    return [taint.effect for taint in world.kube.get_node(NODE).taints if taint.key == "kcover.io/unhealthy"]


@pytest.mark.parametrize(("effect", "before"), [("NoExecute", []), ("NoSchedule", ["NoSchedule"])])
def test_inv_43_a_taint_that_ends_pods_waits_for_the_approval(db: None, effect: str, before: list[str]) -> None:
    world = World(policy=NO_EXECUTE % ("approval: {required: true}", effect))
    world.fault(62)
    world.until("held")
    assert (_effects(world), world.kube.get_node(NODE).unschedulable) == (before, True)
    services.approve(world.rescue(), actor="user:ann", reason="", now=world.now)
    world.until("succeeded")
    assert _effects(world) == [effect]
    world.uninstall()


def test_inv_37_a_taint_that_ends_pods_passes_the_guards(db: None) -> None:
    world = World(policy=NO_EXECUTE % ("", "NoExecute"), nodes=8)
    off = {"enabled": False}
    limits = {"storm": off, "breaker": off, "rate": {"enabled": True}}
    cluster_settings.set_guards(world.cluster, limits, actor="t", reason="", now=world.now)
    for name in (NODE, "gpu-2", "gpu-3"):
        world.fault(62, node=name)
    world.work()
    assert (_effects(world), world.kube.get_node(NODE).unschedulable) == ([], True)
    assert "rate" in codes_of(world.step("taint").because)
    world.uninstall()


@pytest.mark.parametrize("origin", ["manual", "policy"])
def test_a_node_of_a_cluster_without_gpus_is_drained_by_hand_only(db: None, origin: str) -> None:
    world = World(policy="", nodes=0)
    world.kube.add_node("cpu-1", gpus=0)
    world.sync()
    rescue = services.request(world.node("cpu-1"), "drain", actor="user:ann", reason="", now=world.now)
    Rescue.objects.filter(pk=rescue.pk).update(origin=origin)
    for _ in range(3):
        world.pass_time(30)
    by_hand = origin == "manual"
    assert (world.rescue("cpu-1").state == "succeeded") is by_hand, "none eligible: automation takes nothing away"
    world.uninstall()


def test_a_rule_with_a_long_name_is_named_within_the_row(db: None) -> None:
    world = World(policy=CORDON.replace("name: cordon}", f"name: {'p' * 253}}}", 1))
    world.fault(62)
    world.work()
    rescue = world.rescue()
    assert rescue.rule == f"{'p' * 253}#1"
    actors = {rescue.requested_by, *Entry.objects.values_list("actor", flat=True)}
    assert max(map(len, actors)) == 200
    world.uninstall()
