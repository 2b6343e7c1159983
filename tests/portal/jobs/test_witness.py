"""The job as a witness: a node on which two attempts of one job fail first is accused, as advice."""

import pytest

from kcover_portal.accounts.queries import Scope
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs import queries
from kcover_portal.jobs.models import PodFailure
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch, forget_status
from tests.portal.rescue.test_actions_restart_jobs import add_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def watch(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(world, monkeypatch)


def attempt(world: JobWorld, watch: Watch, failing: str, *, node: str = "gpu-2", others_up: bool = True) -> None:
    """The job's pods are where the test says; one fails, and the job is restarted."""
    forget_status(world)
    for pod in list(world.kube.list_pods(namespace="train")):
        ready = {"type": "Ready", "status": "True" if others_up or pod.name == failing else "False"}
        home = node if pod.name == failing else "gpu-1"

        def place(manifest: dict, home: str = home, ready: dict = ready) -> None:
            manifest["spec"]["nodeName"] = home
            manifest["status"]["conditions"] = [ready]

        world.kube.objects.edit("Pod", "train", pod.name, place)
    world.kube.fail_container("train", failing)
    (order,) = watch.look()
    world.now = max(world.now, order.due_at)
    assert world.until_settled(order).state == "done"
    world.now = world.now.replace(microsecond=0)
    world.pass_time(31)


def accused() -> list[tuple[str, bool]]:
    """The nodes, and whether another node is advised."""
    rows = Incident.objects.filter(kind="pod", code="FailsFirst")
    assert all(row.is_user_fault for row in rows)  # a program may fail on purpose
    return [(row.node.name, bool(row.advice)) for row in rows]


def test_a_node_that_fails_first_in_two_attempts_is_accused(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    assert accused() == []
    attempt(world, watch, "llm-1")
    assert accused() == [("gpu-2", True)]
    incident = Incident.objects.get(code="FailsFirst")
    assert "PyTorchJob train/llm" in incident.advice
    assert "NotIn [gpu-2]" in incident.advice
    assert incident.state == "open"  # a job that runs again for a moment proves nothing
    assert world.kube.get_node("gpu-2").unschedulable is False
    queries.forget()
    [view], _ = queries.jobs([world.cluster], Scope.of(world.cluster), now=world.now)
    assert view.avoid == ("gpu-2",)


def test_the_same_rank_may_be_the_program(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    attempt(world, watch, "llm-2")
    assert accused() == [("gpu-2", False)]


def test_two_nodes_or_two_jobs_accuse_nobody(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    attempt(world, watch, "llm-2")
    attempt(world, watch, "llm-1", node="gpu-3")
    assert accused() == []


def test_a_job_that_has_not_come_up_accuses_nobody(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-1", "gpu-2")
    for name in ("llm-2", "llm-1"):
        attempt(world, watch, name, others_up=False)
    assert accused() == []
    assert not PodFailure.objects.filter(first=True).exists()


def test_pods_that_fail_at_the_same_second_accuse_nobody(world: JobWorld, watch: Watch) -> None:
    add_job(world, "llm", "gpu-1", "gpu-3", "gpu-2")
    for name in ("llm-1", "llm-2"):
        world.kube.fail_container("train", name)
    watch.look()
    assert list(PodFailure.objects.values_list("first", flat=True)) == [False]
