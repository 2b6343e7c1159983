"""Restarting jobs of every kind: each as a whole, by the verb of its controller, and done only when it runs again."""

import pytest

from kcover import reasons
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.actions import restart_jobs
from tests.codes import codes_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import WithOperators, pods_of
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job, deleted
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
OWN = {restart_jobs.PROTECTED: "true"}
JOBSET, BATCH = "jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name"


@pytest.fixture
def world():
    one = World(policy=POLICY, nodes=3, fake=WithOperators)
    one.cluster.guards = GUARDS
    one.cluster.save()
    yield one
    one.uninstall()


def add_workload(world: World, kind: str, name: str, **more: object) -> None:
    world.kube.add_workload(kind, "train", name, **more)


def add_pods(world: World, owner: str, name: str, labels: dict[str, str], *, count: int = 2, **more: object) -> None:
    for number in range(count):
        world.kube.add_pod(
            "train",
            f"{name}-{number}",
            node=f"gpu-{number + 1}",
            owner_kind=owner,
            owner_name=name,
            labels=labels,
            **more,
        )


def test_the_label_of_a_job_set_comes_before_that_of_its_child(world: World) -> None:
    add_workload(world, "JobSet", "llm", labels=OWN)
    for child in ("llm-leader-0", "llm-worker-0"):
        add_workload(world, "Job", child, owner=("JobSet", "llm"))
        add_pods(world, "Job", child, {JOBSET: "llm", BATCH: child}, restart_policy="Never")
    world.fault(62)
    world.until("succeeded")
    assert sorted(deleted(world)) == ["llm-leader-0-0", "llm-leader-0-1", "llm-worker-0-0", "llm-worker-0-1"]


def test_the_owner_of_the_owner_consents(world: World) -> None:
    add_workload(world, "TrainJob", "llm", labels=OWN)
    add_workload(world, "JobSet", "llm", owner=("TrainJob", "llm"))
    add_workload(world, "Job", "llm-node-0", owner=("JobSet", "llm"))
    add_pods(world, "Job", "llm-node-0", {JOBSET: "llm", BATCH: "llm-node-0"})
    world.fault(62)
    world.until("succeeded")
    assert deleted(world) == ["llm-node-0-0", "llm-node-0-1"]


def test_the_submitter_of_a_ray_job_is_not_restarted_alone(world: World) -> None:
    add_workload(world, "RayJob", "tune", labels=OWN)
    world.kube.objects.merge("RayJob", "train", "tune", {"status": {"rayClusterName": "tune-x7"}})
    add_workload(world, "RayCluster", "tune-x7", owner=("RayJob", "tune"))
    add_pods(world, "RayCluster", "tune-x7", {"ray.io/cluster": "tune-x7"}, count=3)
    add_workload(world, "Job", "tune-submit", owner=("RayJob", "tune"))
    add_pods(world, "Job", "tune-submit", {BATCH: "tune-submit"}, count=1)
    world.fault(62)
    world.until("succeeded")
    assert deleted(world) == ["tune-x7-0", "tune-x7-1", "tune-x7-2"]


@pytest.mark.parametrize(("labels", "gone"), [(OWN, ["db-0", "db-1"]), ({}, [])])
def test_a_stateful_set_is_known_by_its_owner(world: World, labels: dict[str, str], gone: list[str]) -> None:
    add_workload(world, "StatefulSet", "db", labels=labels)
    add_pods(world, "StatefulSet", "db", {"app": "db"})
    world.fault(62)
    world.until("succeeded")
    assert deleted(world) == gone
    assert "jobs_left_alone" not in codes_of(world.step("restart_jobs").because)


@pytest.mark.parametrize("dies", ["", "before", "after"])
def test_volcano_gets_one_command_and_no_pod_is_deleted(world: World, dies: str) -> None:
    add_workload(world, "VolcanoJob", "gang", labels=OWN)
    add_pods(world, "Job", "gang", {"volcano.sh/job-name": "gang"}, restart_policy="Never")
    if dies:
        worker_kills.kill_at(world.kube, "command_workload", call=1, after=dies == "after")
    world.fault(62)
    if dies:
        assert worker_kills.work(world)
    world.work()
    (command,) = world.kube.objects.list("Command")
    assert (command["action"], command["target"]["kind"]) == ("RestartJob", "Job")
    assert command["target"]["uid"] == world.kube.workload("train", "VolcanoJob", "gang").uid
    world.kube.obey_commands()
    world.until("succeeded")
    assert deleted(world) == []
    assert world.kube.objects.list("Command") == []
    assert len(pods_of(world.kube)) == 2
    assert Entry.objects.filter(verb="command.done", subject="job train/gang").count() == 1


def test_restart_policy_never_is_final_for_kubeflow_only(world: World) -> None:
    add_job(world, "llm", NODE, restart_policy="Never")
    add_workload(world, "Job", "prep", labels=OWN)
    add_pods(world, "Job", "prep", {BATCH: "prep"}, count=1, restart_policy="Never")
    world.fault(62)
    world.until("succeeded")
    assert deleted(world) == ["prep-0"]


def test_a_job_that_does_not_come_back_is_held_for_a_person(world: World) -> None:
    world.kube.broken = frozenset({"llm"})
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.fault(62)
    world.work()
    world.pass_time()
    step = world.step("restart_jobs")
    assert (step.state, step.why) == (
        "waiting",
        reasons.both(
            reasons.of("job_partly_back", job="train/llm", running=0, wanted=2), reasons.of("pods_not_created", count=2)
        ),
    )
    world.now += restart_jobs.RESTART_TIME_LIMIT
    world.work()
    assert world.rescue().state == "held"
    assert codes_of(world.step("restart_jobs").because)[0] == "jobs_not_back"


def test_a_job_that_waits_for_the_node_to_be_repaired_does_not_hold_the_repair(world: World) -> None:
    world.kube.full = True
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.fault(62)
    world.work()
    world.pass_time()
    assert codes_of(world.step("restart_jobs").because) == ["job_partly_back", "pods_lack_room"]
    world.now += restart_jobs.SCHEDULING_TIME_LIMIT
    world.until("succeeded", rounds=3)
    assert "jobs_lack_room" in codes_of(world.step("restart_jobs").because)


def test_a_job_that_fails_after_its_restart_is_recorded(world: World) -> None:
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.fault(62)
    world.work()
    failed = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    world.kube.objects.merge("PyTorchJob", "train", "llm", failed)
    world.pass_time()
    assert codes_of(world.step("restart_jobs").because) == ["job_failed_again"]
