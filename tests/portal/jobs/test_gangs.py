"""1,000 random drains strand no gang: each is restarted as a whole, whatever dies meanwhile, and no pod twice."""

import random

import pytest

from kcover.values.kube_names import ObjectName
from kcover_portal.kube import port
from kcover_portal.rescue.step.jobs.job_restart import Restart
from kcover_portal.workloads import training_jobs
from tests.portal.rescue.operators import WithOperators, pods_of

KINDS = {
    "PyTorchJob": (port.KUBEFLOW_JOB_LABEL, "PyTorchJob"),
    "JobSet": ("jobset.sigs.k8s.io/jobset-name", "Job"),
    "VolcanoJob": ("volcano.sh/job-name", "Job"),
}
NODES = tuple(f"gpu-{number}" for number in range(6))


class Died(Exception):
    """The worker dies."""


class Worker:
    """Restarts the jobs of a drained node as an order or a rescue does, and may die before or after any call."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.may_die = True

    def write(self, _kind: object, call: object, **_more: object) -> object:
        if self.may_die and self.rng.random() < 0.15:
            raise Died
        result = call()
        if self.may_die and self.rng.random() < 0.15:
            raise Died
        return result


def gangs(kube: WithOperators, rng: random.Random) -> None:
    for number in range(3):
        kind = rng.choice(tuple(KINDS))
        label, owner = KINDS[kind]
        name = f"{kind.lower()}-{number}"
        kube.add_workload(kind, "train", name, labels={"kcover.io/cascading-recovery": "true"})
        if kind == "JobSet":
            kube.add_workload("Job", "train", name, owner=(kind, name))
        for rank in range(rng.randint(2, 4)):
            kube.add_pod(
                "train",
                f"{name}-{rank}",
                node=rng.choice(NODES),
                owner_kind=owner,
                owner_name=name,
                labels={label: name},
            )


@pytest.fixture(scope="module")
def kube() -> WithOperators:
    made = WithOperators()
    for name in NODES:
        made.add_node(name)
    gangs(made, random.Random(7))
    return made


def test_a_thousand_random_drains_strand_no_gang(kube: WithOperators) -> None:
    rng = random.Random(20261123)
    worker = Worker(rng)
    restarted: set[str] = set()
    for _ in range(1_000):
        node = rng.choice(NODES)
        kube.cordon(node)
        before = {pod.uid: pod.labels for pod in pods_of(kube)}
        jobs = training_jobs.find(kube, kube.list_pods(node=node))
        stored = [Restart.of(kube, job).to_json() | {"at": str(job)} for job in jobs]
        _restart(kube, worker, stored)
        after = {pod.uid: pod for pod in pods_of(kube)}
        touched = {job.value for job in jobs}
        restarted |= touched
        for uid, labels in before.items():
            is_touched = any(value in touched for value in labels.values())
            assert (uid in after) != is_touched  # all pods of a gang were replaced, or none
        assert len(after) == len(before)
        assert all(pod.ready and pod.node != node for pod in after.values() if pod.uid not in before)
        kube.uncordon(node)
    assert len(restarted) == 3  # each gang was


def _restart(kube: WithOperators, worker: Worker, stored: list[dict]) -> None:
    """Workers die and others go on from what is stored, while controllers and kubelets work."""
    worker.may_die = True
    for attempt in range(50):
        worker.may_die = attempt < 40
        try:
            for data in stored:
                Restart.from_json(ObjectName.parse(data["at"]), data).make(kube, worker.write)
        except Died:
            if worker.rng.random() < 0.5:
                _controllers(kube)
            continue
        _controllers(kube)
        return
    raise AssertionError("never done")


def _controllers(kube: WithOperators) -> None:
    kube.obey_commands()
    kube.finish_deletions()
