"""Health over REST, and agents whose version differs from most others."""

from datetime import UTC, datetime

import pytest

from kcover_portal.fleet.models import Agent, Cluster, Node
from tests.portal.api.conftest import Api, add_node, add_story

pytestmark = pytest.mark.django_db

WELL = {"state": "healthy", "causes": []}


@pytest.fixture(autouse=True)
def _agents_are_fresh(node: Node) -> None:
    Agent.objects.update(seen_at=datetime.now(UTC))


def test_nodes_and_gpus_show_their_health(viewer: Api, node: Node, now: datetime) -> None:
    assert viewer.get("nodes").json()["results"][0]["health"] == WELL
    assert viewer.get("gpus").json()["results"][0]["health"] == WELL
    incident = add_story(node, now).incidents.get()
    fault = {"kind": "fault", "about": "xid 62", "state": "unhealthy"}
    assert viewer.get("nodes/east/gpu-1").json()["health"] == {"state": "unhealthy", "causes": [fault]}
    assert viewer.get("gpus").json()["results"][0]["health"] == WELL  # the fault names none
    incident.device = "0000:4e:00"
    incident.save()
    assert viewer.get("gpus").json()["results"][0]["health"] == {"state": "unhealthy", "causes": [fault]}


def test_a_page_of_them_costs_the_same_for_one_and_for_many(
    viewer: Api, east: Cluster, now: datetime, django_assert_max_num_queries
) -> None:
    for number in range(10):
        add_node(east, f"more-{number}", now)
    for path in ("nodes", "gpus"):
        with django_assert_max_num_queries(9):
            assert len(viewer.get(path).json()["results"]) == 11


def test_nodes_are_filtered_by_the_version_of_their_agent(viewer: Api, east: Cluster, now: datetime) -> None:
    add_node(east, "gpu-2", now)
    Agent.objects.filter(node__name="gpu-2").update(version="0.9")
    found = viewer.get("nodes?version=0.9").json()["results"]
    assert [(row["name"], row["agent"]["version"]) for row in found] == [("gpu-2", "0.9")]
