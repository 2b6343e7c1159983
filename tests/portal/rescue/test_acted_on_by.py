"""A cluster on which another system acts: the portal decides there, and writes nothing."""

from datetime import timedelta

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings, pending_changes
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from tests.portal.rescue.world import World


def set_other(world: World, name: str) -> None:
    cluster_settings.set_cluster(
        world.cluster, {"acted_on_by": name}, actor="user:ann", reason="side by side", now=world.now
    )


def test_inv_48_nothing_is_written_while_another_system_acts(world: World) -> None:
    set_other(world, "NVSentinel")
    before = world.kube.list_nodes()
    world.fault()
    world.work()
    assert Decision.objects.get().answer == "shadow"
    assert not Rescue.objects.exists()
    assert world.kube.list_nodes() == before


def test_a_rescue_that_runs_makes_no_further_call(world: World) -> None:
    world.fault()
    world.until_reboot_is_asked()
    set_other(world, "NVSentinel")
    before = world.kube.list_nodes()
    for _ in range(5):
        world.pass_time(60)
        world.work()
    assert world.kube.list_nodes() == before


def test_faults_are_decided_again_when_the_other_system_has_left(world: World) -> None:
    set_other(world, "NVSentinel")
    services.sweep(now=world.now)
    world.fault()
    world.work()
    set_other(world, "")
    world.now += timedelta(minutes=1)
    services.sweep(now=world.now)
    world.work()
    assert Rescue.objects.exists()


def test_a_pause_stays_a_pause(world: World) -> None:
    Cluster.objects.update(mode="paused", acted_on_by="NVSentinel")
    cluster = Cluster.objects.get()
    assert fleet.mode_now(cluster)[0] == fleet.mode_of(cluster)[0] == "paused"


def test_removing_the_other_system_loosens_and_adding_it_does_not(world: World) -> None:
    assert not pending_changes.loosens_settings(world.cluster, {"acted_on_by": "NVSentinel"})
    set_other(world, "NVSentinel")
    cluster = Cluster.objects.get()
    assert pending_changes.loosens_settings(cluster, {"acted_on_by": ""})
    assert not pending_changes.loosens_settings(cluster, {"acted_on_by": "gpud"})
