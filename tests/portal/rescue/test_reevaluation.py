"""Open incidents are decided again when their decider or its settings change."""

from datetime import timedelta

import pytest

from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.needs import queries as needs
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def make():
    made = []

    def world(policy=CORDON):
        made.append(World(policy=policy))
        services.sweep(now=made[-1].now)
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


def look_again(world):
    world.now += timedelta(minutes=1)
    services.sweep(now=world.now)
    world.work()


def isolated(world):
    return world.kube.get_node(NODE).unschedulable


def set_mode(world, mode):
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode=mode)


def test_faults_decided_in_shadow_mode_are_acted_on_after_enforcing_begins(make):
    world = make()
    set_mode(world, "shadow")
    world.fault(62)
    world.work()
    look_again(world)
    assert not isolated(world)
    set_mode(world, "enforce")
    look_again(world)
    assert isolated(world)


def test_a_new_policy_applies_to_open_incidents(make):
    world = make("")
    world.fault(62)
    world.work()
    policies.apply(CORDON, author="t", reason="", now=world.now)
    look_again(world)
    assert isolated(world)


def test_faults_left_to_another_system_are_decided_again_by_policies(make):
    world = make()
    cluster_settings.set_cluster(world.cluster, {"decision_mode": "external"}, actor="t", reason="", now=world.now)
    world.fault(62)
    world.work()
    cluster_settings.set_cluster(world.cluster, {"decision_mode": "policies"}, actor="t", reason="", now=world.now)
    look_again(world)
    assert isolated(world)


def test_a_policy_applied_in_a_pause_takes_effect_at_its_end(make):
    world = make("")
    world.fault(62)
    world.work()
    fleet.pause(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    policies.apply(CORDON, author="t", reason="", now=world.now)
    look_again(world)
    assert not isolated(world)
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    look_again(world)
    assert isolated(world)


@pytest.mark.parametrize("everywhere", [False, True])
def test_faults_from_a_moment_of_shadow_mode_are_acted_on(make, everywhere):
    world = make()
    where = None if everywhere else world.cluster
    fleet.resume(cluster=where, reason="", actor="user:ann", now=world.now, mode="shadow")
    world.fault(62)
    world.work()
    assert Decision.objects.get().answer == "shadow"
    fleet.resume(cluster=where, reason="", actor="user:ann", now=world.now, mode="enforce")
    look_again(world)
    assert isolated(world)


@pytest.mark.parametrize(
    ("setting", "aside", "back"), [("mode", "shadow", "enforce"), ("decision_mode", "external", "both")]
)
def test_a_momentary_change_of_a_setting_hides_no_fault(make, setting, aside, back):
    world = make()
    cluster_settings.set_cluster(world.cluster, {setting: aside}, actor="t", reason="", now=world.now)
    world.fault(62)
    world.work()
    cluster_settings.set_cluster(world.cluster, {setting: back}, actor="t", reason="", now=world.now)
    look_again(world)
    assert isolated(world)


def test_a_fault_decided_again_after_a_change_is_not_decided_at_each_look(make):
    world = make("")
    world.fault(62)
    world.work()
    set_mode(world, "shadow")
    set_mode(world, "enforce")
    look_again(world)
    judged = Incident.objects.get().decided_at
    assert judged == world.now
    look_again(world)
    assert Incident.objects.get().decided_at == judged


def test_inv_15_a_fault_ended_by_a_reboot_is_left_alone_when_enforcing_begins(make):
    world = make()
    set_mode(world, "shadow")
    world.fault(62)
    look_again(world)
    world.kube.reboot(NODE)
    world.sync()
    set_mode(world, "enforce")
    look_again(world)
    assert not isolated(world)
    assert Decision.objects.latest("pk").reasons[-1].code == "rebooted_since"


def test_inv_32_an_old_fault_is_not_decided_again(make):
    world = make()
    set_mode(world, "shadow")
    world.fault(62)
    look_again(world)
    world.now += timedelta(days=2)
    set_mode(world, "enforce")
    look_again(world)
    assert not isolated(world)


def test_nothing_is_decided_again_without_a_change(make):
    world = make("")
    world.fault(62)
    world.work()
    look_again(world)
    judged = Incident.objects.get().decided_at
    look_again(world)
    assert Incident.objects.get().decided_at == judged
    assert Cluster.objects.count() == 1


def test_inv_35_a_recurring_fault_is_held_for_a_person(make):
    world = make(
        CORDON.replace(
            "[{name: cordon}]", "[{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: 'true'}}]"
        )
    )
    cluster_settings.set_guards(world.cluster, {"repeats": {"limit": 1}}, actor="t", reason="", now=world.now)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")
    world.sync()
    world.pass_time(60)
    assert needs.entries(Scope.of(world.cluster), [world.cluster], now=world.now).entries == []
    world.fault(62)
    world.work()
    [need] = needs.entries(Scope.of(world.cluster), [world.cluster], now=world.now).entries
    assert (need.kind, need.nodes, need.nature) == ("incident", (NODE,), "held")
    set_mode(world, "paused")
    world.pass_time(600)
    assert needs.entries(Scope.of(world.cluster), [world.cluster], now=world.now).entries == []
