"""Names that the cluster does not have stop no automation: their faults are not counted by storm and rate."""

import pytest

from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Node
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
