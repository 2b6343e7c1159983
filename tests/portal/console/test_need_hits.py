"""What a card says is hit: the GPUs of its nodes, and the jobs that were found there."""

from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import need_hits
from kcover_portal.console.reads.need_hits import Hit
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import STORM, Incident, JobSeen
from kcover_portal.needs import queries
from tests.portal.rescue.world import World

STATEMENTS = 2  # the nodes of storms, and the jobs of all nodes


def entries(world: World) -> list[queries.Entry]:
    return list(queries.entries(Scope.of(world.cluster), [world.cluster], now=world.now).entries)


def hit(world: World) -> Hit | None:
    [entry] = entries(world)
    return need_hits.of([entry]).get(entry.id)


def add_storms(world: World, number: int) -> None:
    for index in range(number):
        Incident.objects.create(
            cluster=world.cluster,
            kind=STORM,
            code=f"xid {index}",
            trait="code",
            symptom_kind="xid",
            symptom=str(index),
            scope=[f"gpu-{n}" for n in range(1, index + 2)],
            state=Incident.State.OPEN,
            opened_at=world.now,
            last_at=world.now,
        )


@pytest.fixture
def faulty(make: Any) -> World:
    """Two nodes with a fault that no rule covers, and a third; no look at their jobs."""
    world = make(policy="", nodes=3)
    Cluster.objects.update(guards={"storm": {"enabled": False}})
    for node in ("gpu-1", "gpu-2"):
        world.fault(79, node=node)
    world.work()
    return world


def test_the_gpus_of_all_nodes_are_counted_and_jobs_once(faulty: World) -> None:
    assert hit(faulty) == Hit(16, 0, all_known=False)
    incidents.note_jobs(faulty.node("gpu-1"), ["train/llm", "train/vit"], now=faulty.now)
    assert hit(faulty) == Hit(16, 2, all_known=False)  # at least
    incidents.note_jobs(faulty.node("gpu-2"), ["train/llm"], now=faulty.now)
    incidents.note_jobs(faulty.node("gpu-3"), ["train/other"], now=faulty.now)
    assert hit(faulty) == Hit(16, 2, all_known=True)


def test_jobs_that_had_left_at_the_newest_look_do_not_count(faulty: World) -> None:
    incidents.note_jobs(faulty.node("gpu-1"), ["train/gone"], now=faulty.now)
    incidents.note_jobs(faulty.node("gpu-1"), ["train/llm"], now=faulty.now + timedelta(minutes=1))
    assert hit(faulty) == Hit(16, 1, all_known=False)
    JobSeen.objects.update(at=faulty.now - timedelta(days=1))  # the jobs of another day
    assert hit(faulty) == Hit(16, 0, all_known=False)


@pytest.mark.parametrize("number", [1, 3])
def test_cards_of_any_number_of_nodes_cost_the_same_statements(
    make: Any, number: int, django_assert_num_queries: Any
) -> None:
    world = make(policy="", nodes=3)
    Cluster.objects.update(guards={"storm": {"enabled": False}})
    for index in range(1, number + 1):
        world.fault(79, node=f"gpu-{index}")
        incidents.note_jobs(world.node(f"gpu-{index}"), [f"train/{index}"], now=world.now)
    world.work()
    add_storms(world, number)
    found = entries(world)
    with django_assert_num_queries(STATEMENTS):
        hits = need_hits.of(found)
    assert sorted((one.gpus, one.jobs) for one in hits.values()) == sorted(
        [(8 * n, n) for n in range(1, number + 1)] + [(8 * number, number)]
    )


def test_a_card_says_what_is_hit_and_one_without_nodes_says_nothing(faulty: World, person: Any) -> None:
    incidents.note_jobs(faulty.node("gpu-1"), ["train/llm"], now=faulty.now)
    page = person("viewer").get("/").content.decode()
    assert "at least 1 training job" in page
    Incident.objects.update(state=Incident.State.CLOSED)
    Node.objects.all().delete()
    add_storms(faulty, 1)
    assert hit(faulty) is None
