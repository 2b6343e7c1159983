"""POST /preflight/reports and GET /preflight/runs: who may speak for whom, and what is told back."""

from datetime import datetime
from typing import Any

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.v1.checks import preflight
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube.errors import Unavailable
from kcover_portal.preflight.models import PreflightRun
from tests.kube_fake import FakeCluster
from tests.portal.api.conftest import Api, add_node, caller, fields, problem

pytestmark = pytest.mark.django_db
PAIR = ["10.0.0.1", "10.0.0.2"]


@pytest.fixture
def nodes(east: Cluster, node: Node, now: datetime) -> list[Node]:
    return [node, add_node(east, "gpu-2", now)]


def agent(cluster: Cluster, node: str, now: datetime) -> Api:
    return Api(accounts.make_token("agent", cluster=cluster, node=node, created_by="test", now=now)[1])


def in_job(cluster: Cluster, *numbers: int) -> None:
    """Runs a pod of the workload on these nodes."""
    kube = fleet.connect(cluster)
    assert isinstance(kube, FakeCluster)
    for number in numbers:
        kube.add_pod("ml", f"job-{number}", node=f"gpu-{number}", labels={"batch.kubernetes.io/job-name": "job"})


def body(number: int, *, status: str = "ok", **more: Any) -> dict[str, Any]:
    batch = {"batch_idx": 0, "pair": PAIR, "self_ip": PAIR[number - 1], "status": status}
    report = {"workload_size": 2, "workload": "job", "node_name": f"gpu-{number}", "batches": [batch], **more}
    return {"namespace": "ml", "workload_uid": "u1", "report": report}


def test_a_run_waits_and_then_is_complete(nodes: list[Node], operator: Api, viewer: Api) -> None:
    first = operator.post("preflight/reports?cluster=east", body(1))
    assert first.status_code == 202
    run = PreflightRun.objects.get()
    assert first.json() == {
        "run": run.pk,
        "change": "counted",
        "because": None,
        "state": "waiting",
        "received": 1,
        "expected_reports": 2,
    }
    asked = "preflight/runs?namespace=ml&workload=job&uid=u1"
    answer = viewer.get(asked).json()
    for shown in (answer, answer["results"][0]):
        assert (shown["state"], shown["received"], shown["expected_reports"]) == ("waiting", 1, 2)
        assert (shown["slow_nodes"], shown["abnormal_nodes"], shown["rejected"]) == ([], [], 0)
    assert operator.post("preflight/reports?cluster=east", body(1)).json()["change"] == "same"
    assert operator.post("preflight/reports?cluster=east", body(2, gpu_check=2)).json()["state"] == "complete"
    answer = viewer.get(asked).json()
    assert (answer["state"], answer["abnormal_nodes"], answer["because"]) == (
        "complete",
        ["gpu-2"],
        ["gpu-2 failed gpu_check."],
    )
    detail = viewer.get(f"preflight/runs/{run.pk}").json()
    assert [(one["node"], one["verdict"]) for one in detail["reports"]] == [("gpu-1", ""), ("gpu-2", "abnormal")]
    assert viewer.get("preflight/runs?state=waiting").json()["results"] == []
    assert "state" not in viewer.get("preflight/runs?namespace=ml&workload=other&uid=u1").json()


def test_inv_47_an_agent_reports_about_its_own_node_only(
    nodes: list[Node], east: Cluster, west: Cluster, now: datetime
) -> None:
    in_job(east, 1)
    mine = agent(east, "gpu-1", now)
    assert mine.post("preflight/reports", body(1)).status_code == 202
    assert problem(mine.post("preflight/reports", body(2)), 403)["code"] == "other_node"
    assert problem(mine.post("preflight/reports?cluster=west", body(1)), 403)["code"] == "other_cluster"
    enrolment = agent(east, "", now)
    refused = problem(enrolment.post("preflight/reports", body(1)), 403)
    assert refused["code"] == "enrolment_token"
    problem(mine.get("preflight/runs"), 403)  # and reads nothing
    assert PreflightRun.objects.get().received == 1


