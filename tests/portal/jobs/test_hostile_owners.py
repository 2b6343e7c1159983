"""Owners of jobs who set hostile names: what they do to the jobs of others."""

import pytest

from kcover_portal.jobs import services, tasks
from kcover_portal.jobs.models import JobOrder
from kcover_portal.kube import port
from kcover_portal.sources.models import Source
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db
# An owner reference may have any name; the API server answers 400 to a name with "%" (IsValidPathSegmentName).
HOSTILE = "a%b"


def claim_hostile_owner(world: JobWorld, name: str) -> None:
    """The owner of a job gives it an owner reference that no API server can resolve."""
    known = port.WORKLOADS["PyTorchJob"]
    reference = {"apiVersion": f"{known.group}/v1", "kind": "PyTorchJob", "name": HOSTILE, "uid": "u"}
    patch = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
    world.kube.objects.merge("PyTorchJob", "train", name, patch)
    answer = port.RefusedByServer(f"GET …/pytorchjobs/{HOSTILE}: 400 BadRequest: Name parameter invalid")
    world.kube.fail("workload", answer, times=1_000, name=HOSTILE)


def test_a_hostile_job_does_not_stop_the_labels_of_others(world: JobWorld) -> None:
    add_job(world, "a-hostile", "gpu-1", protected="job")
    add_job(world, "llm", "gpu-2", protected="job")
    claim_hostile_owner(world, "a-hostile")
    for name in ("a-hostile", "llm"):
        world.kube.label_workload("train", "PyTorchJob", name, labels={"kcover.io/need-recovery": "true"})
    try:
        services.look_for_labels(world.cluster, now=world.now)
    except port.KubeError as error:
        pytest.fail(f"the look ends at the first job that cannot be read: {error}")
    assert JobOrder.objects.filter(name="llm").exists()


def test_a_hostile_pod_does_not_stop_the_recovery_of_others(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(world, monkeypatch)
    add_job(world, "a-hostile", "gpu-1", protected="job")
    add_job(world, "llm", "gpu-2", protected="job")
    claim_hostile_owner(world, "a-hostile")
    watch.look()
    world.kube.fail_container("train", "a-hostile-0")
    world.kube.fail_container("train", "llm-0")
    assert "llm" in [order.name for order in watch.look()]


def test_a_job_that_waits_for_a_person_does_not_stop_the_labels_of_others(world: JobWorld) -> None:
    add_job(world, "z-hostile", "gpu-1", protected="job")
    add_job(world, "llm", "gpu-2", protected="job")
    held = world.order(name="z-hostile")
    JobOrder.objects.filter(pk=held.pk).update(state="held")
    claim_hostile_owner(world, "z-hostile")
    world.kube.label_workload("train", "PyTorchJob", "llm", labels={"kcover.io/need-recovery": "true"})
    tasks.look_in(world.cluster.pk)
    assert JobOrder.objects.filter(name="llm").exists()


def test_a_job_that_may_not_be_read_does_not_stop_the_others(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portal's account may lack the right to read one object."""
    watch = Watch(world, monkeypatch)
    for name in ("a-hostile", "llm"):
        add_job(world, name, "gpu-1", protected="job")
        world.kube.label_workload("train", "PyTorchJob", name, labels={"kcover.io/need-recovery": "true"})
    world.kube.fail("workload", port.RefusedByServer("403 Forbidden"), times=1_000, name="a-hostile")
    assert [order.name for order in services.look_for_labels(world.cluster, now=world.now)] == ["llm"]
    JobOrder.objects.all().delete()
    watch.look()
    world.kube.fail_container("train", "a-hostile-0")
    world.kube.fail_container("train", "llm-0")
    assert [order.name for order in watch.look()] == ["llm"]
    assert Source.objects.get(kind="pods").error["code"] == "cluster_rejected"
