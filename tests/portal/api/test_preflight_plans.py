"""Plans of pair tests over REST: shapes, codes and who may."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans
from tests.portal.api.conftest import Api, caller, problem
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
ASKED: dict[str, Any] = {"cluster": "c1", "nodes": ["gpu-1", "gpu-2", "gpu-3"], "rounds": 2, "reason": "new leaf"}


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy="", nodes=4)
    made.now = timezone.now()
    Cluster.objects.update(nccl_image="pytorch:2")
    yield made
    made.uninstall()


def codes(response: Any, status: int) -> dict[str, str]:
    """The codes of a problem by field."""
    return {error["field"]: error["code"] for error in problem(response, status)["errors"]}


def test_a_plan_is_requested_and_read(world: World, operator: Api) -> None:
    answer = operator.post("preflight/plans", ASKED)
    plan = PairPlan.objects.get()
    assert (answer.status_code, answer.json()["id"]) == (202, plan.pk)
    rounds = answer.json()["rounds"]
    assert [len(pairs) for pairs in rounds] == [1, 1]
    assert {node for pairs in rounds for pair in pairs for node in pair} == set(ASKED["nodes"])
    shown = operator.get(f"preflight/plans/{plan.pk}").json()
    wanted = {"state": "running", "rule": "confirmed", "rounds": 2, "threshold": 350.0, "reason": "new leaf"}
    assert shown.items() >= wanted.items()
    assert (shown["verdict"], shown["busy_nodes"]) == (None, False)
    assert [(test["round"], test["state"], test["proof"]) for test in shown["matrix"]] == [
        (1, "pending", "none"),
        (2, "pending", "none"),
    ]
    assert operator.ids("preflight/plans?state=running&node=gpu-1&cluster=c1") == [plan.pk]
    assert operator.ids("preflight/plans?state=finished") == operator.ids("preflight/plans?node=gpu-4") == []


@pytest.mark.parametrize("rule", pair_plans.RULES)
def test_the_verdict_names_its_rule(world: World, operator: Api, rule: str) -> None:
    key = operator.post("preflight/plans", ASKED | {"rule": rule}).json()["id"]
    PairPlan.objects.update(state="finished", slow=["gpu-1"], inconclusive=["gpu-2"], finished_at=world.now)
    verdict = {"rule": rule, "slow": ["gpu-1"], "fabric": [], "inconclusive": ["gpu-2"], "storm": False}
    assert operator.get(f"preflight/plans/{key}").json()["verdict"] == verdict
    assert operator.get("preflight/plans").json()["results"][0]["verdict"] == verdict


@pytest.mark.parametrize(
    ("selection", "number"),
    [
        ({}, 4),
        ({"pools": ["h100"]}, 2),
        ({"labels": ["rack=A-14", "row"]}, 3),
        ({"domains": {"rack": ["A-14"]}}, 3),
        ({"selector": "rack=A-14"}, 3),
    ],
)
def test_the_nodes_of_a_plan_are_a_scope(world: World, operator: Api, selection: dict[str, Any], number: int) -> None:
    Node.objects.filter(name__in=("gpu-1", "gpu-2")).update(pool="h100")
    Node.objects.exclude(name="gpu-4").update(labels={"rack": "A-14", "row": "7"})
    Cluster.objects.update(topology={"rack": "rack"})
    assert operator.post("preflight/plans", {"cluster": "c1", **selection}).status_code == 202
    tests = PairPlan.objects.get().tests.values_list("first__name", "second__name")
    assert len({name for pair in tests for name in pair}) == number


def test_a_repeated_request_plans_once(world: World, operator: Api) -> None:
    first, second = (operator.post("preflight/plans", ASKED, idempotency_key="k").json() for _ in range(2))
    assert first == second
    assert PairPlan.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"nodes": ["gpu-1", "gpu-9"]}, "nodes", "nodes_missing"),
        ({"nodes": ["gpu-1"]}, "nodes", "pair_nodes"),
        ({"selector": "a=b"}, "selector", "pair_selection"),
        ({"nodes": None, "selector": "a=b"}, "selector", "scope_without_nodes"),
        ({"nodes": None, "selector": "a=b=c"}, "selector", "label_selector_invalid"),
        ({"nodes": []}, "nodes", "scope_empty"),
        ({"nodes": None, "pools": ["p9"]}, "pools", "cluster_without_pools"),
        ({"nodes": None, "domains": {"leaf": ["l9"]}}, "domains", "scope_without_nodes"),
        ({"pools": ["p"]}, "pools", "scope_one_kind"),
        ({"rounds": 99}, "rounds", "pair_rounds"),
        ({"rule": "mine"}, "rule", "pair_rule"),
        ({"threshold": 0}, "threshold", "pair_threshold"),
        ({"cluster": "c9"}, "cluster", "unknown_cluster"),
        ({"level": 4}, "level", "unknown_field"),
    ],
)
def test_an_invalid_plan_is_refused_by_field(
    world: World, operator: Api, change: dict[str, Any], field: str, code: str
) -> None:
    body = {key: value for key, value in (ASKED | change).items() if value is not None}
    assert codes(operator.post("preflight/plans", body), 400) == {field: code}
    assert not PairPlan.objects.exists()


def test_a_conflicting_plan_is_refused(world: World, operator: Api) -> None:
    operator.post("preflight/plans", ASKED)
    assert problem(operator.post("preflight/plans", ASKED), 409)["code"] == "pair_nodes_in_plan"
    Cluster.objects.update(nccl_image="")
    assert problem(operator.post("preflight/plans", ASKED), 409)["code"] == "pair_no_image"
    Cluster.objects.update(mode="shadow")
    assert problem(operator.post("preflight/plans", ASKED), 409)["code"] == "pair_mode"


def test_a_plan_is_cancelled_once(world: World, operator: Api, viewer: Api) -> None:
    key = operator.post("preflight/plans", ASKED).json()["id"]
    problem(viewer.post(f"preflight/plans/{key}/cancel", {"reason": "x"}), 403)
    answer = operator.post(f"preflight/plans/{key}/cancel", {"reason": "x"}).json()
    assert (answer["state"], answer["verdict"]) == ("cancelled", None)
    assert problem(operator.post(f"preflight/plans/{key}/cancel", {}), 409)["code"] == "pair_plan_ended"
    problem(operator.post("preflight/plans/999/cancel", {}), 404)


def test_operators_of_the_cluster_request_plans_and_viewers_read_them(world: World, viewer: Api, now: datetime) -> None:
    problem(viewer.post("preflight/plans", ASKED), 403)
    elsewhere = caller("operator", now, cluster=Cluster.objects.create(name="c2", created_at=now))
    assert codes(elsewhere.post("preflight/plans", ASKED), 400) == {"cluster": "unknown_cluster"}
    key = caller("operator", now).post("preflight/plans", ASKED).json()["id"]
    assert viewer.get(f"preflight/plans/{key}").status_code == 200
    assert elsewhere.ids("preflight/plans") == []
    problem(elsewhere.get(f"preflight/plans/{key}"), 404)
