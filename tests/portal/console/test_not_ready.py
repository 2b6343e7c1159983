"""Nodes that Kubernetes reports as not Ready: shown before their agents count as silent, without any effect."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal import needs_person
from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import fleet, not_ready
from kcover_portal.fleet.models import Agent, Cluster, Maintenance, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue.models import Rescue
from tests.portal.rescue.world import World

STATEMENTS = 2  # the nodes with their agents, the windows


@pytest.fixture
def unready(make: Any) -> World:
    """Three nodes, of which the first has not been Ready for a minute."""
    world = make(nodes=3)
    turn(world, "gpu-1")
    return world


def turn(world: World, *names: str) -> None:
    for name in names:
        world.kube.set_ready(name, False)
    world.sync()
    world.now += timedelta(minutes=1)


def shown(world: World, *, away: tuple[str, ...] = ()) -> list[str]:
    tiles = fleet.summary(Scope.of(world.cluster), now=world.now).troubled
    return [one.name for one in not_ready.of(tiles, out_of_reach=away, now=world.now)]


def test_a_node_is_shown_after_the_grace_until_it_is_ready(make: Any) -> None:
    world = make(nodes=2)
    assert shown(world) == []
    world.kube.set_ready("gpu-1", False)
    world.sync()
    assert shown(world) == []
    world.now += not_ready.GRACE - timedelta(seconds=1)
    assert shown(world) == []
    world.now += timedelta(seconds=1)
    assert shown(world) == ["gpu-1"]
    world.kube.set_ready("gpu-1", True)
    world.sync()
    assert shown(world) == []
    world.kube.set_ready("gpu-1", False)  # the grace begins again
    world.sync()
    since = world.now
    assert shown(world) == []
    world.now += not_ready.GRACE
    world.kube.apply_node("gpu-1", lambda _: port.NodeChange(labels={"rack": "r7"}))  # another change does not hide it
    world.sync()
    assert shown(world) == ["gpu-1"]
    assert world.node().unready_since == since


def test_it_opens_nothing_and_counts_as_no_need(unready: World) -> None:
    unready.work()
    assert shown(unready) == ["gpu-1"]
    assert (Incident.objects.count(), Rescue.objects.count()) == (0, 0)
    assert sum(needs_person.counts([unready.cluster], now=unready.now).values()) == 0


def test_a_node_under_rescue_or_with_a_fault_is_left_to_its_own_card(unready: World) -> None:
    rescue = Rescue.objects.create(
        cluster=unready.cluster, node=unready.node(), origin="manual", requested_by="user:x", opened_at=unready.now
    )
    assert shown(unready) == []
    rescue.delete()
    assert shown(unready) == ["gpu-1"]
    unready.fault(79)
    assert shown(unready) == []


@pytest.mark.parametrize(
    ("window", "hidden"),
    [
        ({"node": "gpu-1"}, True),
        ({"cluster": None}, True),
        ({"node": "gpu-2"}, False),
        ({"node": "gpu-1", "starts_at": timedelta(hours=1)}, False),
        ({"node": "gpu-1", "starts_at": -timedelta(hours=2), "ends_at": -timedelta(hours=1)}, False),
    ],
)
def test_a_node_under_maintenance_is_not_shown(unready: World, window: dict[str, Any], hidden: bool) -> None:
    given = {"cluster": unready.cluster, "starts_at": -timedelta(hours=1), "ends_at": timedelta(hours=2), **window}
    times = {name: unready.now + given.pop(name) for name in ("starts_at", "ends_at")}
    Maintenance.objects.create(reason="firmware", created_by="user:x", **given, **times)
    assert (shown(unready) == []) == hidden


def test_the_last_word_of_a_cluster_that_is_out_of_reach_is_not_shown(unready: World) -> None:
    assert shown(unready, away=("c1",)) == []
    Node.objects.update(in_cluster=False)
    assert shown(unready) == []


@pytest.mark.parametrize("number", [1, 3])
def test_any_number_of_nodes_costs_the_same_statements(make: Any, number: int, django_assert_num_queries: Any) -> None:
    world = make(nodes=3)
    names = [f"gpu-{index}" for index in range(1, number + 1)]
    turn(world, *names)
    tiles = fleet.summary(Scope.of(world.cluster), now=world.now).troubled
    with django_assert_num_queries(STATEMENTS):
        found = not_ready.of(tiles, out_of_reach=(), now=world.now)
    assert [one.name for one in found] == names


def test_the_home_page_and_the_node_say_who_is_silent(unready: World, person: Any) -> None:
    client = person("viewer")
    Cluster.objects.update(watched_at=timezone.now())
    assert [one.kubelet_silent for one in client.get("/").context["not_ready"]] == [True]
    page = client.get("/nodes/c1/gpu-1/").content.decode()
    assert 'id="not-ready"' in page
    assert "an incident is opened" not in page  # it has no agent
    Agent.objects.create(node=unready.node(), seen_at=unready.now, boot_seen_at=unready.now, boot_id="b")
    assert "an incident is opened" in client.get("/nodes/c1/gpu-1/").content.decode()
    Agent.objects.update(seen_at=timezone.now() - timedelta(minutes=3))
    [one] = client.get("/").context["not_ready"]
    assert one.is_agent_silent
    assert "falls silent too" not in client.get("/nodes/c1/gpu-1/").content.decode()
    Node.objects.update(conditions={"Ready": "False"})
    assert [one.kubelet_silent for one in client.get("/").context["not_ready"]] == [False]
    assert 'id="not-ready"' not in client.get("/nodes/c1/gpu-2/").content.decode()


def test_a_node_whose_agent_is_silent_too_stays_told_as_not_ready(unready: World, person: Any) -> None:
    client = person("admin")
    unready.fault(74)  # no rule covers it
    unready.work()
    [card] = client.get("/").context["needs"].cards
    assert (card.not_ready, client.get("/").context["not_ready"]) == (1, [])
    Node.objects.update(ready=True)
    [card] = client.get("/").context["needs"].cards
    assert card.not_ready == 0


def test_the_home_page_and_the_system_page_count_the_same_silent_agents(unready: World, person: Any) -> None:
    unready.fault(62, node="gpu-2")
    Agent.objects.all().delete()
    for number in (1, 2, 3):
        node, seen = unready.node(f"gpu-{number}"), timezone.now() - timedelta(hours=number > 1)
        Agent.objects.create(node=node, seen_at=seen, boot_seen_at=seen, boot_id="b")
    client = person("admin")
    Cluster.objects.update(watched_at=timezone.now())  # of a cluster that is out of reach, silence is no news
    assert [tile.name for tile in client.get("/").context["silent"]] == ["gpu-2", "gpu-3"]
    assert client.get("/system/").context["agents"].silent == 2
