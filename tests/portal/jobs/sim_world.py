"""A world of training jobs on the simulator: real controllers and kubelets, calls over HTTP, a clock moved by hand."""

import random
from datetime import UTC, datetime
from typing import Any

from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.kube import connections
from simulator.kubeapi import store
from simulator.world import agenda, pods, world
from simulator.world.pace import Timings
from tests.contract import over_http
from tests.portal.jobs.job_world import JobWorld

PACE = Timings(
    boot=10.0, grace=2.0, start=1.0, notice=5.0, settle=1.0, evict=300.0, run=1e6, back_off=300.0, repair=900.0
)
OWN = {"kcover.io/cascading-recovery": "true"}
POD = {"spec": {"containers": [{"name": "main", "image": "train"}], "restartPolicy": "OnFailure"}}
STORED_AS = {"PyTorchJob": "PyTorchJob", "JobSet": "JobSet", "VolcanoJob": "jobs.batch.volcano.sh"}
LABELS = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "VolcanoJob": "volcano.sh/job-name",
}
KINDS = tuple(STORED_AS)


def spec_of(kind: str, size: int) -> dict[str, Any]:
    """A job of so many pods."""
    if kind == "PyTorchJob":
        return {"pytorchReplicaSpecs": {"Worker": {"replicas": size, "restartPolicy": "OnFailure", "template": POD}}}
    if kind == "JobSet":
        inner = {"parallelism": size, "completions": size, "backoffLimit": 100, "template": POD}
        return {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": inner}}]}
    return {"minAvailable": size, "tasks": [{"name": "w", "replicas": size, "template": POD}]}


class Simulated:
    """A small cluster that is never idle: it outlives the worlds of several tests."""

    def __init__(self, *, nodes: int = 4) -> None:
        self.clock = agenda.ManualClock(datetime(2026, 11, 21, 8, tzinfo=UTC))
        self.objects, self.plans = store.Store(now=self.clock), agenda.Agenda(now=self.clock)
        size = world.Size(nodes=nodes, cpu_nodes=0, workloads=False)
        self.built = world.build(self.objects, self.plans, size=size, pace=PACE, rng=random.Random(5))

    def add(self, kind: str, name: str, *, size: int) -> None:
        """Creates a protected job."""
        made = {"metadata": {"namespace": "training", "name": name, "labels": OWN}, "spec": spec_of(kind, size)}
        self.objects.create(STORED_AS[kind], made)

    def pods(self, kind: str, name: str) -> list[dict[str, Any]]:
        """The pods of a job."""
        return list(self.objects.list("Pod", namespace="training", labels=f"{LABELS[kind]}={name}"))

    def crash(self, pod: dict[str, Any]) -> None:
        """Ends the container of a pod with an error."""
        self.built.kubelets[pods.node_of(pod)].crash(pod, message="NCCL error")


class SimWorld(JobWorld):
    """Orders are carried out by hand. ``uids``: every pod that a job ever had."""

    def __init__(self, simulated: Simulated, rig: over_http.SimulatorRig) -> None:
        super().__init__(policy="", nodes=0)
        self.uninstall()
        self.simulated, self.rig = simulated, rig
        self.uninstall = connections.install(self.cluster.pk, rig.cluster)
        self.now = simulated.clock()
        node_rows.sync_list(self.cluster, rig.cluster.list_nodes().items, now=self.now)
        listed = Node.objects.filter(cluster=self.cluster, in_cluster=True)
        assert listed.count() == len(simulated.built.machines)
        self.uids: dict[str, set[str]] = {}

    def add(self, kind: str, name: str, *, size: int = 2) -> None:
        """Creates a protected job, and waits until it runs."""
        self.rig.inside(lambda: self.simulated.add(kind, name, size=size))
        self.uids[name] = set()
        self.pass_time(10)
        assert len(self.running(kind, name)) == size

    def running(self, kind: str, name: str) -> set[str]:
        """The uids of the job's pods that run."""
        found = self.rig.inside(lambda: self.simulated.pods(kind, name))
        self.uids[name] |= {pod["metadata"]["uid"] for pod in found}
        return {pod["metadata"]["uid"] for pod in found if pods.ready(pod) and not pods.deleting(pod)}

    def nodes_of(self, kind: str, name: str) -> set[str]:
        """The nodes of the job's pods."""
        return {pods.node_of(pod) for pod in self.rig.inside(lambda: self.simulated.pods(kind, name))}

    def crash(self, kind: str, name: str) -> None:
        """A container of the job's first pod ends with an error."""
        first = self.rig.inside(lambda: self.simulated.pods(kind, name))[0]
        self.rig.inside(lambda: self.simulated.crash(first))

    def pass_time(self, seconds: float = 1) -> None:
        self.rig.inside(lambda: self.simulated.clock.advance(seconds, self.simulated.plans))
        self.now = self.simulated.clock()
        self.work()
