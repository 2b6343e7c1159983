"""In which order due incidents are decided."""

from datetime import timedelta

import pytest

from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


def test_a_node_with_many_faults_does_not_precede_every_other_node() -> None:
    world = World(policy="", nodes=2)
    for slot in range(30):
        world.fault(62, node="gpu-1", pci=f"0000:{slot:02x}:00")
    world.now += timedelta(seconds=1)
    world.fault(62, node="gpu-2")
    due = [pk for pk, _ in queries.due_for_decision(now=world.now)[:10]]
    nodes = [Incident.objects.get(pk=pk).node.name for pk in due]
    assert nodes[:2] == ["gpu-1", "gpu-2"]
    assert nodes[2:] == ["gpu-1"] * 8
    world.uninstall()
