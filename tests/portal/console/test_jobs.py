"""The page of training jobs, and the dialogs that restart or stop one."""

import json
import re

import pytest
from django.utils import timezone

from kcover_portal.console.views import jobs
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries
from kcover_portal.jobs.models import JobOrder, JobPerformance, PodFailure
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from tests.portal.console.conftest import Person
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
ACT = "/jobs/c1/train/PyTorchJob/llm"


@pytest.fixture(autouse=True)
def _nothing_kept(world: World) -> None:
    queries.forget()
    world.now = timezone.now()
    add_job(world, "llm", NODE)


def test_the_page_lists_jobs_and_shows_buttons_to_operators(world: World, person: Person) -> None:
    page = person("operator").get("/jobs/?cluster=c1&kind=PyTorchJob").content.decode()
    assert 'id="job-c1-train-PyTorchJob-llm"' in page
    assert f"{ACT}/restart/" in page
    assert f"{ACT}/stop/" in page
    assert f"{ACT}/restart/" not in person("viewer").get("/jobs/").content.decode()


def test_jobs_that_wait_for_somebody_come_first(world: World, person: Person) -> None:
    for name in ("a", "b"):
        add_job(world, name, NODE)
    Cluster.objects.update(hand_approval="always")
    operator = person("operator")
    assert [job.name for job in operator.get("/jobs/").context["page"]] == ["a", "b", "llm"]
    assert operator.post(f"{ACT}/restart/", {"reason": "hangs"}).status_code == 302
    queries.forget()
    assert [job.name for job in operator.get("/jobs/").context["page"]] == ["llm", "a", "b"]
    assert [job.name for job in operator.get("/jobs/?sort=name").context["page"]] == ["a", "b", "llm"]


def test_a_silent_cluster_is_named(world: World, person: Person) -> None:
    world.kube.fail("workloads", port.Unavailable("down"))
    page = person("viewer").get("/jobs/")
    assert page.status_code == 200
    assert "note-warning" in page.content.decode()


def test_an_order_needs_a_reason_and_the_right(world: World, person: Person) -> None:
    operator = person("operator")
    assert operator.get(f"{ACT}/restart/").status_code == 200
    assert operator.post(f"{ACT}/restart/", {"reason": ""}).status_code == 422
    assert person("viewer").post(f"{ACT}/restart/", {"reason": "x"}).status_code == 403
    assert operator.post(f"{ACT}/explode/", {"reason": "x"}).status_code == 404
    assert operator.post(f"{ACT}/restart/", {"reason": "hangs"}).status_code == 302
    assert JobOrder.objects.get().reason == "hangs"
    assert operator.post(f"{ACT}/stop/", {"reason": "hangs"}).status_code == 422


def test_an_order_that_waits_is_declined_on_the_page(world: World, person: Person) -> None:
    Cluster.objects.update(hand_approval="always")
    operator = person("operator")
    assert f"{ACT}/decline/" not in operator.get("/jobs/").content.decode()
    assert operator.post(f"{ACT}/restart/", {"reason": "hangs"}).status_code == 302
    assert JobOrder.objects.get().state == "held"
    assert f"{ACT}/decline/" in operator.get("/jobs/").content.decode()
    assert operator.get(f"{ACT}/decline/").status_code == 200
    assert operator.post(f"{ACT}/decline/", {"reason": "mistake"}).status_code == 302
    assert operator.post(f"{ACT}/decline/", {"reason": "mistake"}).status_code == 422
    assert JobOrder.objects.get().state == "failed"


