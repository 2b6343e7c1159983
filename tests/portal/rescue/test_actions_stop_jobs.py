"""Stopping training jobs instead of restarting them: each as a whole, by the verb of its kind, and once."""

import pytest

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.rescue.actions import stop_jobs
from kcover_portal.rescue.models import JobRestart
from kcover_portal.workloads.training_jobs import PROTECTED
from tests.codes import code_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
STOP = POLICY.replace("restartJobs", "stopJobs")


@pytest.fixture
def world():
    one = World(policy=STOP, nodes=3, fake=WithOperators)
    one.cluster.guards = GUARDS
    one.cluster.save()
    yield one
    one.uninstall()


def phase(world: World, name: str = "llm", kind: str = "PyTorchJob") -> port.Phase:
    return world.kube.workload("train", kind, name).phase


def suspensions(world: World) -> int:
    return len(world.kube.called("suspend_workload"))


@pytest.mark.parametrize("protected", ["pod", "job"])
def test_a_protected_job_is_suspended_as_a_whole_after_the_cordon(world: World, protected: str) -> None:
    add_job(world, "llm", NODE, "gpu-2", protected=protected)
    add_job(world, "free", NODE, protected="")
    add_job(world, "elsewhere", "gpu-2")
    world.fault(62)
    world.work()
    calls = [call.verb for call in world.kube.writes if call.verb != "emit"]
    assert calls[:2] == ["apply_node", "suspend_workload"]
    assert code_of(world.step("stop_jobs").because) == "job_stops"
    world.until("succeeded")
    assert world.step("stop_jobs").why == reasons.both(
        reasons.of("jobs_stopped", jobs="train/llm"), reasons.of("jobs_not_stopped", jobs="train/free")
    )
    assert (phase(world), phase(world, "elsewhere")) == (port.Phase.SUSPENDED, port.Phase.RUNNING)
    names = {pod.name for pod in world.kube.list_pods(namespace="train")}
    assert names == {"free-0", "elsewhere-0"}
    assert (suspensions(world), JobRestart.objects.count()) == (1, 0)


def test_jobs_of_one_name_and_two_kinds_are_stopped_both(world: World) -> None:
    add_job(world, "llm", NODE)
    add_job(world, "llm", NODE, kind="TFJob")
    world.fault(62)
    world.until("succeeded")
    assert phase(world) == phase(world, kind="TFJob") == port.Phase.SUSPENDED
    assert world.step("stop_jobs").why == reasons.of("jobs_stopped", jobs="train/llm, train/llm (TFJob)")


def test_jobs_that_cannot_be_stopped_are_left_alone(world: World) -> None:
    own = {PROTECTED: "true"}
    world.kube.add_workload("LeaderWorkerSet", "train", "lws", labels=own)
    world.kube.add_workload("JobSet", "train", "queued", labels={**own, "kueue.x-k8s.io/queue-name": "gpus"})
    for name, label in (("lws", "leaderworkerset.sigs.k8s.io/name"), ("queued", "jobset.sigs.k8s.io/jobset-name")):
        above = "LeaderWorkerSet" if name == "lws" else "JobSet"
        world.kube.add_workload("Job", "train", f"{name}-w", owner=(above, name))
        world.kube.add_pod(
            "train", f"{name}-0", node=NODE, owner_kind="Job", owner_name=f"{name}-w", labels={label: name}
        )
    world.fault(62)
    world.work()
    assert world.step("stop_jobs").why == reasons.both(
        reasons.of("no_protected_job"), reasons.of("jobs_not_stopped", jobs="train/lws, train/queued")
    )
    assert suspensions(world) == 0


def test_volcano_receives_an_abort_command(world: World) -> None:
    world.kube.add_workload("VolcanoJob", "train", "gang", labels={PROTECTED: "true"})
    world.kube.add_pod(
        "train", "gang-0", node=NODE, owner_kind="Job", owner_name="gang", labels={"volcano.sh/job-name": "gang"}
    )
    world.fault(62)
    world.work()
    (command,) = world.kube.objects.list("Command")
    assert (command["action"], command["target"]["name"]) == ("AbortJob", "gang")


@pytest.mark.parametrize("after", [False, True])
def test_a_stop_continues_after_its_worker_died(world: World, after: bool) -> None:
    add_job(world, "llm", NODE, "gpu-2")
    worker_kills.kill_at(world.kube, "suspend_workload", call=1, after=after)
    world.fault(62)
    assert worker_kills.work(world)
    world.until("succeeded")
    assert phase(world) is port.Phase.SUSPENDED


def test_pods_that_leave_this_node_for_long_are_left_to_the_next_steps(world: World) -> None:
    add_job(world, "llm", NODE, "gpu-2")
    world.fault(62)
    world.work()
    world.kube.set_ready(NODE, False)  # its kubelet ends nothing any more
    world.pass_time()
    world.now += stop_jobs.LOCAL_END_TIME_LIMIT
    world.until("succeeded")
    assert "pods_not_ended" in str(world.step("stop_jobs").because)


def test_pods_on_other_nodes_that_do_not_end_are_held_for_a_person(world: World) -> None:
    add_job(world, "llm", NODE, "gpu-2")
    world.fault(62)
    world.work()
    world.kube.set_ready("gpu-2", False)
    world.pass_time()
    world.now += stop_jobs.END_TIME_LIMIT
    world.work()
    assert world.rescue().state == "held"
    assert code_of(world.step("stop_jobs").because) == "job_not_stopped"


def test_a_guard_holds_it_back_before_the_job_is_stopped(world: World) -> None:
    add_job(world, "llm", NODE)
    world.kube.fail("suspend_workload", port.Unavailable("down"))
    world.fault(62)
    world.work()
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.pass_time(5)
    assert (world.rescue().hold, phase(world)) == ("guard", port.Phase.RUNNING)
    world.kube.label_node(NODE, {"kcover.io/exclude": None})
    world.until("succeeded")
    assert phase(world) is port.Phase.SUSPENDED
