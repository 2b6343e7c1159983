"""The counts of the guards: only nodes that the cluster has, and the fault statistics of earlier days."""

from datetime import timedelta

import pytest

from kcover.decisions import guards
from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Decision
from kcover_portal.rescue.queries import capacity
from tests.portal.rescue.world import CORDON, NODE, PCI, World

pytestmark = pytest.mark.django_db

GHOSTS = 9


def faults_of(names: list[str], world: World) -> None:
    for name in names:
        world.report(Fault(kind="xid", code=62, pci=PCI, source="kmsg"), node=name, boot_id="b0a7c1de-1")


@pytest.mark.parametrize(("known", "storm"), [(False, False), (True, True)])
def test_inv_33_only_nodes_of_the_cluster_make_a_storm(known: bool, storm: bool) -> None:
    world = World(policy=CORDON, nodes=12 if known else 3)
    cluster_settings.set_guards(world.cluster, {"breaker": {"enabled": False}}, actor="t", reason="", now=world.now)
    names = [f"gpu-{number}" for number in range(2, 2 + GHOSTS)] if known else [f"ghost-{n}" for n in range(GHOSTS)]
    faults_of(names, world)
    assert Incident.objects.count() == GHOSTS
    world.fault(62)
    world.work()
    assert Decision.objects.filter(node__name=NODE).exists()
    assert Incident.objects.filter(kind="storm").exists() is storm
    assert capacity.faulty(world.cluster, now=world.now).hour == (GHOSTS if known else 0) + 1
    assert Node.objects.filter(in_cluster=False).count() == (0 if known else GHOSTS)


def test_the_clusters_past_is_that_of_the_days_before() -> None:
    world = World(policy="", nodes=8)
    Cluster.objects.update(created_at=world.now - timedelta(days=10))
    cluster = Cluster.objects.get()
    assert capacity.past(cluster, now=world.now, nodes=8).faults == 0
    for hours, node in ((50, 1), (50, 2), (49.5, 3), (1, 4)):
        world.fault(62, node=f"gpu-{node}")
        opened = world.now - timedelta(hours=hours)
        Incident.objects.filter(node__name=f"gpu-{node}").update(opened_at=opened)
    midnight = world.now.replace(hour=0)
    past = capacity.past(cluster, now=world.now, nodes=8)
    whole = int(8 * (midnight - cluster.created_at).total_seconds() / 3600)
    assert past == guards.FaultHistory(node_hours=whole, faults=3, ten_minutes=1, hour=3, six_hours=3)
    assert capacity.past(cluster, now=world.now + timedelta(days=1), nodes=8).faults == 4
    Incident.objects.update(is_user_fault=True)
    assert capacity.past(cluster, now=world.now, nodes=8).faults == 0
    Cluster.objects.update(created_at=world.now)
    assert capacity.past(Cluster.objects.get(), now=world.now, nodes=8) == guards.FaultHistory()
    world.uninstall()