def test_an_agent_reports_only_for_workloads_with_a_pod_on_its_node(
    nodes: list[Node], east: Cluster, now: datetime
) -> None:
    in_job(east, 1)
    assert agent(east, "gpu-1", now).post("preflight/reports", body(1)).status_code == 202
    stranger = agent(east, "gpu-2", now)
    refused = problem(stranger.post("preflight/reports", body(2)), 400)["errors"]
    assert [(error["field"], error["code"]) for error in refused] == [("workload", "preflight_no_pod")]
    other = {**body(1), "namespace": "other"}
    assert agent(east, "gpu-1", now).post("preflight/reports", other).status_code == 400
    assert PreflightRun.objects.get().received == 1
    in_job(east, 2)
    assert stranger.post("preflight/reports", body(2)).json()["state"] == "complete"


def test_an_agents_reports_are_limited(nodes: list[Node], east: Cluster, now: datetime) -> None:
    mine = agent(east, "gpu-1", now)
    assert mine.post("preflight/reports", {}).status_code == 400
    preflight.report_rates.add(ApiToken.objects.get(node="gpu-1").pk, 2 * preflight.BURST_REPORTS)
    refused = mine.post("preflight/reports", {})
    assert problem(refused, 429)["code"] == "report_rate"
    assert int(refused["Retry-After"]) >= 1
    assert agent(east, "gpu-2", now).post("preflight/reports", {}).status_code == 400


def test_an_agents_report_waits_for_the_cluster_to_answer(nodes: list[Node], east: Cluster, now: datetime) -> None:
    in_job(east, 1)
    kube = fleet.connect(east)
    assert isinstance(kube, FakeCluster)
    kube.fail("list_pods", Unavailable("it is away"))
    late = agent(east, "gpu-1", now).post("preflight/reports", body(1))
    assert (late.status_code, "Retry-After" in late.headers) == (503, True)
    assert not PreflightRun.objects.exists()


def test_everybody_else_needs_the_role_operator(nodes: list[Node], west: Cluster, viewer: Api, now: datetime) -> None:
    problem(viewer.post("preflight/reports?cluster=east", body(1)), 403)
    problem(Api().post("preflight/reports", body(1)), 401)
    problem(Api("kca_wrong").post("preflight/reports", body(1)), 401)
    elsewhere = caller("operator", now, cluster=west)
    assert "no node gpu-1" in fields(elsewhere.post("preflight/reports", body(1)))["report/node_name"]
    assert caller("viewer", now, cluster=nodes[0].cluster).get("preflight").json()["results"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"report": []}, "report"),
        ({"report": {"workload": "job"}}, "report/workload_size"),
        ({"report": {"workload": 3}}, "report/workload"),
        ({"report": {}}, "report/workload"),
        ({"workload": "other"}, "workload"),
        ({"namespace": "Not A Name"}, "namespace"),
        ({"namespace": None}, "namespace"),
        ({"workload_uid": "u" * 65}, "workload_uid"),
        ({"extra": 1}, "extra"),
    ],
)
def test_an_invalid_report_is_refused_by_field(
    nodes: list[Node], operator: Api, change: dict[str, Any], field: str
) -> None:
    answer = operator.post("preflight/reports?cluster=east", {**body(1), **change})
    assert field in fields(answer), answer.content
    assert not PreflightRun.objects.exists()


def test_a_compacted_report_has_its_workload_beside_it(nodes: list[Node], operator: Api) -> None:
    sent = body(1)
    del sent["report"]["workload"]
    sent |= {"workload": "job-b", "workload_uid": None}
    assert operator.post("preflight/reports?cluster=east", sent).status_code == 202
    assert PreflightRun.objects.values_list("workload", "uid").get() == ("job-b", "")


def test_refusals_are_counted_and_listed(nodes: list[Node], operator: Api) -> None:
    run = operator.post("preflight/reports?cluster=east", body(1)).json()["run"]
    assert (
        "even"
        in fields(operator.post("preflight/reports?cluster=east", body(2, workload_size=3)))["report/workload_size"]
    )
    shown = operator.get(f"preflight/runs/{run}").json()
    assert (shown["rejected"], shown["received"]) == (1, 1)
    [refusal] = shown["refusals"]
    assert (refusal["node"], refusal["path"]) == ("gpu-2", "workload_size")
