"""``/jobs``: the list as the cluster answers it, and orders to restart or stop."""

from contextlib import ExitStack
from datetime import datetime

import pytest
from django.test import Client

from kcover import reasons
from kcover_portal.accounts import services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.jobs import queries
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port
from kcover_portal.rescue.models import JobRestart
from kcover_portal.runtime.services import concurrency_limits
from tests.portal.api.conftest import Api, caller, fields, problem, run_job

pytestmark = pytest.mark.django_db
KUBEFLOW, OWN = port.KUBEFLOW_JOB_LABEL, {"kcover.io/cascading-recovery": "true"}


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    queries.forget()


@pytest.fixture
def kube(east: Cluster):
    kube = fleet.connect(east)
    kube.add_workload("PyTorchJob", "train", "llm", labels=OWN)
    run_job(kube, "llm", (0, 1))
    return kube


def test_the_list_shows_jobs_with_their_nodes(east: Cluster, kube, viewer: Api, now: datetime) -> None:
    kube.add_workload("Job", "ops", "backup")  # no GPUs, not protected
    kube.add_workload("JobSet", "train", "gang")
    kube.objects.merge("JobSet", "train", "gang", {"spec": {"suspend": True}})
    JobRestart.objects.create(cluster=east, namespace="train", job="llm", at=now, count=3)
    found = viewer.get("jobs?cluster=east").json()
    assert found["unavailable"] == []
    assert [(row["kind"], row["name"], row["state"]) for row in found["results"]] == [
        ("JobSet", "gang", "stopped"),
        ("PyTorchJob", "llm", "running"),
    ]
    llm = found["results"][1]
    assert (llm["cluster"], llm["namespace"], llm["protected"], llm["nodes"]) == (
        "east",
        "train",
        True,
        ["gpu-0", "gpu-1"],
    )
    assert (llm["gpus"], llm["restarts"], llm["because"]) == (16, 3, "")
    assert llm["last_restart"]
    assert viewer.get("jobs?cluster=east&kind=jobset").json()["count"] == 1
    assert viewer.get("jobs?cluster=east&namespace=ops").json()["count"] == 0
    assert [row["name"] for row in viewer.get("jobs?q=TRAIN/l").json()["results"]] == ["llm"]
    assert [row["name"] for row in viewer.get("jobs?state=stopped").json()["results"]] == ["gang"]
    assert "state" in fields(viewer.get("jobs?state=weird"))


def test_a_look_at_the_cluster_is_kept_for_a_moment(kube, viewer: Api) -> None:
    for _ in range(3):
        viewer.get("jobs?cluster=east")
    assert len(kube.called("workloads")) == 1


def test_a_cluster_that_does_not_answer_is_named(kube, west: Cluster, viewer: Api) -> None:
    kube.fail("workloads", port.Unavailable("down"))
    found = viewer.get("jobs").json()
    assert {one["cluster"] for one in found["unavailable"]} >= {"east"}
    kube.fail("workloads", port.Unavailable("down"))
    queries.forget()
    assert problem(viewer.get("jobs?cluster=east"), 503)["code"] == "job_cluster_silent"


def test_bad_parameters_and_foreign_clusters(kube, west: Cluster, now: datetime) -> None:
    api = caller("viewer", now, cluster=west)
    problem(api.get("jobs?cluster=east"), 404)
    problem(api.get("jobs?cluster=west&kind=Deployment"), 404)
    assert "nonsense" in fields(api.get("jobs?nonsense=1"))
    problem(api.post("jobs/east/train/PyTorchJob/llm/restart", {"reason": "x"}), 404)
    problem(Api().get("jobs"), 401)


