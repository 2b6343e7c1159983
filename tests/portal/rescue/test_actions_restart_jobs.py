"""Restarting training jobs: kcover's rule, done after the cordon, once a job within its window."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.actions import restart_jobs
from kcover_portal.rescue.models import JobRestart
from tests.codes import code_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import WithOperators, pods_of
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: restart}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: cordon}, {name: restartJobs}]
"""
GUARDS = {"storm": {"enabled": False}, "breaker": {"enabled": False}, "rate": {"enabled": False}}
KUBEFLOW = port.KUBEFLOW_JOB_LABEL


@pytest.fixture
def make():
    made = []

    def world(nodes: int = 3) -> World:
        one = World(policy=POLICY, nodes=nodes, fake=WithOperators)
        made.append(one)
        one.cluster.guards = GUARDS
        one.cluster.save()
        return one

    yield world
    for one in made:
        one.uninstall()


def add_job(
    world: World, name: str, *nodes: str, protected: str = "pod", kind: str = "PyTorchJob", **more: object
) -> None:
    labels = {KUBEFLOW: name} | ({restart_jobs.PROTECTED: "true"} if protected == "pod" else {})
    own = {restart_jobs.PROTECTED: "true"} if protected == "job" else {}
    replicas = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}[kind]
    spec = {replicas: {"Worker": {"template": {"metadata": {"labels": labels}, "spec": {}}}}}
    world.kube.add_workload(kind, "train", name, labels=own, spec=spec if protected == "pod" else {})
    for number, node in enumerate(nodes):
        world.kube.add_pod(
            "train",
            f"{name}-{number}" if kind == "PyTorchJob" else f"{name}-{kind.lower()}-{number}",
            node=node,
            owner_kind=kind,
            owner_name=name,
            labels=labels,
            gpus=8,
            **more,
        )


def deleted(world: World) -> list[str]:
    return [call.name for call in world.kube.called("delete_pod")]


@pytest.mark.parametrize("protected", ["pod", "job"])
def test_every_pod_of_the_job_is_deleted_after_the_cordon(make, protected: str) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2", "gpu-3", protected=protected)
    add_job(world, "other", "gpu-2")
    more = {"owner_kind": "UnknownJob", "labels": {KUBEFLOW: "llm"}}
    world.kube.add_pod("default", "llm-0", node=NODE, **more)  # of another namespace: another job
    world.fault(62)
    world.work()

    assert deleted(world) == ["llm-0", "llm-1", "llm-2"]
    order = [call.verb for call in world.kube.writes if call.verb in ("apply_node", "delete_pod")]
    assert order[0] == "apply_node"
    assert world.step("restart_jobs").why == reasons.both(
        reasons.of("job_partly_back", job="train/llm", running=0, wanted=3),
        reasons.of("pods_not_ended", pods="llm-0, llm-1, llm-2"),
    )
    world.until("succeeded")
    assert world.step("restart_jobs").why == reasons.of("jobs_restarted", jobs="train/llm")
    row = JobRestart.objects.get()
    assert (row.namespace, row.job, row.rescue) == ("train", "llm", world.rescue())
    done = Entry.objects.filter(verb="delete.done").values_list("subject", flat=True)
    assert sorted(done) == ["pod train/llm-0", "pod train/llm-1", "pod train/llm-2"]


def test_unprotected_and_never_restarted_jobs_are_left_alone(make) -> None:
    world = make()
    add_job(world, "free", NODE, protected="")
    add_job(world, "never", NODE, restart_policy="Never")
    add_job(world, "ended", NODE, phase="Succeeded")
    world.kube.add_pod("default", "web", node=NODE, owner_kind="ReplicaSet", labels={restart_jobs.PROTECTED: "true"})
    world.fault(62)
    world.work()
    assert deleted(world) == []
    assert world.step("restart_jobs").why == reasons.both(
        reasons.of("no_protected_job"), reasons.of("jobs_left_alone", jobs="train/free, train/never")
    )


@pytest.mark.parametrize(
    ("kind", "label", "owner"),
    [
        ("Job", "batch.kubernetes.io/job-name", "Job"),
        ("Job", "job-name", "Job"),
        ("LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name", "StatefulSet"),
        ("MPIJob", KUBEFLOW, "Job"),
    ],
)
def test_jobs_of_other_kinds(make, kind: str, label: str, owner: str) -> None:
    world = make()
    world.kube.add_workload(kind, "train", "job", labels={restart_jobs.PROTECTED: "true"})
    for number in (1, 2):
        name = "job" if owner == kind else f"job-{number}"
        if owner != kind:
            world.kube.add_workload(owner, "train", name, owner=(kind, "job"))
        world.kube.add_pod(
            "train", f"p{number}", node=f"gpu-{number}", owner_kind=owner, owner_name=name, labels={label: "job"}
        )
    world.fault(62)
    world.work()
    assert deleted(world) == ["p1", "p2"]