def test_the_page_of_an_incident_names_its_job(world: World, person: Person) -> None:
    incident = Incident.objects.create(
        cluster=world.cluster, node=world.node(), kind="pod", code="Error", opened_at=world.now, last_at=world.now
    )
    order = world.cluster.job_orders.create(
        namespace="train", kind="PyTorchJob", name="llm", action="restart", requested_at=world.now, due_at=world.now
    )
    PodFailure.objects.create(
        cluster=world.cluster,
        namespace="train",
        kind="PyTorchJob",
        name="llm",
        pod="llm-0",
        pod_uid="u",
        container="main",
        node=NODE,
        exit_code=1,
        at=world.now,
        seen_at=world.now,
        incident=incident,
        order=order,
    )
    assert "train/llm" in person("viewer").get(f"/incidents/{incident.pk}/").content.decode()
    [job] = person("viewer").get(f"/api/v1/incidents/{incident.pk}").json()["jobs"]
    assert job == {"namespace": "train", "kind": "PyTorchJob", "name": "llm", "order": order.pk}


def listed(page: str) -> list[str]:
    return re.findall('id="job-c1-train-PyTorchJob-([a-z]+)"', page)


def test_jobs_are_searched_sorted_and_paged(world: World, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    add_job(world, "bert", NODE)
    add_job(world, "moe", NODE, NODE)
    queries.forget()
    viewer = person("viewer")

    def shown(query: str) -> list[str]:
        return listed(viewer.get(f"/jobs/?{query}").content.decode())

    assert shown("") == ["bert", "llm", "moe"]
    assert shown("sort=-name") == ["moe", "llm", "bert"]
    assert shown("sort=-gpus")[0] == "moe"
    assert shown("q=TRAIN/B") == ["bert"]
    assert shown("state=failed") == []
    assert shown("state=running&kind=PyTorchJob&namespace=train&cluster=c1&q=llm") == ["llm"]
    monkeypatch.setattr(jobs, "PAGE_ROWS", 2)
    assert shown("page=2") == ["moe"]


@pytest.mark.parametrize("query", ["state=weird", "kind=Deploy", "sort=colour", "colour=red"])
def test_a_parameter_without_effect_is_said(person: Person, query: str) -> None:
    page = person("viewer").get(f"/jobs/?{query}").content.decode()
    assert query in page
    assert listed(page) == ["llm"]


def test_jobs_are_exported_as_filtered(world: World, person: Person) -> None:
    add_job(world, "bert", NODE)
    queries.forget()
    viewer = person("viewer")
    body = b"".join(viewer.get("/export/jobs.jsonl?q=llm").streaming_content)
    rows = [json.loads(line) for line in body.splitlines()]
    assert [(row["name"], row["nodes"], row["state"]) for row in rows] == [("llm", [NODE], "running")]
    assert Entry.objects.filter(verb="list.exported").count() == 1
    assert viewer.get("/export/jobs.csv?state=weird").status_code == 400
    assert viewer.get("/export/jobs.csv?staet=failed").status_code == 400


def test_an_export_without_the_jobs_of_a_silent_cluster_is_refused(world: World, person: Person) -> None:
    world.kube.fail("workloads", port.Unavailable("down"))
    answer = person("viewer").get("/export/jobs.csv")
    assert (answer.status_code, b"c1" in answer.content) == (503, True)
    assert not Entry.objects.filter(verb="list.exported").exists()


def test_the_speed_of_a_job_is_shown_and_told(world: World, person: Person) -> None:
    viewer = person("viewer")
    assert viewer.get("/api/v1/jobs").json()["results"][0]["performance"] is None
    about = {"cluster": world.cluster, "namespace": "train", "kind": "PyTorchJob", "name": "llm", "seen_at": world.now}
    JobPerformance.objects.create(source="fast", speed=1.0, **about)
    JobPerformance.objects.create(source="steps", speed=0.64, slow_since=world.now, slow_node=NODE, **about)
    found = viewer.get("/api/v1/jobs").json()["results"][0]["performance"]
    assert (found["speed"], found["slow_node"]) == (0.64, NODE)
    page = viewer.get("/jobs/").content.decode()
    assert "64 %" in page
    assert NODE in page.partition("job-because")[2]
    JobPerformance.objects.update(seen_at=world.now - queries.PERFORMANCE_SHOWN_FOR)  # its source is gone
    assert viewer.get("/api/v1/jobs").json()["results"][0]["performance"] is None
