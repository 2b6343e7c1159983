"""The training jobs of some clusters, as their API servers answer now, with what the portal did to them.

The answer of one API server is kept for a few seconds, so that many readers cost it no more than one. A cluster that
does not answer is named with its error; the others are shown.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from django.db.models import Count, F, QuerySet

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.jobs.models import JobOrder, JobPerformance, PodFailure
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.kube.controllers import Controllers
from kcover_portal.rescue.models import JobRestart, Rescue
from kcover_portal.runtime.services import claims
from kcover_portal.workloads import training_jobs

JOBS_CACHED_FOR: Final = timedelta(seconds=5)
PERFORMANCE_SHOWN_FOR: Final = timedelta(hours=1)  # after its last reading: the source may be gone, or not answer
SIDE_BY_SIDE: Final = 4  # clusters that are asked at once
RUNNING, RESTARTING, WAITING, FAILED, STOPPED = "running", "restarting", "waiting", "failed", "stopped"
STATES: Final = (RUNNING, RESTARTING, WAITING, FAILED, STOPPED)
# Of these kinds there are many that train nothing: they are listed if they are protected or hold GPUs.
_COMMON: Final = ("Job", "StatefulSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceView:
    """A job against its own past. ``speed``: 1.0 is its usual one; None while too little is known.

    ``slow_since``: since when a drop lasts; None if none does. ``slow_node``: the node that it follows, "" if none.
    """

    speed: float | None
    slow_since: datetime | None
    slow_node: str
    at: datetime

    @property
    def percent(self) -> int | None:
        """Its speed in percent of the usual one."""
        return None if self.speed is None else round(100 * self.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job. ``nodes``: where its pods run. ``gpus_on``: their GPUs by node. ``restarts``: how often the portal
    restarted it. ``because``: what it waits for, or why it was restarted last; None if the portal did nothing.
    ``avoid``: nodes on which several attempts failed first. ``awaits_approval``: an order by hand waits for another
    person. ``performance``: None if no source reads it."""

    cluster: str
    namespace: str
    kind: str
    name: str
    protected: bool
    state: str
    restarts: int
    nodes: tuple[str, ...]
    gpus_on: Mapping[str, int]
    last_restart: datetime | None
    because: reasons.Reason | None
    can_stop: bool
    awaits_approval: bool
    avoid: tuple[str, ...]
    performance: PerformanceView | None = None

    @property
    def gpus(self) -> int:
        """The GPUs of the running pods."""
        return sum(self.gpus_on.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A job that has not ended and is not stopped. ``pods``: the node of each of its pods. ``is_up``: all are ready.

    ``attempt`` changes when a pod is created, ``version`` with the spec of the job.
    """

    namespace: str
    kind: str
    name: str
    version: str
    attempt: str
    pods: Mapping[str, str]
    is_up: bool

    @property
    def place(self) -> tuple[str, str, str]:
        """Its namespace, kind and name."""
        return self.namespace, self.kind, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableCluster:
    """A cluster whose jobs could not be read."""

    cluster: str
    because: reasons.Reason


@dataclass(frozen=True, slots=True)
class _Read:
    """A job object with its pods, as one look at the cluster found them."""

    workload: port.Workload
    job: training_jobs.Job
    pods: tuple[port.Pod, ...]

    @property
    def shown(self) -> bool:
        """Returns whether it has not succeeded, and may be a training job."""
        if self.workload.phase is port.Phase.SUCCEEDED or self.workload.labels.get(_MANAGED) == port.COMPONENT:
            return False
        return self.workload.kind not in _COMMON or self.job.protected or any(pod.gpus for pod in self.pods)


_MANAGED: Final = "app.kubernetes.io/managed-by"
_lock = Lock()
_kept: dict[int, tuple[datetime, tuple[_Read, ...]]] = {}


def jobs(
    clusters: Sequence[Cluster], scope: accounts.Scope, *, now: datetime, namespace: str = "", kind: str = ""
) -> tuple[list[JobView], list[UnreadableCluster]]:
    """The jobs of these clusters by cluster, namespace and name, and the clusters that did not answer.

    Of a cluster that ``scope`` covers in part, only the jobs with pods on its nodes, and of them only those nodes.
    """
    with ThreadPoolExecutor(SIDE_BY_SIDE) as calls:
        found = list(calls.map(lambda one: _look(one, now=now), clusters))
    views: list[JobView] = []
    silent: list[UnreadableCluster] = []
    for cluster, read in zip(clusters, found, strict=True):
        if isinstance(read, reasons.Reason):
            silent.append(UnreadableCluster(cluster=cluster.name, because=read))
        else:
            wanted = [one for one in read if namespace in ("", one.job.namespace) and kind in ("", one.job.kind)]
            found_views = _views(cluster, wanted, now=now)
            views += found_views if cluster in scope else _narrowed(found_views, cluster, scope)
    return sorted(views, key=lambda view: (view.cluster, view.namespace, view.name, view.kind)), silent


def running(cluster: Cluster, *, now: datetime) -> list[JobRun] | reasons.Reason:
    """The jobs of a cluster that run or wait, whole; the reason if its API server does not answer."""
    read = _look(cluster, now=now)
    if isinstance(read, reasons.Reason):
        return read
    return [_run(one) for one in read if one.workload.phase is port.Phase.RUNNING]


def _run(one: _Read) -> JobRun:
    pods = [pod for pod in one.pods if not pod.terminal]
    uids = "\n".join(sorted(pod.uid for pod in pods))
    return JobRun(
        namespace=one.job.namespace,
        kind=one.job.kind,
        name=one.job.name,
        version=f"{one.workload.uid} {one.workload.generation}",
        attempt=hashlib.blake2b(uids.encode(), digest_size=8).hexdigest(),
        pods={pod.name: pod.node for pod in pods if pod.node},
        is_up=_state(one, None, restarting=False) == RUNNING,
    )


def matching(views: Iterable[JobView], *, text: str = "", state: str = "") -> list[JobView]:
    """The jobs in this state whose namespace and name contain the text, in any case; "": all."""
    wanted = text.casefold()
    return [one for one in views if state in ("", one.state) and wanted in f"{one.namespace}/{one.name}".casefold()]


@dataclass(frozen=True, slots=True)
class FailedJob:
    """A job with failed pods. ``order``: the newest that restarts it; None if there is none."""

    namespace: str
    kind: str
    name: str
    order: int | None


def of_incidents(incidents: Collection[int]) -> dict[int, list[FailedJob]]:
    """The jobs whose failed pods are behind incidents (by key), the first one first; one query."""
    found: dict[int, dict[tuple[str, str, str], FailedJob]] = {}
    rows = PodFailure.objects.filter(incident__in=incidents).order_by("pk")
    for row in rows:
        known = found.setdefault(row.incident_id or 0, {})
        place = row.namespace, row.kind, row.name
        orders = [row.order_id, known[place].order if place in known else None]
        known[place] = FailedJob(*place, max((pk for pk in orders if pk is not None), default=None))
    return {incident: list(failed.values()) for incident, failed in found.items()}


def left_to_people() -> QuerySet[JobOrder]:
    """Orders that need attention: the one definition for lists, counts, metrics and notifications."""
    return JobOrder.objects.filter(state=JobOrder.State.HELD)


def forget() -> None:
    """Reads every cluster again at the next call."""
    with _lock:
        _kept.clear()


def _look(cluster: Cluster, *, now: datetime) -> tuple[_Read, ...] | reasons.Reason:
    """Reads the whole cluster in any case, so that all readers share one read."""
    key = cluster.pk
    with _lock:
        at, read = _kept.get(key, (None, ()))
    if at is not None and timedelta(0) <= now - at < JOBS_CACHED_FOR:
        return read
    try:
        read = tuple(_read(fleet.connect(cluster)))
    except port.KubeError as error:
        return kube_reasons.of(error)
    with _lock:
        for old in [other for other, (then, _) in _kept.items() if now - then >= JOBS_CACHED_FOR]:
            del _kept[old]
        _kept[key] = (now, read)
    return read


def _read(kube: port.Cluster) -> Iterable[_Read]:
    """One list of each kind, and one of the pods of each label or namespace: not one call for each job."""
    workloads = kube.workloads()
    labels = {port.WORKLOADS[one.kind].pod_label for one in workloads} - {""}
    pods: dict[tuple[str, str, str], list[port.Pod]] = {}
    for label in sorted(labels):
        for pod in kube.list_pods(having=label):
            pods.setdefault((pod.namespace, label, pod.labels[label]), []).append(pod)
    in_namespace: dict[str, list[port.Pod]] = {}
    above = Controllers(None)
    above.learn(workloads=workloads, pods=(pod for group in pods.values() for pod in group))
    for workload in workloads:
        job = training_jobs.of_workload(workload)
        if training_jobs.is_part(workload):
            continue
        if job.label:
            named = pods.get((job.namespace, job.label, job.value), [])
            mine = [pod for pod in named if above.is_below(pod, job.uid)]
        elif job.protected:
            if job.namespace not in in_namespace:
                in_namespace[job.namespace] = kube.list_pods(namespace=job.namespace)
            mine = training_jobs.controlled(job, in_namespace[job.namespace])
        else:
            mine = []
        found = _Read(workload, job, tuple(mine))
        if found.shown:
            yield found


def _narrowed(views: Iterable[JobView], cluster: Cluster, scope: accounts.Scope) -> Iterable[JobView]:
    """Leaves out reasons, too: they may name nodes of others."""
    rows = Node.objects.filter(scope.where(node=""), cluster=cluster)
    seen = frozenset(rows.values_list("name", flat=True))
    for view in views:
        if nodes := tuple(name for name in view.nodes if name in seen):
            avoid = tuple(name for name in view.avoid if name in seen)
            gpus_on = {name: view.gpus_on[name] for name in nodes}
            shown = view.performance
            if shown is not None and shown.slow_node not in seen:
                shown = replace(shown, slow_node="")
            yield replace(view, nodes=nodes, avoid=avoid, gpus_on=gpus_on, because=None, performance=shown)


def _views(cluster: Cluster, read: Iterable[_Read], *, now: datetime) -> Iterable[JobView]:
    """The jobs with the portal's own acts, in five queries."""
    restarts = {(row.namespace, row.kind, row.job): row for row in JobRestart.objects.filter(cluster=cluster)}
    open_orders = JobOrder.objects.filter(cluster=cluster, state__in=(JobOrder.State.RUNNING, JobOrder.State.HELD))
    orders = {(row.namespace, row.kind, row.name): row for row in open_orders.order_by("pk")}
    rescues = set(
        Rescue.objects.filter(
            cluster=cluster,
            job_restarts__isnull=False,
            steps__name="restart_jobs",
            steps__state__in=("running", "waiting"),
        ).values_list("pk", flat=True)
    )
    avoid, performances = _accused(cluster, now=now), _performances(cluster, now=now)
    for one in read:
        job = one.job
        key = (job.namespace, job.kind, job.name)
        order, restart = orders.get(key), restarts.get(key) or restarts.get((job.namespace, "", job.name))
        running = [pod for pod in one.pods if not (pod.deleting or pod.terminal)]
        restarting = restart is not None and restart.rescue_id in rescues
        yield JobView(
            cluster=cluster.name,
            namespace=job.namespace,
            kind=job.kind,
            name=job.name,
            protected=job.protected,
            state=_state(one, order, restarting=restarting),
            restarts=restart.count if restart else 0,
            nodes=tuple(sorted({pod.node for pod in running if pod.node})),
            gpus_on=_gpus_by_node(running),
            last_restart=restart.at if restart else None,
            because=(order.why if order else None) or (reasons.kept(restart.because) if restart else None),
            awaits_approval=order is not None and order.state == JobOrder.State.HELD and order.awaits_approval,
            can_stop=job.known.stop is not port.JobMethod.NONE and not one.workload.queue,
            avoid=tuple(avoid.get(key, ())),
            performance=performances.get(key),
        )


def _performances(cluster: Cluster, *, now: datetime) -> dict[tuple[str, str, str], PerformanceView]:
    """By job; of several sources the one in which it is slow, else the newest."""
    fresh = JobPerformance.objects.filter(cluster=cluster, seen_at__gt=now - PERFORMANCE_SHOWN_FOR)
    rows = fresh.order_by(F("slow_since").asc(nulls_first=True), "seen_at")
    read = rows.values_list("namespace", "kind", "name", "speed", "slow_since", "slow_node", "seen_at")
    return {
        (namespace, kind, name): PerformanceView(speed=speed, slow_since=since, slow_node=node, at=at)
        for namespace, kind, name, speed, since, node, at in read
    }


def due_orders(*, now: datetime) -> QuerySet[JobOrder]:
    """The running orders whose due time has come, also those that a worker has."""
    return JobOrder.objects.filter(state=JobOrder.State.RUNNING, due_at__lte=now)


def claimable_orders(*, now: datetime) -> QuerySet[JobOrder]:
    """The orders that a worker may claim now, in the order of their due times."""
    return due_orders(now=now).filter(claims.free(now=now)).order_by("due_at")


def _accused(cluster: Cluster, *, now: datetime) -> dict[tuple[str, str, str], list[str]]:
    """By job: the nodes on which at least two attempts within WITNESS_WINDOW failed first."""
    rows = PodFailure.objects.filter(cluster=cluster, first=True, seen_at__gt=now - PodFailure.WITNESS_WINDOW)
    by_node = rows.order_by("node").values_list("namespace", "kind", "name", "node")
    found: dict[tuple[str, str, str], list[str]] = {}
    for namespace, kind, name, node, _ in by_node.annotate(n=Count("pod_uid", distinct=True)).filter(n__gt=1):
        found.setdefault((namespace, kind, name), []).append(node)
    return found


def _gpus_by_node(pods: Iterable[port.Pod]) -> dict[str, int]:
    gpus: Counter[str] = Counter()
    for pod in pods:
        gpus[pod.node] += pod.gpus
    return dict(gpus)


def _state(one: _Read, order: JobOrder | None, *, restarting: bool) -> str:
    if one.workload.phase is port.Phase.FAILED:
        return FAILED
    if one.workload.phase is port.Phase.SUSPENDED:
        return WAITING if one.workload.queue else STOPPED
    if order is not None and order.state == JobOrder.State.HELD:
        return WAITING
    begun = order is not None and order.action == JobOrder.Action.RESTART and bool(order.restart)
    if begun or restarting:
        return RESTARTING
    pods = [pod for pod in one.pods if not pod.terminal]
    return RUNNING if pods and all(pod.ready and not pod.deleting for pod in pods) else WAITING