def test_a_job_is_restarted_once_within_30_seconds(make) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.fault(62)
    world.until("succeeded")  # both pods are on gpu-2 now
    world.now += timedelta(seconds=10)
    world.fault(62, node="gpu-2")
    world.work()
    step = world.step("restart_jobs", "gpu-2")
    assert (step.state, step.why) == ("waiting", reasons.of("restarted_lately", seconds=30, jobs="train/llm"))
    assert deleted(world) == ["llm-0", "llm-1"]

    for _ in range(26):
        world.pass_time(1)
    assert world.step("restart_jobs", "gpu-2").state == "done"
    assert deleted(world) == ["llm-0", "llm-1"] * 2


def test_pods_that_are_leaving_ask_for_no_second_restart(make) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.fault(62)
    world.work()
    world.fault(62, node="gpu-2")
    world.work()
    assert code_of(world.step("restart_jobs", "gpu-2").because) == "no_protected_job"
    assert deleted(world) == ["llm-0", "llm-1"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_restart_continues_after_its_worker_died_and_new_pods_stay(make, call: int, after: bool) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2", "gpu-3")
    worker_kills.kill_at(world.kube, "delete_pod", call=call, after=after)
    world.fault(62)
    assert worker_kills.work(world)
    old = {pod.uid for pod in world.kube.list_pods(namespace="train")}
    world.kube.finish_deletions()  # what went already is made anew, on nodes that take pods
    anew = {pod.uid for pod in pods_of(world.kube)} - old
    world.until("succeeded")
    assert JobRestart.objects.count() == 1
    left = {pod.uid for pod in pods_of(world.kube)}
    assert len(left) == 3
    assert anew <= left
    assert not left & old


def test_an_ambiguous_deletion_is_retried_by_uid(make) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.kube.fail("delete_pod", port.Unavailable("cut", ambiguous=True), after=True)
    world.fault(62)
    world.until("succeeded")
    assert sorted(deleted(world)) == ["llm-0", "llm-1"]


def test_a_guard_holds_it_back_before_anything_is_deleted(make) -> None:
    world = make()
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.kube.fail("delete_pod", port.Unavailable("down"))
    world.fault(62)
    world.work()
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.pass_time(5)
    assert world.rescue().hold == "guard"
    assert [call.wrote for call in world.kube.called("delete_pod")] == [False]
    world.kube.label_node(NODE, {"kcover.io/exclude": None})
    world.until("succeeded")
    assert {pod.node for pod in world.kube.list_pods(namespace="train")} == {"gpu-2"}


def test_jobs_of_one_name_and_two_kinds_are_two_jobs(make) -> None:
    world = make()
    add_job(world, "llm", NODE, "gpu-2")
    add_job(world, "llm", NODE, "gpu-3", kind="TFJob")
    world.fault(62)
    world.work()
    assert sorted(deleted(world)) == ["llm-0", "llm-1", "llm-tfjob-0", "llm-tfjob-1"]
    assert set(JobRestart.objects.values_list("job", "kind")) == {("llm", "PyTorchJob"), ("llm", "TFJob")}
    world.until("succeeded")
    assert world.step("restart_jobs").why == reasons.of("jobs_restarted", jobs="train/llm, train/llm (TFJob)")


def test_jobs_of_one_name_that_are_left_alone_are_named_with_their_kinds(make) -> None:
    world = make()
    add_job(world, "llm", NODE, protected="")
    add_job(world, "llm", NODE, kind="TFJob", protected="")
    add_job(world, "other", NODE, protected="")
    world.fault(62)
    world.until("succeeded")
    alone = reasons.of("jobs_left_alone", jobs="train/llm (PyTorchJob), train/llm (TFJob), train/other")
    assert world.step("restart_jobs").why == reasons.both(reasons.of("no_protected_job"), alone)


def test_a_restart_that_an_older_portal_recorded_counts_for_each_kind(make) -> None:
    world = make()
    job = {"cluster": world.cluster, "namespace": "train", "job": "llm"}
    JobRestart.objects.create(**job, at=world.now - timedelta(seconds=20))
    add_job(world, "llm", NODE)
    world.fault(62)
    world.work()
    assert deleted(world) == []
    world.until("succeeded")
    assert deleted(world) == ["llm-0"]
    assert [(row.kind, row.count) for row in JobRestart.objects.all()] == [("PyTorchJob", 2)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_concurrent_workers_restart_a_job_once(make) -> None:
    together = 5
    world = make(nodes=together)
    add_job(world, "llm", *(f"gpu-{number}" for number in range(1, together + 1)))
    world.break_at_once(f"gpu-{number}" for number in range(1, together + 1))
    assert sorted(deleted(world)) == [f"llm-{number}" for number in range(together)]
    assert JobRestart.objects.count() == 1
