"""``/scopes/preview``, and the acts that take the same scope."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover_portal.accounts import services
from kcover_portal.accounts.models import User
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.jobs import queries as jobs
from kcover_portal.kube import port
from kcover_portal.kube.port import KUBEFLOW_JOB_LABEL
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.queries import blocking_budgets
from tests.portal.api.conftest import Api, add_node, caller, problem, run_job

pytestmark = pytest.mark.django_db
RACK = "topology.kubernetes.io/rack"


@pytest.fixture
def racks(east: Cluster, now: datetime) -> Cluster:
    """Six GPU nodes in two racks and two pools, one job on four of them, and a node without GPUs."""
    jobs.forget()
    blocking_budgets.forget()
    for number in range(1, 7):
        labels = {RACK: "A" if number < 5 else "B", "zone": "z1"}
        add_node(east, f"gpu-{number}", now, pool="a" if number < 4 else "b", labels=labels)
    add_node(east, "cpu-1", now, gpus=0, pool="", labels={RACK: "A"})
    kube = fleet.connect(east)
    kube.add_workload("PyTorchJob", "train", "llm", labels={"kcover.io/cascading-recovery": "true"})
    run_job(kube, "llm", range(3, 7))
    return east


def guards(cluster: Cluster, **patch: Any) -> None:
    cluster_settings.set_guards(cluster, patch, actor="t", reason="", now=cluster.created_at)


@pytest.mark.parametrize(
    ("scope", "nodes", "gpus", "running", "unknown"),
    [
        ({}, 7, 48, 1, []),
        ({"nodes": ["gpu-1", "gpu-2", "x"]}, 2, 16, 0, ["x"]),
        ({"labels": {"zone": "z1", RACK: "A"}}, 4, 32, 1, []),
        ({"labels": ["zone=z9"]}, 0, 0, 0, ["zone=z9"]),
        ({"pools": ["a", "c"]}, 3, 24, 1, ["c"]),
        ({"domains": {"rack": ["A"]}}, 5, 32, 1, []),
    ],
)
def test_a_preview_counts_the_contents_of_a_scope(
    racks: Cluster, viewer: Api, scope: dict[str, Any], nodes: int, gpus: int, running: int, unknown: list[str]
) -> None:
    answer = viewer.post("scopes/preview", {"cluster": "east", **scope})
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert {key: found[key] for key in ("nodes", "gpus", "jobs", "unknown")} == {
        "nodes": nodes,
        "gpus": gpus,
        "jobs": running,
        "unknown": unknown,
    }


def test_a_preview_counts_the_budgets_that_block_the_nodes_of_the_scope(racks: Cluster, viewer: Api) -> None:
    kube = fleet.connect(racks)

    def counted(**scope: Any) -> int | None:
        blocking_budgets.forget()
        found: int | None = viewer.post("scopes/preview", {"cluster": "east", **scope}).json()["budgets"]
        return found

    assert counted() == 0
    kube.add_budget("train", "keep", match={KUBEFLOW_JOB_LABEL: "llm"})
    kube.add_budget("train", "loose", match={KUBEFLOW_JOB_LABEL: "llm"}, disruptions_allowed=1)
    assert (counted(nodes=["gpu-1"]), counted(nodes=["gpu-3"]), counted(nodes=["x"])) == (0, 1, 0)
    kube.fail("budgets", port.RefusedByServer("forbidden"))
    assert counted() is None
    before = len(kube.calls)
    assert counted() == 1
    once = len(kube.calls)
    viewer.post("scopes/preview", {"cluster": "east", "nodes": ["gpu-3"]})
    assert (once - before > 0, len(kube.calls) - once) == (True, 0)
    for number in range(blocking_budgets.MAX_NAMESPACES):
        kube.add_budget(f"team-{number}", "keep", match={"app": "x"})
    assert counted() is None


def test_the_headroom_is_what_the_guards_allow(racks: Cluster, viewer: Api, now: datetime) -> None:
    guards(racks, breaker={"limit": 4}, budget={"limit": 1, "by": "pool"}, floor={"percent": 50})

    def room(**scope: Any) -> dict[str, int]:
        found: dict[str, int] = viewer.post("scopes/preview", {"cluster": "east", **scope}).json()["headroom"]
        return found

    assert room(pools=["a"]) == {"breaker": 4, "budget": 1, "floor": 2}
    assert room(domains={"rack": ["A"]}) == {"breaker": 4, "budget": 2, "floor": 3}  # 2 of pool a, 1 node of pool b
    assert room(nodes=["cpu-1"]) == {}
    times = {"starts_at": now, "ends_at": datetime.now().astimezone() + timedelta(hours=1)}
    cluster_settings.open_maintenance(
        racks, **times, reason="r", actor="t", now=now, selection={"domains": {"rack": ["B"]}}
    )
    Node.objects.filter(name="gpu-1").update(labels={"kcover.io/exclude": "true"})
    everywhere = room()
    assert (everywhere["maintenance"], everywhere["exclusion"]) == (4, 5)
    assert "maintenance" not in room(pools=["a"])


def test_a_caller_counts_only_visible_nodes(racks: Cluster, west: Cluster, now: datetime, client: Any) -> None:
    ann = User.objects.create_user("ann")
    services.bind(ann, "operator", cluster=racks, pool="a", actor="t", now=now)
    client.force_login(ann)
    found = Api(client=client).post("scopes/preview", {"cluster": "east", "nodes": ["gpu-1", "gpu-5"]}).json()
    assert (found["nodes"], found["unknown"], found["jobs"]) == (1, ["gpu-5"], 0)
    refused = problem(Api(client=client).post("scopes/preview", {"cluster": "west"}), 400)
    assert refused["errors"][0]["code"] == "unknown_cluster"
    assert caller("decision", now).post("scopes/preview", {"cluster": "east"}).status_code == 403
    assert Api().post("scopes/preview", {"cluster": "east"}).status_code == 401


def test_a_silent_cluster_leaves_the_jobs_unknown(racks: Cluster, viewer: Api) -> None:
    fleet.connect(racks).fail("workloads", port.Unavailable("down"))
    found = viewer.post("scopes/preview", {"cluster": "east", "pools": ["a"]}).json()
    assert (found["nodes"], found["jobs"]) == (3, None)
    assert "down" in found["unavailable"]


@pytest.mark.parametrize(
    ("scope", "field", "code"),
    [
        ({"nodes": ["a"], "pools": ["b"]}, "pools", "scope_one_kind"),
        ({"nodes": []}, "nodes", "scope_empty"),
        ({"labels": "a=b=c"}, "labels", "label_selector_invalid"),
        ({"domains": {"row": ["1"]}}, "domains", "scope_one_domain"),
        ({"racks": ["A"]}, "racks", "unknown_field"),
    ],
)
def test_a_bad_scope_is_refused_at_its_field(
    racks: Cluster, operator: Api, scope: dict[str, Any], field: str, code: str
) -> None:
    [error] = problem(operator.post("scopes/preview", {"cluster": "east", **scope}), 400)["errors"]
    assert (error["field"], error["code"]) == (field, code)


def test_a_window_takes_a_scope_and_keeps_its_older_fields(racks: Cluster, operator: Api) -> None:
    ends = datetime.now().astimezone() + timedelta(hours=1)
    times = {"cluster": "east", "starts_at": (ends - timedelta(hours=2)).isoformat(), "ends_at": ends.isoformat()}
    made = operator.post("maintenance", {**times, "reason": "cables", "domains": {"rack": ["A"]}})
    assert made.status_code == 201, made.content
    assert (made.json()["scope"], made.json()["pool"], made.json()["node"]) == ({"domains": {"rack": ["A"]}}, "", "")
    window = Maintenance.objects.get()
    assert window.members == ["cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert Entry.objects.latest("pk").data["nodes"] == 5
    one = operator.post("maintenance", {**times, "reason": "r", "pools": ["a"]}).json()
    assert (one["pool"], one["scope"]) == ("a", {"pools": ["a"]})
    old = operator.post("maintenance", {**times, "reason": "r", "node": "gpu-6"}).json()
    assert (old["node"], old["scope"]) == ("gpu-6", {"nodes": ["gpu-6"]})
    for scope, field, code in (
        ({"domains": {"rack": ["Z"]}}, "domains", "scope_without_nodes"),
        ({"nodes": ["gpu-1", "gpu-77", "x"]}, "nodes", "nodes_missing"),
        ({"pools": ["a"], "node": "gpu-1"}, "pools", "scope_or_pool_or_node"),
        ({"pools": ["a"], "cluster": None}, "cluster", "cluster_required"),
    ):
        [error] = problem(operator.post("maintenance", {**times, "reason": "r", **scope}), 400)["errors"]
        assert (error["field"], error["code"]) == (field, code)
    assert Maintenance.objects.count() == 3


def test_check_runs_and_validations_take_a_scope(racks: Cluster, operator: Api, viewer: Api) -> None:
    asked = {"cluster": "east", "checks": ["remapped"], "domains": {"rack": ["A"]}}
    made = operator.post("check-runs", asked, idempotency_key="k")
    assert made.status_code == 202, made.content
    assert operator.post("check-runs", asked, idempotency_key="k").json()["id"] == made.json()["id"]
    run = CheckRun.objects.get()
    assert list(run.targets.values_list("node__name", flat=True)) == ["cpu-1", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    assert operator.post("check-runs", {"cluster": "east", "checks": ["ping"], "batch": 2}).json()["total"] == 6
    assert viewer.post("check-runs", asked).status_code == 403
    for change, field in (
        ({"checks": ["no"]}, "checks"),
        ({"r": 9}, "r"),
        ({"domains": {"rack": ["Z"]}}, "domains"),
    ):
        assert field in problem(operator.post("check-runs", asked | change), 400)["errors"][0]["field"]
    given = operator.post("validations", {"cluster": "east", "pools": ["a"], "profile": "light"})
    assert given.status_code == 202, given.content
    assert Validation.objects.get().nodes.count() == 3
    [error] = problem(operator.post("validations", {"cluster": "east", "profile": "light"}), 400)["errors"]
    assert (error["field"], error["code"]) == ("nodes", "scope_required")
