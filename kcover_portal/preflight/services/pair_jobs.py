"""The Jobs of a pair test: one on each of its nodes, with the program of programs/all_reduce.py.

Their names follow from the rows, so that a repeated call finds them. They name their node and bypass the scheduler: so
no pod is evicted for them, and the kubelet refuses them if the GPUs are in use. A kubelet of the control plane refuses
those of other nodes. They end by themselves at their deadline, and the cluster deletes them a day later, if the portal
cannot.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover.preflight import bandwidth
from kcover.preflight.bandwidth import Bandwidth
from kcover.values import kube_names
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.preflight.models import PairPlan, PairTest

TIME_LIMIT = timedelta(minutes=10)  # pulling a large image included
PROGRAM = (Path(__file__).parent.parent / "programs" / "all_reduce.py").read_text(encoding="utf-8")
FIRST_PORT, PORTS = 29500, 400  # one for each test at a time, on the network of the first node
PLAN_LABEL, TEST_LABEL, RANK_LABEL = "kcover.io/pair-plan", "kcover.io/pair-test", "kcover.io/pair-rank"
MAX_LAST_WORDS = 400  # characters of a termination message
GPU_RESOURCE = "nvidia.com/gpu"

Clock = Callable[[], datetime]
Pods = dict[int, dict[int, port.Pod]]  # by the test's place and the rank


class Stopped(reasons.ExplainedError):
    """The worker may not call the cluster for this plan any more: the lease, the plan or the mode has changed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a test: what was measured, or why nothing was."""

    measured: Bandwidth | None = None
    because: reasons.Reason | None = None


class PairJobs:
    """The calls of one plan. ``allowed`` is asked right before each write; it raises Stopped."""

    def __init__(self, plan: PairPlan, *, allowed: Callable[[], None], clock: Clock) -> None:
        self._plan, self._allowed, self._clock = plan, allowed, clock
        self._kube = fleet.connect(plan.cluster)

    def pods(self) -> Pods:
        """The pods of the plan's Jobs. Raises port.KubeError."""
        found: Pods = {}
        for pod in self._kube.list_pods(namespace=self._plan.namespace, labels={PLAN_LABEL: self._plan.label}):
            place, rank = (pod.labels.get(label, "") for label in (TEST_LABEL, RANK_LABEL))
            if place.isdigit() and rank in ("0", "1"):
                of_job = pod.owner_kind == "Job" and pod.owner_name == _name(self._plan, int(place), int(rank))
                if of_job:  # not one that somebody labelled like it
                    found.setdefault(int(place), {})[int(rank)] = pod
        return found

    def left(self) -> list[str]:
        """The names of the plan's Jobs that exist. Raises port.KubeError."""
        found = self._kube.workloads(kind="Job", namespace=self._plan.namespace, labels={PLAN_LABEL: self._plan.label})
        return sorted(job.name for job in found)

    def other_work(self, node: Node) -> str:
        """The pod on a node that uses GPUs or belongs to a training job, and not to this plan; "" if there is none.

        Raises port.KubeError.
        """
        for pod in self._kube.list_pods(node=node.name):
            if is_work(pod) and pod.labels.get(PLAN_LABEL) != self._plan.label:
                return f"{pod.namespace}/{pod.name}"
        return ""

    def create(self, test: PairTest) -> Ended | None:
        """Creates the Jobs of a test, or finds them. Returns why the test ends if they are of no use.

        Raises Stopped, and port.KubeError after recording it.
        """
        nodes = test.nodes
        found: list[port.JobState] = []
        wanted = audit.PairTestJobs(
            namespace=self._plan.namespace, jobs=names(self._plan, test), image=self._plan.image, gpus=test.gpus
        )

        def act() -> None:
            for rank, node in enumerate(nodes):
                self._allowed()
                found.append(self._kube.ensure_job(_spec(self._plan, test, rank=rank, node=node, master=nodes[0])))

        target = f"nodes {test.first.name} and {test.second.name}" if len(nodes) > 1 else f"node {test.first.name}"
        self._call(act, call=audit.Call.PAIR_TEST, target=target, wanted=wanted)
        for node, state in zip(nodes, found, strict=True):
            if state.labels.get(PLAN_LABEL) != self._plan.label:
                return Ended(because=reasons.of("pair_job_foreign", node=node.name))
            if state.failed:
                return Ended(because=reasons.of("pair_job_failed", node=node.name, why=state.reason or "-"))
        return None

    def delete(self, jobs: Collection[str]) -> None:
        """Deletes Jobs of the plan by name. Raises Stopped, and port.KubeError after recording it."""
        if not jobs:
            return

        def act() -> None:
            for job in jobs:
                self._allowed()
                self._kube.delete_job(self._plan.namespace, job)

        wanted = audit.PairTestCleanup(namespace=self._plan.namespace, jobs=tuple(jobs))
        self._call(act, call=audit.Call.PAIR_TEST_CLEANUP, target=str(self._plan), wanted=wanted)

    def _call(self, act: Callable[[], None], *, call: audit.Call, target: str, wanted: audit.Wanted) -> None:
        given: dict[str, Any] = {"call": call, "target": target, "pair_plan": self._plan.pk}
        with transaction.atomic():
            self._allowed()
            self._note(audit.ClusterCallBegun(wanted=wanted, **given))
        try:
            act()
        except port.KubeError as error:
            self._note(audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **given))
            raise
        except Stopped as stopped:
            self._note(audit.ClusterCallFailed(because=stopped.reason, held_back=True, **given))
            raise
        self._note(audit.ClusterCallDone(**given))

    def _note(self, act: audit.Act) -> None:
        ledger.record(self._plan.cluster.name, act, actor=self._plan.requested_by, now=self._clock())


