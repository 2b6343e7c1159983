"""Pods of strangers that name somebody's job: they consent to nothing, count for nothing, and nobody deletes them."""

import pytest

from kcover_portal.accounts import queries as accounts
from kcover_portal.jobs import queries, services
from kcover_portal.jobs.models import JobOrder, PodFailure
from kcover_portal.kube import port
from kcover_portal.kube.controllers import MAX_READS
from kcover_portal.rescue.step.jobs.job_restart import Restart
from kcover_portal.workloads import training_jobs
from tests.codes import codes_of
from tests.portal.jobs.job_world import JobWorld
from tests.portal.jobs.test_failed_pods import Watch
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job, deleted
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
LABEL, LWS, JOBSET = port.KUBEFLOW_JOB_LABEL, "leaderworkerset.sigs.k8s.io/name", "jobset.sigs.k8s.io/jobset-name"
CONSENT = {training_jobs.PROTECTED: "true"}
OWNERS = {  # of the stranger's pod
    "bare": {},
    "a ReplicaSet": {"owner_kind": "ReplicaSet", "owner_name": "victim"},
    "a job of that name that was before": {"owner_kind": "PyTorchJob", "owner_name": "victim"},
    "a job of their own": {"owner_kind": "Job", "owner_name": "mine"},
    "an unknown thing": {"owner_kind": "UnknownJob", "owner_name": "victim"},
}


def add_stranger(kube: WithOperators, name: str = "stranger", *, owner: str = "a ReplicaSet", **more: object) -> None:
    given = {"node": NODE, "labels": {LABEL: "victim", **CONSENT}, **OWNERS.get(owner, {}), **more}
    kube.add_pod("train", name, **given)
    if owner == "a job of that name that was before":
        (old,) = kube.objects.get("Pod", "train", name)["metadata"]["ownerReferences"]
        kube.objects.merge("Pod", "train", name, {"metadata": {"ownerReferences": [{**old, "uid": "u"}]}})


def test_a_pod_that_claims_a_job_as_owner_gives_no_consent(world: JobWorld, monkeypatch) -> None:
    """The uid of a job is in each of its pods. Its consent is in the job, or in the template of its pods."""
    watch = Watch(world, monkeypatch)
    add_job(world, "victim", "gpu-1", "gpu-2", protected="")
    add_stranger(world.kube, owner="a job of that name", owner_kind="PyTorchJob", owner_name="victim")
    watch.look()
    world.kube.fail_container("train", "stranger")
    assert watch.look() == []
    job, _ = training_jobs.read(world.kube, "train", "PyTorchJob", "victim")
    assert not job.protected


