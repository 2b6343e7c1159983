"""The Jobs of a pair test: one on each node, with the program of programs/all_reduce.py.

Their names are fixed, so that a repeated call finds them. They end by themselves at their deadline, and the cluster
deletes them a day later, if the portal cannot.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kcover import audit, reasons
from kcover.preflight import bandwidth
from kcover.preflight.bandwidth import Bandwidth
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.kube import reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.preflight.models import PairPlan, PairTest

log = logging.getLogger(__name__)

TIME_LIMIT = timedelta(minutes=10)  # pulling a large image included
PROGRAM = (Path(__file__).parent.parent / "programs" / "all_reduce.py").read_text(encoding="utf-8")
FIRST_PORT, PORTS = 29500, 400  # one for each test at a time, on the network of the first node
PLAN_LABEL, TEST_LABEL, RANK_LABEL = "kcover.io/pair-plan", "kcover.io/pair-test", "kcover.io/pair-rank"
MAX_LAST_WORDS = 400  # characters of a termination message
GPU_RESOURCE = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a test: what was measured, or why nothing was."""

    measured: Bandwidth | None = None
    because: reasons.Reason | None = None


def pods_of(plan: PairPlan) -> dict[int, dict[int, port.Pod]]:
    """The pods of the plan's tests, by place and rank. Raises port.KubeError."""
    found: dict[int, dict[int, port.Pod]] = {}
    namespace = plan.cluster.nccl_namespace
    for pod in fleet.connect(plan.cluster).list_pods(namespace=namespace, labels={PLAN_LABEL: str(plan.pk)}):
        place, rank = (pod.labels.get(label, "") for label in (TEST_LABEL, RANK_LABEL))
        if place.isdigit() and rank in ("0", "1"):
            found.setdefault(int(place), {})[int(rank)] = pod
    return found


def end_of(test: PairTest, pods: dict[int, port.Pod], *, now: datetime) -> Ended | None:
    """How a running test ended; None while it runs."""
    nodes = (test.first.name, test.second.name)
    for rank, node in enumerate(nodes):
        pod = pods.get(rank)
        if pod is not None and pod.phase == "Failed":
            why = pod.last_words[:MAX_LAST_WORDS] if pod.last_words else reasons.of("no_reason_given")
            return Ended(because=reasons.of("pair_job_failed", node=node, why=why))
    if len(pods) == len(nodes) and all(pod.phase == "Succeeded" for pod in pods.values()):
        try:
            measured = bandwidth.of_pair(*(bandwidth.read(pods[rank].last_words) for rank in range(len(nodes))))
        except bandwidth.BandwidthInvalid as error:
            return Ended(because=error.reason)
        return Ended(measured) if measured.device else Ended(measured, reasons.of("pair_no_gpu"))
    if test.begun_at is not None and now >= test.begun_at + TIME_LIMIT:
        return Ended(because=reasons.of("pair_job_late", seconds=round(TIME_LIMIT.total_seconds())))
    return None


def make(plan: PairPlan, test: PairTest, *, now: datetime) -> None:
    """Creates the Jobs of a test, or finds them. Raises port.KubeError after recording it."""
    kube, nodes = fleet.connect(plan.cluster), (test.first, test.second)
    call: dict[str, Any] = {"call": audit.Call.PAIR_TEST, "target": _target(plan, test), "pair_plan": plan.pk}
    wanted = audit.PairTestJobs(
        namespace=plan.cluster.nccl_namespace, jobs=tuple(names(plan, test)), image=plan.image, gpus=plan.gpus
    )
    _note(plan, audit.ClusterCallBegun(wanted=wanted, **call), now=now)
    try:
        for rank, node in enumerate(nodes):
            kube.ensure_job(_spec(plan, test, rank=rank, node=node, master=nodes[0]))
    except port.KubeError as error:
        _note(plan, audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **call), now=now)
        raise
    _note(plan, audit.ClusterCallDone(**call), now=now)


def drop(plan: PairPlan, tests: Sequence[PairTest]) -> None:
    """Deletes the Jobs of tests that have ended. What the cluster refuses, it deletes itself a day later."""
    kube = fleet.connect(plan.cluster)
    try:
        for test in tests:
            for name in names(plan, test):
                kube.delete_job(plan.cluster.nccl_namespace, name)
    except port.KubeError as error:
        log.warning("%s: Jobs of its tests were not deleted: %s", plan, error)


def names(plan: PairPlan, test: PairTest) -> list[str]:
    """The names of the Jobs of a test, by rank."""
    return [f"kcover-pair-{plan.pk}-{test.place}-{rank}" for rank in (0, 1)]


def _spec(plan: PairPlan, test: PairTest, *, rank: int, node: Node, master: Node) -> port.JobSpec:
    return port.JobSpec(
        name=names(plan, test)[rank],
        namespace=plan.cluster.nccl_namespace,
        node=node.name,
        image=plan.image,
        command=("python3", "-c", PROGRAM),
        env={
            "KCOVER_NODES": "2",
            "KCOVER_RANK": str(rank),
            "KCOVER_MASTER": master.address,
            "KCOVER_PORT": str(FIRST_PORT + test.place % PORTS),
            "KCOVER_GPUS": str(plan.gpus),
        },
        host_network=True,
        resources={GPU_RESOURCE: plan.gpus, **plan.cluster.nccl_resource_counts},
        deadline_seconds=int(TIME_LIMIT.total_seconds()),
        labels={PLAN_LABEL: str(plan.pk), TEST_LABEL: str(test.place), RANK_LABEL: str(rank)},
    )


def _target(plan: PairPlan, test: PairTest) -> str:
    return f"nodes {test.first.name} and {test.second.name}"


def _note(plan: PairPlan, act: audit.Act, *, now: datetime) -> None:
    ledger.record(plan.cluster.name, act, actor=plan.requested_by, now=now)
