"""A job whose owner lets it fail on purpose: it proves no fault of a node, so it holds back nobody's rescue."""

import pytest

from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.rescue.queries import capacity
from tests.codes import codes_of
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch
from tests.portal.jobs.test_witness import attempt
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db


def test_a_job_that_fails_on_purpose_makes_no_node_faulty_for_the_guards(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(world, monkeypatch)
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    for node in ("gpu-2", "gpu-3"):
        for rank in ("llm-2", "llm-1"):
            attempt(world, watch, rank, node=node)
            world.pass_time(3600)
    assert Incident.objects.filter(code="FailsFirst").count() == 2
    assert capacity.faulty(world.cluster, now=world.now).six_hours == 0


def add_own_job(world: JobWorld, namespace: str, name: str, node: str) -> None:
    labels = {"training.kubeflow.org/job-name": name}
    own = {"kcover.io/cascading-recovery": "true"}
    world.kube.add_workload("PyTorchJob", namespace, name, labels=own)
    place = {"node": node, "owner_kind": "PyTorchJob", "owner_name": name}
    world.kube.add_pod(namespace, f"{name}-0", labels=labels, gpus=1, **place)


def test_failures_of_many_namespaces_are_a_storm(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(world, monkeypatch)
    for number in (1, 2, 3):
        add_own_job(world, f"team-{number}", "llm", f"gpu-{number}")
        world.kube.fail_container(f"team-{number}", "llm-0")
    watch.look()
    world.work()
    assert {codes_of(order.because)[0] for order in JobOrder.objects.all()} == {"storm_code"}


def test_failures_of_one_namespace_hold_back_no_restart_of_another(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(world, monkeypatch)
    for number in (1, 2, 3):
        add_own_job(world, "evil", f"crash-{number}", f"gpu-{number}")
    add_own_job(world, "others", "llm", "gpu-2")
    watch.look()
    for number in (1, 2, 3):
        world.kube.fail_container("evil", f"crash-{number}-0")
    watch.look()
    world.pass_time(5)
    world.kube.fail_container("others", "llm-0")
    watch.look()
    assert world.until_settled(JobOrder.objects.get(name="llm")).state == "done"
