"""Budgets of single groups of nodes: counted in SQL, held with or without the budget of the cluster."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.decisions import guards
from kcover.nodes.scopes import Scope
from kcover_portal.fleet import queries as fleet_queries, services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings, node_scopes
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.decide import past_guards
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import counts, headroom, situations
from tests import proofs
from tests.codes import found_in
from tests.portal.rescue.test_guards import hurt, isolated, make
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db
__all__ = ["make"]

RACK = "topology.kubernetes.io/rack"
IN_RACK = {"limit": 1, "domains": {"rack": ["r1", "r2"]}}


def with_racks(world: World, *racks: str) -> World:
    """Gives gpu-1, gpu-2, ... the label of these racks; "" leaves a node without one."""
    for number, rack in enumerate(racks, start=1):
        if rack:
            world.kube.label_node(f"gpu-{number}", {RACK: rack, "gold": "yes"})
    world.sync()
    return world


def set_scopes(world: World, *scopes: dict[str, object], **more: object) -> None:
    patch = {"budget": {"scopes": list(scopes), **more}}
    cluster_settings.set_guards(world.cluster, patch, actor="test", reason="", now=world.now)


@pytest.mark.parametrize(
    "scope", [{"domains": {"rack": ["r1", "r2"]}}, {"labels": ["gold"]}, {"labels": [f"{RACK}=r1"]}]
)
def test_inv_36_the_nodes_of_a_group_share_its_budget_and_others_do_not_need_it(make, scope: dict[str, object]) -> None:
    world = with_racks(make(nodes=6, budget={"scopes": [{"limit": 1, **scope}]}), "r1", "r1", "", "")
    hurt(world, 1, 2, 3, 4)
    world.work()
    assert isolated(world) == ["gpu-1", "gpu-3", "gpu-4"]
    [held] = Decision.objects.filter(answer="hold")
    assert held.node.name == "gpu-2"
    [budget] = [reason for reason in held.reasons if reason.code == "budget"]
    params = dict(budget.params)
    assert (params["taken"], params["limit"], params["eligible"]) == (1, 1, 2)


def test_inv_36_a_group_has_room_again_once_its_node_is_released(make) -> None:
    world = with_racks(make(nodes=4, budget={"scopes": [IN_RACK]}), "r1", "r2")
    hurt(world, 1, 2)
    world.work()
    assert isolated(world) == ["gpu-1"]
    services.request(world.node("gpu-1"), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    world.sync()
    world.pass_time(20)
    assert isolated(world) == ["gpu-2"]


def test_inv_36_the_budget_of_the_cluster_and_each_group_hold_together(make) -> None:
    groups = [{"limit": 2, "domains": {"rack": ["r1"]}}, {"limit": 1, "labels": [f"{RACK}=r2"]}]
    world = with_racks(make(nodes=8, budget={"limit": 3, "scopes": groups}), "r1", "r1", "r1", "r2", "r2")
    hurt(world, 1, 2, 3, 4, 5, 6)
    world.work()
    assert isolated(world) == ["gpu-1", "gpu-2", "gpu-4"]
    held = {
        row.node.name: [str(dict(reason.params)["scope"]) for reason in row.reasons if reason.code == "budget"]
        for row in Decision.objects.filter(answer="hold")
    }
    assert held == {
        "gpu-3": ["rack r1"],
        "gpu-5": ["cluster c1", f"label {RACK}=r2"],
        "gpu-6": ["cluster c1"],
    }


def test_inv_29_approved_rescues_begin_within_the_budget_of_their_group(make) -> None:
    world = with_racks(make(CORDON, nodes=6), "r1", "r1", "r1")
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    Cluster.objects.update(isolate_before_approval=False)
    hurt(world, 1, 2, 3, 4)
    world.work()
    set_scopes(world, IN_RACK)
    for rescue in Rescue.objects.order_by("pk"):
        services.approve(rescue, actor="user:bob", reason="", now=world.now)
    world.work()
    assert isolated(world) == ["gpu-1", "gpu-4"]
    because = found_in(world.rescue("gpu-2").because, "budget")
    assert dict(dict(because.params)["scope"].params)["name"] == "r1, …"


def test_the_proof_of_an_isolation_counts_its_groups_again(make) -> None:
    others = {"limit": 2, "pools": ["secret"]}
    world = with_racks(make(CORDON, nodes=4, budget={"scopes": [IN_RACK, others]}), "r1", "r2")
    hurt(world, 1)
    world.work()
    rescue = world.rescue("gpu-1")
    assert rescue.decision is not None
    assert rescue.decision.facts["counts"]["scoped"] == {
        "0": {"by": "rack", "name": "r1, …", "eligible": 2, "taken": 0}
    }
    assert rescue.decision.facts["settings"]["budget"]["scopes"] == [{"limit": 1}, None]
    assert proofs.broken_claim(rescue) == ""


def test_inv_29_slots_of_a_group_are_counted_under_the_lock_of_the_cluster(make) -> None:
    world = make(nodes=2)
    assert counts.lock(world.cluster, fleet_queries.guards_of(world.cluster), ()) is None
    set_scopes(world, IN_RACK)
    assert counts.lock(world.cluster, fleet_queries.guards_of(world.cluster), ()) == world.cluster


def test_without_groups_no_statement_is_added(make) -> None:
    world = with_racks(make(nodes=3), "r1")

    def statements() -> int:
        settings = fleet_queries.guards_of(world.cluster)
        with CaptureQueriesContext(connection) as seen:
            counts.facts(world.node("gpu-1"), settings=settings, now=world.now)
        return len(seen)

    before = statements()
    set_scopes(world, {"limit": 1, "labels": ["other"]})
    assert statements() == before, "a group without the node is not counted"
    set_scopes(world, IN_RACK)
    assert statements() == before + 2


def test_a_group_covers_the_same_nodes_in_sql_and_in_the_core(make) -> None:
    world = with_racks(make(nodes=5), "r1", "r2", "r3")
    for scope in (
        Scope(domain="rack", values=("r1", "r3")),
        Scope(labels=(("gold", None),)),
        Scope(labels=((RACK, "r2"), ("gold", "yes"))),
        Scope(pools=("",)),
    ):
        rows = set(node_scopes.nodes(world.cluster, scope))
        every = [world.node(f"gpu-{number}") for number in range(1, 6)]
        assert rows == {node for node in every if node_scopes.covers(scope, node, world.cluster)}


# ------------------------------------------------------------------------------------------------- how much is left


def room(world: World, *numbers: int) -> dict[str, int]:
    rows = world.cluster.nodes.filter(name__in=[f"gpu-{number}" for number in numbers])
    return headroom.of(world.cluster, rows, now=world.now)


def test_the_room_of_a_selection_is_that_of_its_narrowest_group(make) -> None:
    world = with_racks(make(nodes=8, budget={"scopes": [{**IN_RACK, "limit": 2}]}), "r1", "r1", "r2", "r2")
    assert room(world, 1, 2, 3, 4) == {"budget": 2}
    assert room(world, 1) == {"budget": 2}
    assert room(world, 1, 2, 3, 5, 6) == {"budget": 4}, "two of the rack, and both others"
    assert room(world, 5, 6) == {}
    hurt(world, 1)
    world.work()
    assert room(world, 2, 3) == {"budget": 1}
    assert headroom.around_isolation(world.node("gpu-2"), now=world.now) == {"budget": (1, 0)}
    set_scopes(world, {**IN_RACK, "limit": 2}, limit=1)
    assert room(world, 2, 3, 5) == {"budget": 0}


# --------------------------------------------------------------------------------------------------- tries of rules


def test_a_try_on_past_faults_holds_what_a_group_would_have_held(make) -> None:
    world = with_racks(make(CORDON, nodes=4, budget={"scopes": [IN_RACK]}), "r1", "r2")
    hurt(world, 1, 2)
    first, second = Incident.objects.order_by("pk")
    replay = past_guards.Replay()
    at = world.now + timedelta(seconds=1)
    replay.add(first, answer="rescue", rule="p#1", steps=["cordon"], at=world.now)
    node = world.node("gpu-2")
    facts = replay.counts(node, second, situations.situation(node, second, now=at))
    assert facts is not None
    assert facts.scoped == {"0": guards.Slots(by="rack", name="r2, …", eligible=2, taken=1)}


def test_values_with_gpu_nodes_are_offered_first(world: World) -> None:
    world.kube.add_node("a-cpu", gpus=0)
    world.sync()
    every = type(world.node()).objects.filter(cluster=world.cluster)
    assert [value for value, _ in node_scopes.values(world.cluster, "nodes", among=every)][-1] == "a-cpu"
