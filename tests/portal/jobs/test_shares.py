"""One owner of many jobs, and the share of the portal's attention that is left for the jobs of others."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kcover_portal.accounts.queries import Scope
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries, services, tasks
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.jobs.services import recovered_jobs
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.models import Lease
from kcover_portal.sources.services import pod_feed
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db
LABEL = {"kcover.io/need-recovery": "true"}
MANY = 100


def test_one_look_reads_a_bounded_number_of_labelled_jobs(world: JobWorld) -> None:
    for number in range(MANY):  # a job object without pods costs its owner nothing
        world.kube.add_workload("Job", "evil", f"job-{number}", labels=LABEL)
    before = len(world.kube.calls)
    services.look_for_labels(world.cluster, now=world.now)
    services.look_for_labels(world.cluster, now=world.now + timedelta(seconds=10))
    assert len(world.kube.calls) - before <= MANY


def test_labels_of_another_namespace_are_seen_at_once_and_all_in_time(world: JobWorld) -> None:
    add_job(world, "llm", "gpu-1", protected="job")
    world.kube.label_workload("train", "PyTorchJob", "llm", labels=LABEL)
    for number in range(40):
        world.kube.add_workload("Job", "evil", f"job-{number}", labels=LABEL)
    made = services.look_for_labels(world.cluster, now=world.now)
    assert [order.state for order in made if order.name == "llm"] == ["running"]
    for turn in range(1, 20):
        services.look_for_labels(world.cluster, now=world.now + timedelta(seconds=10 * turn))
    assert {call.name for call in world.kube.called("workload")} >= {f"job-{number}" for number in range(40)}


def test_a_running_look_is_not_begun_again(world: JobWorld) -> None:
    Lease.objects.create(
        name=f"jobs {world.cluster.pk}",
        holder="another",
        until=timezone.now() + timedelta(minutes=1),
        renewed_at=timezone.now(),
    )
    before = len(world.kube.calls)
    tasks.look_in(world.cluster.pk)
    assert len(world.kube.calls) == before


def test_labels_fill_no_audit_log(world: JobWorld) -> None:
    for turn in range(10):
        world.kube.add_workload("Job", "evil", f"job-{turn}", labels=LABEL)
        services.look_for_labels(world.cluster, now=world.now + timedelta(seconds=10 * turn))
        world.kube.objects.remove("Job", "evil", f"job-{turn}")
    assert Entry.objects.filter(verb__startswith="job.").count() < 2 * 10


def test_failed_pods_of_one_job_leave_room_for_others(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept failures of a job that waits for a person fill the list of those that are looked at."""
    monkeypatch.setattr(pod_feed, "MAX_WAITING", 4)
    watch = Watch(world, monkeypatch)
    add_job(world, "hostile", *["gpu-1"] * 4, protected="job")
    add_job(world, "llm", "gpu-2", protected="job")
    held = world.order(name="hostile")
    JobOrder.objects.filter(pk=held.pk).update(state="held")
    watch.look()
    for number in range(4):
        world.kube.fail_container("train", f"hostile-{number}")
    watch.look()
    world.kube.fail_container("train", "llm-0")
    assert [order.name for order in watch.look()] == ["llm"]


def test_jobs_that_stay_down_leave_looks_for_others(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovered_jobs, "MAX_JOBS_PER_LOOK", 2)
    watch = Watch(world, monkeypatch)
    type(world.cluster).objects.update(job_recovery="off")
    for name in ("a-hostile", "b-hostile", "llm"):
        add_job(world, name, "gpu-1", protected="job")
        world.kube.fail_container("train", f"{name}-0")
        watch.look()
    for name in ("a-hostile", "b-hostile"):
        world.kube.objects.edit("Pod", "train", f"{name}-0", lambda m: m["status"].update(conditions=[]))
    assert PodFailure.objects.count() == 3
    world.kube.objects.edit("Pod", "train", "llm-0", lambda m: m["status"].pop("containerStatuses"))
    for turn in range(6):
        services.look_for_returns(world.cluster, now=world.now + timedelta(seconds=10 * turn))
    assert PodFailure.objects.get(name="llm").over_at is not None


def test_one_namespace_does_not_take_all_incidents(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services.failures, "MAX_OPEN_IN_CLUSTER", 2)
    watch = Watch(world, monkeypatch)
    for name in ("a-hostile", "b-hostile"):
        add_job(world, name, "gpu-1", protected="job")
        world.kube.fail_container("train", f"{name}-0")
    watch.look()
    world.kube.add_workload("PyTorchJob", "others", "llm", labels={"kcover.io/cascading-recovery": "true"})
    job = {"training.kubeflow.org/job-name": "llm"}
    world.kube.add_pod("others", "llm-0", node="gpu-2", owner_kind="PyTorchJob", owner_name="llm", labels=job)
    world.kube.fail_container("others", "llm-0")
    watch.look()
    assert Incident.objects.filter(node__name="gpu-2").exists()


def test_the_list_of_jobs_costs_no_call_for_each_job(world: JobWorld) -> None:
    for number in range(20):
        world.kube.add_workload("StatefulSet", "evil", f"set-{number}", labels={"kcover.io/cascading-recovery": "true"})
    queries.forget()
    queries.jobs([world.cluster], Scope.of(world.cluster), now=world.now)
    assert len(world.kube.called("list_pods")) < 20