def test_an_order_is_a_row(kube, operator: Api, viewer: Api) -> None:
    path = "jobs/east/train/PyTorchJob/llm"
    dry = operator.post(f"{path}/restart?dry_run=true").json()
    assert (dry["pods"], dry["held_back"], dry["action"]) == (["llm-0", "llm-1"], [], "restart")
    assert not JobOrder.objects.exists()
    problem(viewer.post(f"{path}/restart", {"reason": "hangs"}), 403)
    assert "reason" in fields(operator.post(f"{path}/restart", {}))
    made = operator.post(f"{path}/restart", {"reason": "hangs"})
    assert (made.status_code, made.json()["state"], made.json()["reason"]) == (202, "running", "hangs")
    assert problem(operator.post(f"{path}/stop", {"reason": "hangs"}), 409)["code"] == "job_order_running"
    assert problem(operator.post(f"{path}/explode", {"reason": "x"}), 404)["code"] == "job_action_unknown"
    missing = operator.post("jobs/east/train/PyTorchJob/nobody/stop", {"reason": "x"})
    assert problem(missing, 404)["code"] == "job_unknown"


def test_a_person_of_a_pool_sees_the_jobs_of_its_nodes_and_no_other_node(
    east: Cluster, kube, viewer: Api, now: datetime
) -> None:
    kube.add_workload("PyTorchJob", "train", "other", labels=OWN)
    kube.add_pod(
        "train",
        "other-0",
        node="gpu-1",
        owner_kind="PyTorchJob",
        owner_name="other",
        labels={KUBEFLOW: "other"},
        gpus=8,
    )
    JobOrder.objects.create(
        cluster=east,
        namespace="train",
        kind="PyTorchJob",
        name="llm",
        requested_by="x",
        due_at=now,
        action="restart",
        cause="pod",
        requested_at=now,
        because=reasons.of("job_suspended").to_json(),
    )
    for name in ("gpu-0", "gpu-1"):
        Node.objects.create(cluster=east, name=name, pool=name, in_cluster=True, created_at=now)
    user = User.objects.create(username="pat")
    services.bind(user, "viewer", cluster=east, pool="gpu-0", actor="test", now=now)
    client = Client()
    client.force_login(user)
    [row] = client.get("/api/v1/jobs?cluster=east").json()["results"]
    assert (row["name"], row["nodes"], row["gpus"], row["because"]) == ("llm", ["gpu-0"], 8, "")
    page = client.get("/jobs/").content.decode()
    assert "job-east-train-PyTorchJob-llm" in page
    assert "gpu-1" not in page
    assert client.post("/api/v1/jobs/east/train/PyTorchJob/llm/restart").status_code == 404
    assert {row["name"] for row in viewer.get("jobs").json()["results"]} == {"llm", "other"}


def test_lists_of_jobs_have_few_places(kube, viewer: Api, now: datetime) -> None:
    limit, holder = concurrency_limits.CLUSTER_READS, f"token:{ApiToken.objects.get().pk}"
    with ExitStack() as held:
        for _place in range(limit.per_person):
            assert viewer.get("jobs").status_code == 200
            held.enter_context(concurrency_limits.held(limit, holder))
        answer = viewer.get("jobs")
    assert (answer.status_code, answer.json()["code"]) == (429, "places_own_taken")
    assert answer.headers["Retry-After"]


def test_two_people_order_a_restart(east: Cluster, kube, now: datetime) -> None:
    Cluster.objects.update(hand_approval="always")
    token = caller("operator", now)
    path = "jobs/east/train/PyTorchJob/llm"
    assert token.post(f"{path}/restart?dry_run=true", {}).json()["approvers"] == 1
    assert token.post(f"{path}/restart", {"reason": "hangs"}).json()["state"] == "held"
    assert problem(token.post(f"{path}/restart", {"reason": "again"}), 409)["code"] == "job_order_waits"
    ben = Client()
    ben.force_login(services.make_user("ben", password="x" * 20, role="approver", created_by="t", now=now))
    approved = ben.post(f"/api/v1/{path}/restart", {"reason": "yes"}, content_type="application/json")
    assert (approved.status_code, approved.json()["state"]) == (202, "running")
    assert problem(token.post(f"{path}/decline", {"reason": "late"}), 409)["code"] == "job_no_order_waits"
    assert problem(token.post(f"{path}/decline?dry_run=true", {"reason": "late"}), 400)
