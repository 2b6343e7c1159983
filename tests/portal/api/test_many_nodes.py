"""Actions on the nodes of a scope: what is selected, who may, and each node's own answer."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.accounts import services
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Rescue
from tests.portal.api.conftest import Api, add_node, caller, problem

pytestmark = pytest.mark.django_db
RACK = "topology.kubernetes.io/rack"


@pytest.fixture
def racks(east: Cluster, now: datetime) -> Cluster:
    """Six GPU nodes in two racks and two pools; one is excluded by its label."""
    for number in range(1, 7):
        labels = {RACK: "A" if number < 5 else "B"} | ({"kcover.io/exclude": "true"} if number == 2 else {})
        add_node(east, f"gpu-{number}", now, pool="a" if number < 4 else "b", labels=labels)
    return east


def ask(**scope: Any) -> dict[str, Any]:
    return {"cluster": "east", "reason": "ticket 7", **scope}


def test_each_node_gets_a_rescue_or_the_reason_why_not(racks: Cluster, operator: Api) -> None:
    body = ask(domains={"rack": ["A"]})
    dry = operator.post("nodes/drain?dry_run=true", body | {"reason": ""}).json()
    assert [(one["node"], [held["code"] for held in one["held_back_reasons"]]) for one in dry["nodes"]] == [
        ("gpu-1", []),
        ("gpu-2", ["excluded"]),
        ("gpu-3", []),
        ("gpu-4", []),
    ]
    assert [one["pods"] for one in dry["nodes"]] == [1, 0, 0, 0]
    assert not Rescue.objects.exists()
    answer = operator.post("nodes/cordon", body, Idempotency_Key="k")
    assert answer.status_code == 200, answer.content
    made = {one["node"]: one["rescue"] for one in answer.json()["nodes"]}
    [refused] = [one for one in answer.json()["nodes"] if one["because"]]
    assert (refused["node"], refused["rescue"], refused["because_reason"]["code"]) == ("gpu-2", None, "excluded")
    rows = Rescue.objects.order_by("node__name")
    assert [(row.node.name, row.pk, row.reason, row.requester_kind) for row in rows] == [
        (name, made[name], "ticket 7", "token") for name in ("gpu-1", "gpu-3", "gpu-4")
    ]


def test_a_repeated_key_opens_no_second_rescue(racks: Cluster, operator: Api, now: datetime) -> None:
    body = ask(pools=["b"])
    first = operator.post("nodes/cordon", body, Idempotency_Key="k").json()
    assert operator.post("nodes/cordon", body, Idempotency_Key="k").json() == first
    assert Rescue.objects.count() == 3
    again = operator.post("nodes/cordon", body).json()["nodes"]
    assert {one["because_reason"]["code"] for one in again} == {"rescue_in_the_way"}
    another = caller("operator", now).post("nodes/cordon", body, Idempotency_Key="k").json()["nodes"]
    assert {one["rescue"] for one in another} == {None}
    assert {
        one["rescue"] for one in operator.post("nodes/uncordon", body, Idempotency_Key="k").json()["nodes"]
    }.isdisjoint({one["rescue"] for one in first["nodes"]})


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        (ask(), "nodes", "scope_required"),
        (ask(nodes=[]), "nodes", "scope_empty"),
        (ask(nodes=["gpu-1", "gpu-9", "x"]), "nodes", "nodes_missing"),
        (ask(nodes=["gpu-9"]), "nodes", "node_misspelt"),
        (ask(pools=["c"]), "pools", "pool_without_nodes"),
        (ask(labels={"zone": "z9"}), "labels", "scope_without_nodes"),
        (ask(domains={"leaf": ["l"]}), "domains", "scope_without_nodes"),
        (ask(pools=["a"], nodes=["gpu-1"]), "pools", "scope_one_kind"),
        (ask(pools=["a"]) | {"cluster": "mars"}, "cluster", "unknown_cluster"),
        (ask(pools=["a"], override=["budget"]), "override", "unknown_field"),
    ],
)
@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_an_invalid_request_is_refused_by_field(
    racks: Cluster, operator: Api, body: dict[str, Any], field: str, code: str, query: str
) -> None:
    errors = problem(operator.post(f"nodes/cordon{query}", body), 400)["errors"]
    assert [(error["field"], error["code"]) for error in errors] == [(field, code)]
    assert not Rescue.objects.exists()


def test_a_hundred_nodes_at_once_and_a_reason(racks: Cluster, operator: Api, now: datetime) -> None:
    Node.objects.bulk_create(
        Node(cluster=racks, name=f"n-{number}", pool="big", in_cluster=True, created_at=now) for number in range(101)
    )
    [error] = problem(operator.post("nodes/cordon", ask(pools=["big"])), 400)["errors"]
    assert (error["field"], error["code"], error["params"]) == ("pools", "scope_too_wide", {"most": 100, "count": 101})
    problem(operator.post("nodes/cordon", {"cluster": "east", "pools": ["a"]}), 400)
    problem(operator.post("nodes/explode", ask(pools=["a"])), 404)


def test_a_viewer_previews_only_and_callers_see_their_own_clusters(
    racks: Cluster, west: Cluster, viewer: Api, now: datetime
) -> None:
    problem(viewer.post("nodes/cordon", ask(pools=["a"])), 403)
    seen = viewer.post("nodes/cordon?dry_run=true", ask(pools=["a"])).json()["nodes"]
    assert {held["code"] for one in seen for held in one["held_back_reasons"]} == {"role_needed"}
    elsewhere = caller("operator", now, cluster=west)
    [error] = problem(elsewhere.post("nodes/cordon", ask(pools=["a"])), 400)["errors"]
    assert error["code"] == "unknown_cluster"
    role: dict[str, Any] = {"role": "operator", "cluster": racks, "pool": "b"}
    user = services.make_user("bea", password="correct horse battery", created_by="t", now=now, **role)
    bea = Api()
    bea.client.force_login(user)
    [error] = problem(bea.post("nodes/cordon", ask(pools=["a"])), 400)["errors"]
    assert (error["code"], error["params"]["pools"]) == ("pool_without_nodes", "b")
    [error] = problem(bea.post("nodes/cordon", ask(nodes=["gpu-3"])), 400)["errors"]
    assert "gpu-3" not in error["params"].get("near", "")
    [error] = problem(bea.post("nodes/cordon", ask(domains={"rack": ["A", "C"]})), 400)["errors"]
    assert error["code"] == "scope_without_nodes"
    hit = bea.post("nodes/cordon", ask(domains={"rack": ["A"]})).json()["nodes"]
    assert [one["node"] for one in hit] == ["gpu-4"]
    assert Rescue.objects.get().requester_kind == "person"
