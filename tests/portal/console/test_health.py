"""Health, flapping and agents' versions on the pages."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet.models import Agent, Cluster, Gpu
from kcover_portal.incidents.models import Incident
from tests.portal.rescue.world import NODE, World


@pytest.fixture
def world(world: World):
    """Two nodes of which the agents were heard a moment ago."""
    world.kube.add_node("gpu-2", gpus=8)
    world.sync()
    for node in (NODE, "gpu-2"):
        world.report(node=node)
        Gpu.objects.create(node=world.node(node), index=0, uuid=f"GPU-{node}", pci="0000:4e:00", seen_at=world.now)
    Agent.objects.update(seen_at=datetime.now(UTC))
    return world


def page(client, path: str) -> str:
    text = client.get(path).content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def flap(world: World) -> None:
    for minutes in (9, 5):
        at = datetime.now(UTC) - timedelta(minutes=minutes)
        values = {"severity": "fatal", "state": "closed", "opened_at": at, "last_at": at, "device": "0000:4e:00"}
        closed_at = at + timedelta(minutes=1)
        Incident.objects.create(
            cluster=world.cluster, node=world.node(), kind="xid", code="94", closed_at=closed_at, **values
        )


def test_a_healthy_node_is_shown_as_healthy(person, world: World):
    shown = page(person("viewer"), f"/nodes/c1/{NODE}/")
    assert " Health Healthy " in shown
    assert "no fault" in shown


def test_a_flapping_fault_is_shown_after_it_ended(person, world: World):
    flap(world)
    viewer = person("viewer")
    shown = page(viewer, f"/nodes/c1/{NODE}/")
    assert " Health Degraded flapping: Xid 94 " in shown
    assert "no fault" not in shown  # not of the GPU either
    assert page(viewer, "/nodes/").count(" flapping ") == 1


def test_a_silent_agent_leaves_its_node_unknown(person, world: World):
    Agent.objects.filter(node__name=NODE).update(seen_at=datetime.now(UTC) - timedelta(minutes=3))
    assert " Health Unknown agent not reporting " in page(person("viewer"), f"/nodes/c1/{NODE}/")


def test_where_the_api_server_is_away_silence_is_no_news(person, world: World):
    viewer = person("viewer")
    Agent.objects.filter(node__name=NODE).update(seen_at=datetime.now(UTC) - timedelta(minutes=3))
    assert "1 agent is not reporting" in page(viewer, "/")
    Cluster.objects.update(watch_error=reasons.of("watch_failed", error="connection refused").to_json())
    assert "API server unreachable: state unknown" in page(viewer, f"/nodes/c1/{NODE}/")
    shown = page(viewer, "/")
    assert "1 agent is not reporting" not in shown
    assert "The watch on cluster c1 is disconnected" in shown


def test_a_version_that_few_have_is_marked_everywhere(person, world: World):
    viewer = person("viewer")
    Agent.objects.filter(node__name=NODE).update(version="1.1.0")
    world.kube.add_node("gpu-3", gpus=8)
    world.sync()
    world.report(node="gpu-3")
    assert re.search(r" 1\.0\.0 2 1\.1\.0 1 differs from most ", page(viewer, "/system/"))
    assert "usual version: 1.0.0" in page(viewer, f"/nodes/c1/{NODE}/")
    assert "usual version" not in page(viewer, "/nodes/c1/gpu-2/")
    listed = page(viewer, "/nodes/")
    assert (listed.count(" 1.1.0 "), listed.count(" 1.0.0 ")) == (1, 0)
    found = viewer.get("/nodes/?version=1.1.0").content.decode()
    assert re.findall(r'id="node-\d+"\s+href="/nodes/c1/(gpu-\d)/"', found) == [NODE]
