"""The list of incidents as groups: one cause is one row, and opens the list of just its incidents."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.incidents.models import Incident, JobSeen
from tests.portal.rescue.world import World

QUERIES = {"fault": 14, "node": 15, "gpu": 15, "job": 15}


@pytest.fixture
def crash(make) -> World:
    """One job that ended on two nodes: Xid 43 on three GPUs, and Xid 79 on one of them; all else is quiet."""
    world = make(nodes=3)
    rows = [
        ("gpu-1", "43", "GPU-a", True, 5),
        ("gpu-1", "43", "GPU-b", True, 1),
        ("gpu-2", "43", "GPU-c", True, 1),
        ("gpu-2", "79", "GPU-c", False, 2),
        ("gpu-3", "94", "", False, 1),
    ]
    for node, code, gpu, program, count in rows:
        at = {"opened_at": world.now, "last_at": world.now}
        more = {"gpu_uuid": gpu, "device": gpu, "is_user_fault": program, "count": count, **at}
        Incident.objects.create(cluster=world.cluster, node=world.node(node), kind="xid", code=code, **more)
    for node in ("gpu-1", "gpu-2"):
        JobSeen.objects.create(node=world.node(node), job="train/llm", at=world.now)
    JobSeen.objects.create(node=world.node("gpu-3"), job="train/old", at=world.now - timedelta(days=2))
    return world


def rows(response) -> list[tuple[str, int, int, int, int]]:
    return [(one.label, one.open, one.incidents, one.occurrences, one.nodes) for one in response.context["groups"]]


def test_one_fault_is_one_row_that_opens_its_incidents(crash: World, person):
    client = person("viewer")
    found = client.get("/incidents/?group=fault")
    assert sorted(rows(found)) == [("Xid 43", 0, 3, 7, 2), ("Xid 79", 1, 1, 2, 1), ("Xid 94", 1, 1, 1, 1)]
    assert rows(found)[-1][0] == "Xid 43"  # none of them is open as a fault of the node
    assert sorted(rows(client.get("/incidents/?group=node"))) == [
        *(("gpu-1", 0, 2, 6, 1), ("gpu-2", 1, 2, 3, 1), ("gpu-3", 1, 1, 1, 1)),
    ]
    assert next(row[:3] for row in rows(client.get("/incidents/?group=gpu"))) == ("GPU-c", 1, 2)
    assert rows(client.get("/incidents/?group=job")) == [("train/llm", 1, 4, 9, 2)]
    assert rows(client.get("/incidents/?group=fault&code=79")) == [("Xid 79", 1, 1, 2, 1)]
    for by, number in (("fault", 3), ("node", 3), ("gpu", 3)):
        page = client.get(f"/incidents/?group={by}")
        for one in page.context["groups"]:
            assert client.get(f"/incidents/?{one.query}").context["page"].paginator.count == one.incidents
        assert len(page.context["groups"]) == number
    job = client.get("/incidents/?group=job").context["groups"][0]
    assert job.faults == ["Xid 43", "Xid 79"]


def test_an_unknown_grouping_is_reported_and_the_list_is_not_grouped(crash: World, person):
    found = person("viewer").get("/incidents/?group=colour")
    assert [(one.name, one.reason.code) for one in found.context["found"].problems] == [
        ("group", "parameter_not_choice")
    ]
    assert len(found.context["page"].object_list) == 5
    nodes = person("viewer").get("/nodes/?group=node")
    assert [one.reason.code for one in nodes.context["found"].problems] == ["unknown_parameter"]


@pytest.mark.parametrize("by", QUERIES)
def test_groups_cost_the_same_for_one_row_and_for_three(crash: World, person, by: str):
    client = person("viewer")

    def cost(**query: str) -> int:
        with CaptureQueriesContext(connection) as asked:
            assert client.get("/incidents/", {"group": by, **query}).status_code == 200
        return len(asked)

    cost()
    assert [cost(code="79"), cost()] == [QUERIES[by]] * 2
