"""The state of a node in one word, and the rescues that count as left to people."""

from collections import Counter
from datetime import timedelta

import pytest
from django.utils import timezone

from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import fleet, step_facts
from kcover_portal.fleet.models import Agent, Gpu, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.queries import needs_person
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import NODE, World

CALM = {
    "in_cluster": True,
    "ready": True,
    "unschedulable": False,
    "silent": False,
    "faulty": False,
    "left": False,
    "rescue": None,
    "awaiting": False,
    "in_repair": False,
    "held_back": False,
}


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({}, "healthy"),
        ({"unschedulable": True}, "cordoned"),
        ({"silent": True, "unschedulable": True}, "silent"),
        ({"ready": False, "silent": True}, "not-ready"),
        ({"in_cluster": False, "ready": False}, "unknown"),
        ({"faulty": True, "ready": False}, "faulty"),
        ({"faulty": True, "held_back": True}, "held"),
        ({"faulty": True, "rescue": "running", "ready": False, "unschedulable": True}, "healing"),
        ({"faulty": True, "rescue": "held"}, "held"),
        ({"faulty": True, "rescue": "held", "awaiting": True}, "approval"),
        ({"faulty": True, "rescue": "waiting", "in_repair": True}, "repair"),
        ({"left": True, "rescue": "held", "faulty": True}, "attention"),
    ],
)
def test_the_most_urgent_word_wins(facts, word):
    assert fleet.state_of(**{**CALM, **facts}) == word


def word(world: World) -> str:
    (tile,) = fleet.tiles(Scope.of(world.cluster), now=world.now)
    return tile.state


def test_a_node_goes_from_healthy_over_healing_to_healthy(world: World):
    assert word(world) == "healthy"
    world.fault()
    assert word(world) == "faulty"
    world.until_reboot_is_asked()
    assert word(world) == "healing"
    world.reboot()
    world.until("succeeded")
    world.sync()
    assert word(world) == "healthy"


def test_a_node_that_a_person_took_offline_says_so_wherever_its_state_is_shown(world: World, person: Person):
    services.request(world.node(), "offline", actor="user:ann", reason="ticket 7", now=world.now)
    for _ in range(10):
        world.work()
        world.pass_time()
    assert (world.step("repair").state, word(world)) == ("waiting", "repair")
    client = person("viewer")
    place = f"{world.cluster.name}/{NODE}"
    assert [row.name for row in client.get("/nodes/?status=repair").context["page"].object_list] == [NODE]
    assert list(client.get("/nodes/?status=healing").context["page"].object_list) == []
    assert client.get(f"/nodes/{place}/").context["state"] == "repair"
    assert [row["name"] for row in client.get("/api/v1/nodes/?status=repair").json()["results"]] == [NODE]
    assert client.get(f"/api/v1/nodes/{place}/").json()["stage"] == "repair"
    counts = {count.state: count.number for count in client.get("/").context["counts"]}
    assert (counts["repair"], counts["healing"]) == (1, 0)


def test_a_rescue_that_stops_is_left_to_people_until_released(world: World):
    world.kube.add_pod("train", "stubborn", node=NODE, labels={"app": "stubborn"})
    world.kube.add_budget("train", "keep", match={"app": "stubborn"}, min_available=1)
    world.fault()
    rescue = world.until("held", seconds=60)
    assert word(world) == "attention"
    assert needs_person.status_of(rescue) == "people"
    services.request(world.node(), "release", actor="user:omar", reason="done by hand", now=world.now)
    world.work()
    world.sync()
    world.report()
    assert word(world) == "healthy"


def test_an_agent_is_shown_as_silent_after_four_heartbeats(world: World):
    world.report()
    assert word(world) == "healthy"
    Agent.objects.update(seen_at=world.now - timedelta(seconds=121))
    assert word(world) == "silent"


@pytest.mark.parametrize("printed", ["0000:4e:00", "0000:4e:00.0", "0000:4E:00"])
def test_the_faulty_gpu_is_marked_however_its_address_is_printed(world: World, printed: str):
    node = world.node()
    for index, pci in enumerate(("0000:1b:00.0", "0000:4e:00.0")):
        Gpu.objects.create(node=node, index=index, uuid=f"GPU-{index}", pci=pci, seen_at=world.now)
    world.fault(95, pci=printed)
    (tile,) = fleet.tiles(Scope.of(world.cluster), now=world.now)
    assert tile.devices == ".x......"
    assert tile.faults == ["Xid 95"]


def test_a_programs_fault_degrades_no_node(world: World):
    world.fault(31)
    world.work()
    assert word(world) == "healthy"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "under 1 s"), (0.2, "under 1 s"), (59, "59 s"), (600, "10 min"), (233, "3 min 53 s"), (3660, "1 h 1 min")],
)
def test_durations_have_two_units_and_are_never_negative(seconds, words):
    assert step_facts.duration(timedelta(seconds=seconds)) == words


def test_the_current_time_is_an_argument(world: World):
    assert fleet.tiles(Scope.of(world.cluster), now=timezone.now())[0].state == "healthy"


def test_the_summary_counts_all_and_lists_those_that_are_not_healthy(world: World):
    """Whatever makes a tile anything but healthy makes it one of the summary."""
    Node.objects.filter(pk=world.node().pk).delete()
    changes = [
        *(
            {},
            {},
            {"gpus": 0},
            {"gpus": 0, "in_cluster": False, "ready": False},
            {"ready": False},
            {"unschedulable": True},
        ),
        *({"gone_at": world.now}, {}, {}),
    ]
    for number, change in enumerate(changes):
        usual = {"in_cluster": True, "ready": True, "gpus": 8, "created_at": world.now, "pool": "a"}
        Node.objects.create(cluster=world.cluster, name=f"node-{number}", **(usual | change))
    one = {"boot_id": "b", "boot_seen_at": world.now, "version": "1"}
    for name, seconds in (("node-0", 10), ("node-1", 200)):
        seen_at = world.now - timedelta(seconds=seconds)
        Agent.objects.create(node=Node.objects.get(name=name), seen_at=seen_at, **one)
    for name, program in (("node-7", False), ("node-8", True)):
        Incident.objects.create(
            cluster=world.cluster,
            node=Node.objects.get(name=name),
            kind="xid",
            code="79",
            state="open",
            is_user_fault=program,
            opened_at=world.now,
            last_at=world.now,
        )
    tiles = fleet.tiles(Scope.of(world.cluster), now=world.now)
    summary = fleet.summary(Scope.of(world.cluster), now=world.now)
    assert (summary.nodes, summary.gpus) == (len(tiles), sum(tile.gpus for tile in tiles)) == (7, 48)
    assert summary.counts == Counter(tile.state for tile in tiles)
    assert sorted(tile.name for tile in summary.troubled) == ["node-1", "node-3", "node-4", "node-5", "node-7"]
    assert {tile.name: tile.state for tile in summary.troubled} == {
        tile.name: tile.state for tile in tiles if tile.state != "healthy"
    }


def test_a_node_without_gpus_has_a_tile_only_when_it_is_requested(world: World):
    one = {"in_cluster": True, "ready": True, "gpus": 0, "created_at": world.now}
    node = Node.objects.create(cluster=world.cluster, name="cpu-1", **one)
    assert [tile.name for tile in fleet.tiles(Scope.of(world.cluster), now=world.now)] == [NODE]
    (tile,) = fleet.tiles(Scope.of(world.cluster), now=world.now, nodes=[node.pk])
    assert (tile.name, tile.state) == ("cpu-1", "healthy")
