"""Budgets of groups on the page Safety: their gauges, the dialog that sets, changes and removes one, their history."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover.decisions import guards
from kcover_portal.console.reads import headroom, safety
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node, PendingChange
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.ledger.models import Entry
from tests.portal.console.test_safety import fleet_of_ten, gauges, set_guards
from tests.portal.rescue.world import World

__all__ = ["fleet_of_ten"]

ADDRESS = "/safety/c1/groups/"
POOL_A = {"by": "pools", "which": "a", "reason": "inference needs them"}


def scopes() -> list[dict[str, Any]]:
    return guards.to_json(fleet.guards_of(Cluster.objects.get()))["budget"]["scopes"]


def test_a_group_gets_a_budget_which_is_changed_and_removed(person, fleet_of_ten: World):
    client = person("admin", name="omar")
    assert ADDRESS in client.get("/safety/").content.decode()
    assert client.post(ADDRESS, {**POOL_A, "limit": "1"}).status_code == 302
    assert scopes() == [{"limit": 1, "pools": ["a"]}]
    entry = Entry.objects.get(verb="cluster.guards")
    assert (entry.actor, entry.data["reason"]) == ("user:omar", POOL_A["reason"])

    fleet_of_ten.cluster.refresh_from_db()
    [_whole, group] = gauges(fleet_of_ten)["budget"]
    assert (group.count, group.limit, group.group_query) == (0, 1, "by=pools&which=a")
    shown = client.get(f"{ADDRESS}?{group.group_query}").context["form"]
    assert (shown["by"].value(), shown["which"].value(), shown["limit"].value()) == ("pools", "a", 1)
    assert shown["cluster"].value() == "c1"
    rack = {"by": "rack", "which": "r1, r2", "limit": "10%", "reason": "one power line"}
    assert client.post(ADDRESS, rack).status_code == 302
    assert client.post(ADDRESS, {**POOL_A, "limit": "2"}).status_code == 302
    assert scopes() == [{"limit": 2, "pools": ["a"]}, {"limit": "10%", "domains": {"rack": ["r1", "r2"]}}]
    assert client.post("/safety/c1/guards/budget/", {"limit": "5", "by": "cluster", "reason": "r"}).status_code == 302
    assert len(scopes()) == 2, "the budget of the cluster is another one"
    assert client.post(ADDRESS, {**POOL_A, "limit": ""}).status_code == 302
    assert scopes() == [{"limit": "10%", "domains": {"rack": ["r1", "r2"]}}]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"limit": ""}, "limit"),
        ({"limit": "0"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"by": "", "limit": "1"}, "by"),
        ({"which": "", "limit": "1"}, "which"),
        ({"by": "nodes", "which": "gpu-1", "limit": "1"}, "by"),
        ({"by": "labels", "which": "a b=c=", "limit": "1"}, "which"),
        ({"which": " ".join(f"{n}" * 60 for n in range(10, 99)), "limit": "1"}, "which"),
        ({"reason": "", "limit": "1"}, "reason"),
    ],
)
def test_an_invalid_group_is_refused_at_its_field(person, fleet_of_ten: World, given: dict[str, str], field: str):
    refused = person("admin").post(ADDRESS, {**POOL_A, **given})
    assert refused.status_code == 422
    assert list(refused.context["form"].errors) == [field]
    assert scopes() == []


def test_who_may_not_configure_sets_no_budget(person, fleet_of_ten: World):
    assert person("viewer").get(ADDRESS).status_code == 403
    assert person("operator").post(ADDRESS, {**POOL_A, "limit": "1"}).status_code == 403
    assert ADDRESS not in person("operator").get("/safety/").content.decode()
    other = Cluster.objects.create(name="other", created_at=timezone.now())
    assert person("admin", cluster=other).get(ADDRESS).status_code == 404


def test_a_wider_budget_waits_for_a_second_admin(person, fleet_of_ten: World):
    world = fleet_of_ten
    set_guards(world, budget={"scopes": [{"limit": 1, "pools": ["a"]}]})
    cluster_settings.set_cluster(world.cluster, {"second_admin": True}, actor="user:t", reason="t", now=world.now)
    client = person("admin", name="omar")
    assert client.post(ADDRESS, {**POOL_A, "limit": ""}).status_code == 302
    assert scopes() == [{"limit": 1, "pools": ["a"]}]
    assert PendingChange.objects.get().changes == {"budget": {"scopes": []}}
    Node.objects.filter(name="gpu-3").update(pool="b")
    assert client.post(ADDRESS, {**POOL_A, "which": "b", "limit": "1"}).status_code == 302
    assert [one["pools"] for one in scopes()] == [["a"], ["b"]], "a further limit only tightens"


def test_the_gauge_and_the_history_of_a_group_count_its_nodes(person, fleet_of_ten: World):
    world = fleet_of_ten
    budget = {"scopes": [{"limit": "50%", "pools": ["a"]}, {"limit": 3, "labels": ["zone=b"]}]}
    set_guards(world, budget=budget, storm={"enabled": False}, breaker={"enabled": False})
    for name in ("gpu-1", "gpu-5"):
        world.fault(62, node=name)
        world.work()
    found = gauges(world)["budget"]
    assert [(one.count, one.limit, one.state) for one in found] == [
        (2, None, "off"),
        (1, 1, "tripped"),
        (0, None, "off"),
    ]
    assert safety.bounds(world.cluster, now=world.now).state == "tripped"
    history = headroom.of_budgets([world.cluster], now=world.now + timedelta(minutes=1), span="24h")
    assert [(one.limit, max(one.peaks)) for one in history] == [(1, 1), (3, 0)]
    assert person("viewer").get("/safety/headroom/").context["budgets"]


def test_the_preview_of_a_group_counts_its_nodes_and_asks_no_guard(person, fleet_of_ten: World):
    client = person("admin")
    given = {name: client.get(ADDRESS).context["form"][name].value() for name in ("cluster", "only")}
    assert client.post("/scopes/line/", {**given, "by": "", "which": ""}).context.get("found") is None
    line = client.post("/scopes/line/", {**given, "by": "pools", "which": "a"}).context
    assert line["found"].nodes
    assert (line["guards"], line["found"].budgets) == ([], 0)
    assert client.post("/scopes/line/", {**given, "only": "", "by": "pools", "which": "a"}).context["guards"]