@pytest.fixture(params=OWNERS)
def owner(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_failed_pod_of_a_stranger_restarts_no_job(world: JobWorld, owner: str, monkeypatch) -> None:
    watch = Watch(world, monkeypatch)
    add_job(world, "victim", "gpu-1", "gpu-2", protected="")
    world.kube.add_workload("Job", "train", "mine", labels=CONSENT)
    add_stranger(world.kube, owner=owner)
    watch.look()
    world.kube.fail_container("train", "stranger")
    assert watch.look() == []
    assert not PodFailure.objects.exists()


def test_the_consent_of_a_stranger_is_not_the_jobs_consent(world: JobWorld, owner: str) -> None:
    add_job(world, "victim", "gpu-1", protected="")
    add_stranger(world.kube, owner=owner)
    world.kube.label_workload("train", "PyTorchJob", "victim", labels={training_jobs.NEEDS_RECOVERY: "true"})
    services.look_for_labels(world.cluster, now=world.now)
    order = JobOrder.objects.get()
    assert (order.state, codes_of(order.because)) == ("failed", ["job_not_protected"])


def test_a_restart_neither_deletes_nor_awaits_strangers(world: JobWorld, owner: str) -> None:
    add_job(world, "victim", "gpu-1", "gpu-2")
    add_stranger(world.kube, owner=owner)
    order = world.until_settled(world.order(name="victim"))
    assert (order.state, deleted(world)) == ("done", ["victim-0", "victim-1"])
    assert sorted(order.restart["pods"]) == ["victim-0", "victim-1"]


def test_the_pod_of_a_stranger_on_a_faulty_node_restarts_no_job(owner: str) -> None:
    one = World(policy=POLICY, nodes=3, fake=WithOperators)
    try:
        one.cluster.guards = GUARDS
        one.cluster.save()
        add_job(one, "victim", "gpu-2", "gpu-3", protected="")
        add_stranger(one.kube, owner=owner)
        one.fault(62)
        one.until("succeeded")
        assert deleted(one) == []
    finally:
        one.uninstall()


def test_jobs_shows_only_pods_that_belong_to_them(world: JobWorld, owner: str) -> None:
    add_job(world, "victim", "gpu-2", protected="")
    add_stranger(world.kube, owner=owner)
    queries.forget()
    found, silent = queries.jobs([world.cluster], accounts.Scope.of(world.cluster), now=world.now)
    assert not silent
    assert [(view.name, view.nodes, view.protected) for view in found if view.name == "victim"] == [
        ("victim", ("gpu-2",), False)
    ]


def test_the_workers_of_a_leader_belong_to_its_set(world: JobWorld) -> None:
    """Their StatefulSet belongs to the leader's pod, which may run on another node."""
    kube = world.kube
    kube.add_workload("LeaderWorkerSet", "train", "lws")
    kube.add_workload("StatefulSet", "train", "lws", owner=("LeaderWorkerSet", "lws"), labels={LWS: "lws"})
    leader = kube.add_pod(
        "train", "lws-0", node="gpu-1", owner_kind="StatefulSet", owner_name="lws", labels={LWS: "lws", **CONSENT}
    )
    kube.add_workload("StatefulSet", "train", "lws-0", labels={LWS: "lws"})
    above = {"apiVersion": "v1", "kind": "Pod", "name": "lws-0", "uid": leader.uid, "controller": True}
    kube.objects.merge("StatefulSet", "train", "lws-0", {"metadata": {"ownerReferences": [above]}})
    kube.add_pod("train", "lws-0-1", node="gpu-2", owner_kind="StatefulSet", owner_name="lws-0", labels={LWS: "lws"})
    (job,) = training_jobs.find(kube, kube.list_pods(node="gpu-2"))
    assert (job.kind, job.name) == ("LeaderWorkerSet", "lws")
    assert sorted(Restart.of(kube, job).pods) == ["lws-0", "lws-0-1"]


@pytest.mark.parametrize("parts", [1, 40])
def test_many_parts_are_read_by_one_list_and_strangers_hide_none(world: JobWorld, parts: int) -> None:
    kube = world.kube
    kube.add_workload("JobSet", "train", "set", labels=CONSENT)
    for number in range(parts):
        name = f"set-w-{number}"
        kube.add_workload("Job", "train", name, owner=("JobSet", "set"), labels={JOBSET: "set"})
        for rank in range(2):
            kube.add_pod(
                "train", f"{name}-{rank}", node="gpu-1", owner_kind="Job", owner_name=name, labels={JOBSET: "set"}
            )
    for number in range(60):
        name = f"strange-{number}"
        kube.add_workload("Job", "train", name)
        kube.add_pod("train", f"z-{number}", node="gpu-1", owner_kind="Job", owner_name=name, labels={JOBSET: "set"})
    job, _ = training_jobs.read(kube, "train", "JobSet", "set")
    before = len(kube.calls)
    pods = training_jobs.pods_of(kube, job)
    assert len(pods) == 2 * parts
    assert all(pod.name.startswith("set-w-") for pod in pods)
    assert len(kube.calls) - before <= MAX_READS + 2


def test_a_refused_controller_of_a_stranger_hides_no_other_pod(world: JobWorld) -> None:
    add_job(world, "victim", "gpu-1")
    world.kube.add_workload("Job", "train", "mine")
    add_stranger(world.kube, owner="a job of their own")
    world.kube.fail("workload", port.RefusedByServer("403 Forbidden"), times=1_000, name="mine")
    job, _ = training_jobs.read(world.kube, "train", "PyTorchJob", "victim")
    assert [pod.name for pod in training_jobs.pods_of(world.kube, job)] == ["victim-0"]


@pytest.mark.parametrize("kind", ["UnknownJob", "Job"])
def test_strangers_hide_no_pod_of_a_small_job(world: JobWorld, kind: str) -> None:
    """Neither by many owners, nor by a reference that names a part of the job wrongly."""
    kube = world.kube
    kube.add_workload("JobSet", "train", "set", labels=CONSENT)
    for number in range(2):
        kube.add_workload("Job", "train", f"set-w-{number}", owner=("JobSet", "set"), labels={JOBSET: "set"})
        owner = {"owner_kind": "Job", "owner_name": f"set-w-{number}"}
        kube.add_pod("train", f"set-w-{number}-0", node="gpu-1", labels={JOBSET: "set"}, **owner)
    (reference,) = kube.objects.get("Pod", "train", "set-w-0-0")["metadata"]["ownerReferences"]
    for number in range(MAX_READS + 6):
        name = f"aaa-{number}"
        for _ in range(2):  # as often as the job's own
            kube.add_pod("train", f"{name}-{_}", owner_kind=kind, owner_name=name, labels={JOBSET: "set"})
    kube.add_pod("train", "aaa", owner_kind="Foo", owner_name="x", labels={JOBSET: "set"})
    wrong = {**reference, "kind": "Foo", "apiVersion": "example.com/v1"}
    kube.objects.merge("Pod", "train", "aaa", {"metadata": {"ownerReferences": [wrong]}})
    job, _ = training_jobs.read(kube, "train", "JobSet", "set")
    found = {pod.name for pod in training_jobs.pods_of(kube, job)}
    assert {"set-w-0-0", "set-w-1-0"} <= found <= {"set-w-0-0", "set-w-1-0", "aaa"}
    assert list(training_jobs.find(kube, kube.list_pods(node="gpu-1"))) == [job]