def is_work(pod: port.Pod) -> bool:
    """Returns whether a pod uses GPUs or belongs to a training job, so that its node is not idle."""
    return not (pod.terminal or pod.daemonset or pod.mirror) and bool(pod.gpus or pod.job)


def end_of(test: PairTest, pods: dict[int, port.Pod], *, now: datetime) -> Ended | None:
    """How a running test ended; None while it runs."""
    nodes = test.nodes
    for rank, node in enumerate(nodes):
        pod = pods.get(rank)
        if pod is not None and pod.phase == "Failed":
            why = pod.last_words[:MAX_LAST_WORDS] if pod.last_words else reasons.of("no_reason_given")
            return Ended(because=reasons.of("pair_job_failed", node=node.name, why=why))
    if len(pods) == len(nodes) and all(pod.phase == "Succeeded" for pod in pods.values()):
        try:
            measured = bandwidth.of_nodes(bandwidth.read(pods[rank].last_words) for rank in range(len(nodes)))
        except bandwidth.BandwidthInvalid as error:
            return Ended(because=error.reason)
        return Ended(measured) if measured.device else Ended(measured, reasons.of("pair_no_gpu"))
    if test.begun_at is not None and now >= test.begun_at + TIME_LIMIT:
        return Ended(because=reasons.of("pair_job_late", seconds=round(TIME_LIMIT.total_seconds())))
    return None


def names(plan: PairPlan, *tests: PairTest) -> tuple[str, ...]:
    """The names of the Jobs of tests, by rank."""
    return tuple(_name(plan, test.place, rank) for test in tests for rank, _node in enumerate(test.nodes))


def names_of_places(plan: PairPlan, places: Sequence[int]) -> tuple[str, ...]:
    """The names of the Jobs of the tests with these places."""
    return tuple(_name(plan, place, rank) for place in places for rank in (0, 1))


def _name(plan: PairPlan, place: int, rank: int) -> str:
    return f"kcover-pair-{plan.label}-{place}-{rank}"


def _is_control_plane(node: Node) -> bool:
    return not node.labels.keys().isdisjoint(kube_names.CONTROL_PLANE_ROLES)


def _spec(plan: PairPlan, test: PairTest, *, rank: int, node: Node, master: Node) -> port.JobSpec:
    return port.JobSpec(
        name=_name(plan, test.place, rank),
        namespace=plan.namespace,
        node=node.name,
        image=plan.image,
        command=("python3", "-c", PROGRAM),
        env={
            "KCOVER_NODES": str(len(test.nodes)),
            "KCOVER_RANK": str(rank),
            "KCOVER_MASTER": master.address,
            "KCOVER_PORT": str(FIRST_PORT + test.place % PORTS),
            "KCOVER_GPUS": str(test.gpus),
        },
        host_network=True,
        unless_labelled=() if _is_control_plane(node) else kube_names.CONTROL_PLANE_ROLES,
        resources={GPU_RESOURCE: test.gpus, **plan.cluster.nccl_resource_counts},
        deadline_seconds=int(TIME_LIMIT.total_seconds()),
        labels={PLAN_LABEL: plan.label, TEST_LABEL: str(test.place), RANK_LABEL: str(rank)},
    )
