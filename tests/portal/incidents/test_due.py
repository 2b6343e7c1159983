"""In which order due incidents are decided."""

from datetime import timedelta

import pytest

from kcover_portal.fleet.models import Cluster, Node
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


def test_a_cluster_with_many_faults_does_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_DUE_INCIDENTS", 6)
    for statement in ("_DUE", "_DUE_IN_CLUSTER"):  # built with the limit at the first use
        kept = getattr(queries, statement)
        monkeypatch.setattr(queries, statement, type(kept)(kept._build, **kept._types))
    world = World(policy="", nodes=30)
    for number in range(1, 31):
        world.fault(62, node=f"gpu-{number}")
    world.now += timedelta(seconds=1)
    west = Cluster.objects.create(name="west", created_at=world.now)
    node = Node.objects.create(cluster=west, name="gpu-1", created_at=world.now)
    for code in ("62", "63"):
        Incident.objects.create(
            cluster=west, node=node, kind="xid", code=code, decide_at=world.now, opened_at=world.now, last_at=world.now
        )
    due = [pk for pk, _ in queries.due_for_decision(now=world.now)]
    clusters = [Incident.objects.get(pk=pk).cluster.name for pk in due]
    assert clusters == [world.cluster.name, "west"] * 2 + [world.cluster.name] * 2
    world.uninstall()
