"""``POST /clusters``: the test of the access, and what is registered; no answer contains the kubeconfig."""

from collections.abc import Iterator
from datetime import datetime

import pytest

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.services import concurrency_limits
from tests.portal.api.conftest import Api, person, problem
from tests.portal.console.test_clusters import kubeconfig
from tests.simulator import api_server

pytestmark = pytest.mark.django_db


@pytest.fixture
def server() -> Iterator[api_server.ApiServer]:
    with api_server.ApiServer() as made:
        made.put("Node", api_server.node("gpu-1"))
        yield made


@pytest.fixture
def root(now: datetime) -> Api:
    return person("root", "admin", now)


def test_a_cluster_is_tested_then_added_and_no_answer_has_its_kubeconfig(
    root: Api, server: api_server.ApiServer
) -> None:
    body = {"name": "north", "kubeconfig": kubeconfig(server.url)}
    tested = root.post("clusters?dry_run=true", body)
    assert (tested.status_code, tested.json()["usable"], tested.json()["nodes"]) == (200, True, 1)
    assert not Cluster.objects.filter(name="north").exists()
    made = root.post("clusters", body)
    assert made.status_code == 201, made.content
    assert (made.json()["name"], made.json()["mode"], made.json()["in_cluster"]) == ("north", "shadow", False)
    assert made.json()["access"] == tested.json()
    for answer in (tested, made, root.get("clusters/north")):
        assert api_server.ADMIN_TOKEN.encode() not in answer.content
    row = Cluster.objects.get(name="north")
    assert queries.connect(row).count_nodes() == 1
    verbs = [entry.verb for entry in Entry.objects.filter(cluster="north").order_by("sequence")]
    assert verbs == ["cluster.tested", "cluster.tested", "cluster.added"]
    assert not Entry.objects.filter(data__icontains=api_server.ADMIN_TOKEN).exists()
    assert problem(root.post("clusters", body), 409)["code"] == "cluster_exists"


def test_a_cluster_that_cannot_be_reached_is_not_added(root: Api, server: api_server.ApiServer) -> None:
    wrong = {"name": "north", "kubeconfig": kubeconfig(server.url, token="another")}
    assert fields_of(root.post("clusters", wrong), 400) == {"kubeconfig": "cluster_credentials_refused"}
    assert root.post("clusters?dry_run=true", wrong).json()["unreachable_reason"]["code"] == (
        "cluster_credentials_refused"
    )
    assert not Cluster.objects.filter(name="north").exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"kubeconfig": "x: ["}, "kubeconfig"),
        ({}, "kubeconfig"),
        ({"name": "a b", "kubeconfig": "x"}, "name"),
        ({"kubeconfig": "x", "mode": "paused"}, "mode"),
        ({"kubeconfig": "x", "read_kubeconfig": "x"}, "read_kubeconfig"),
    ],
)
def test_an_invalid_request_names_its_field(root: Api, body: dict[str, object], field: str) -> None:
    answer = root.post("clusters", {"name": "north", **body})
    assert list(fields_of(answer, answer.status_code)) == [field]
    assert not Cluster.objects.filter(name="north").exists()


def test_the_cluster_of_the_portal_is_added_once_and_from_inside(
    root: Api, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    inside = {"name": "north", "in_cluster": True}
    assert problem(root.post("clusters", inside), 409)["code"] == "cluster_runs_outside"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    both = root.post("clusters", {"name": "north", "kubeconfig": "x", "in_cluster": True})
    assert fields_of(both, 400) == {"kubeconfig": "cluster_access_twice"}
    Cluster.objects.create(name="home", in_cluster=True, created_at=now)
    assert problem(root.post("clusters", inside), 409)["code"] == "cluster_in_cluster_taken"


def test_only_an_admin_of_all_clusters_adds_one(east: Cluster, operator: Api, now: datetime) -> None:
    body = {"name": "north", "kubeconfig": "x"}
    for caller in (operator, person("bo", "approver", now), person("cy", "admin", now, cluster=east)):
        problem(caller.post("clusters", body), 403)
        problem(caller.post("clusters?dry_run=true", body), 403)
    assert not Entry.objects.filter(verb="cluster.tested").exists()


def test_one_test_of_a_caller_at_a_time(root: Api) -> None:
    limit = concurrency_limits.ACCESS_TESTS
    with concurrency_limits.held(limit, "one"), concurrency_limits.held(limit, "two"):
        answer = root.post("clusters", {"name": "north", "kubeconfig": "x"})
    assert problem(answer, 429)["code"] == "places_taken"


def fields_of(answer: object, status: int) -> dict[str, str]:
    """The code of each error of a field."""
    return {one["field"]: one["code"] for one in problem(answer, status)["errors"]}
