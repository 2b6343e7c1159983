"""Failed containers of training jobs, as a watch of the cluster's pods shows them.

Only pods of training jobs with a recent failure cost more than a comparison. A failure becomes an incident of kind
``pod`` on its node, and an order to restart its job.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover import reasons
from kcover.faults.weight import Weight
from kcover.sources.observation import Observation, ObservationBatch
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import storable_values
from kcover_portal.jobs.models import PodFailure
from kcover_portal.jobs.services import failures
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.sources import queries
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import source_settings
from kcover_portal.sources.services.intake import take
from kcover_portal.workloads import training_jobs

log = logging.getLogger(__name__)

SETTINGS_READ_EVERY = timedelta(seconds=5)
CONSENT_CACHED_FOR = timedelta(seconds=30)  # kcover reads a job's labels as often
MAX_WAITING = 1_000  # failed pods that are looked at; a job has one first failure, however many pods follow


@dataclass(frozen=True, slots=True)
class _Seen:
    pod: port.Pod
    failure: port.ContainerFailure
    at: datetime


class PodFeed:
    """Takes the failed containers of one cluster's protected jobs.

    A failure stays until it led to an order, or is older than ``failures.RECENT``. So one that follows a restart at
    once, or that an API server in trouble hid, is not lost.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._source: Source | None = None
        self._read_at: datetime | None = None
        self._is_broken = False
        self._refused: port.KubeError | None = None
        self._waiting: dict[str, _Seen] = {}
        self._settled: dict[tuple[str, datetime], datetime] = {}  # (pod's uid, time of the failure) to when it was seen
        self._jobs: dict[tuple[str, ...], tuple[datetime, training_jobs.Job | port.KubeError | None]] = {}

    @property
    def is_waiting(self) -> bool:
        """True if a failure has to be looked at again."""
        return bool(self._waiting)

    def is_on(self, *, now: datetime) -> bool:
        """Returns whether the source is switched on; its row is read every SETTINGS_READ_EVERY."""
        if self._read_at is None or now - self._read_at >= SETTINGS_READ_EVERY:
            self._source, self._read_at = queries.watched(self._cluster, Source.Kind.PODS), now
            self._cluster.refresh_from_db(fields=["job_recovery"])
        return self._source is not None

    def feed(self, changes: Iterable[port.PodEvent], *, now: datetime) -> None:
        """Takes changes of pods. A failure is stored on the source and never stops the watch."""
        for change in changes:
            if change.pod is not None:
                self._show(change.pod, gone=change.kind == "DELETED", now=now)
        if not self.is_on(now=now):
            self._waiting.clear()
        if self._source is None or not self._waiting:
            return
        try:
            self._refused = None
            self._take(self._source, now=now)
            self.note(self._refusal(), now=now)
        except port.KubeError as error:  # tried again as long as the failures are recent
            self.note(kube_reasons.of(error), now=now)
        except Exception as error:
            log.exception("cluster %s: failed pods could not be taken", self._cluster.name)
            self.note(reasons.of("source_broken", problem=storable_values.error_text(error)), now=now)

    def _refusal(self) -> reasons.Reason | None:
        return kube_reasons.of(self._refused) if self._refused is not None else None

    def note(self, problem: reasons.Reason | None, *, now: datetime) -> None:
        """Stores why the pods cannot be watched or taken; None once they can."""
        if self._source is not None and (problem or self._is_broken):
            self._is_broken = problem is not None
            source_settings.note_error(self._source, problem, now=now)

    def _show(self, pod: port.Pod, *, gone: bool, now: datetime) -> None:
        newest = None if gone or not (pod.job and pod.node) else failures.newest_failure(pod, now=now)
        if newest is None:
            self._waiting.pop(pod.uid, None)
        elif (pod.uid, newest[1]) not in self._settled:
            self._waiting[pod.uid] = _Seen(pod, *newest)
            if len(self._waiting) > MAX_WAITING:
                self._leave_one()

    def _leave_one(self) -> None:
        """Forgets the latest failure of the job with most of them, in the namespace with most of them."""
        waiting = [one.pod for one in self._waiting.values()]
        [(namespace, _)] = Counter(pod.namespace for pod in waiting).most_common(1)
        [(job, _)] = Counter(pod.job for pod in waiting if pod.namespace == namespace).most_common(1)
        mine = (uid for uid, one in self._waiting.items() if (one.pod.namespace, one.pod.job) == (namespace, job))
        del self._waiting[max(mine, key=lambda uid: self._waiting[uid].at)]

    def _take(self, source: Source, *, now: datetime) -> None:
        """Opens incidents for the first failures of each protected job, then orders its restart."""
        for uid, one in list(self._waiting.items()):
            if now - one.at >= failures.RECENT:
                del self._waiting[uid]
        first: dict[str, list[failures.FailedContainer]] = {}
        for one in sorted(self._waiting.values(), key=lambda it: it.at):
            try:
                job = self._protected(one.pod, now=now)
            except port.Unavailable:
                raise
            except port.KubeError as error:  # about this job only; tried again as long as its failure is recent
                self._refused = error
                continue
            if job is None:
                self._settle([one], now=now)
            else:
                of_job = first.setdefault(f"{job.kind} {job}", [])
                of_job.append(failures.failed(job, one.pod, one.failure, one.at))
        kept = failures.within_bounds(self._cluster, [one for of_job in first.values() for one in of_job])
        if kept:
            accusing = self._first(kept, now=now)
            accused = [_accusation(one, before) for one, before in accusing if before]
            take(source, ObservationBatch(observations=(*map(_observation, kept), *accused)), now=now)
            failures.keep(self._cluster, kept, first={one.key for one, _ in accusing}, now=now)
        for of_job in first.values():
            if failures.restart(self._cluster, of_job[0], now=now):
                self._settle([self._waiting[one.pod.uid] for one in of_job], now=now)

    def _first(
        self, kept: Sequence[failures.FailedContainer], *, now: datetime
    ) -> list[tuple[failures.FailedContainer, list[str]]]:
        """The new failures that say something about their nodes, with the pods that failed there before."""
        kube = fleet.connect(self._cluster)
        found = []
        for one in failures.not_stored(self._cluster, kept):
            try:
                pods = training_jobs.pods_of(kube, one.job)
            except port.Unavailable:
                raise
            except port.KubeError as error:
                self._refused = error
                continue
            if failures.is_first(one, pods, now=now):
                found.append((one, failures.firsts_before(self._cluster, one, now=now)))
        return found

    def _settle(self, seen: Sequence[_Seen], *, now: datetime) -> None:
        for one in seen:
            self._waiting.pop(one.pod.uid, None)
            self._settled[one.pod.uid, one.at] = now
        old = [key for key, at in self._settled.items() if now - at >= 2 * failures.RECENT]
        for key in old:
            del self._settled[key]

    def _protected(self, pod: port.Pod, *, now: datetime) -> training_jobs.Job | None:
        """The pod's job if its owner consents to a restart and its controller creates the pods again."""
        named = (f"{label}={pod.labels.get(label, '')}" for label in port.JOB_LABELS)
        key = pod.namespace, pod.owner_kind, pod.owner_api, pod.owner_name, pod.owner_uid, *named
        at, job = self._jobs.get(key, (None, None))
        if at is None or now - at >= CONSENT_CACHED_FOR:
            try:
                job = training_jobs.of_pod(fleet.connect(self._cluster), pod)
            except port.Unavailable:
                raise
            except port.KubeError as error:
                job = error
            for old in [other for other, (then, _) in self._jobs.items() if now - then >= CONSENT_CACHED_FOR]:
                del self._jobs[old]
            self._jobs[key] = now, job
        if isinstance(job, port.KubeError):
            raise job
        if job is None or not job.protected or training_jobs.is_never_restarted(job, [pod]):
            return None
        return job


def _observation(one: failures.FailedContainer) -> Observation:
    return Observation(
        path=f"{one.pod.namespace}/{one.pod.name}",
        key=one.key,
        node=one.pod.node,
        kind="pod",
        code=PodFailure.CODE,
        message=one.text,
        weight=Weight.PROGRAM,  # an exit code alone proves no fault of the node
        seen_at=one.at,
    )


def _accusation(one: failures.FailedContainer, before: Sequence[str]) -> Observation:
    """A node on which attempts of one job fail first. If it is always the same pod, another node may not help."""
    same_pod = all(pod == one.pod.name for pod in before)
    elsewhere = f"exclude for {one.job.kind} {one.job}: nodeAffinity kubernetes.io/hostname NotIn [{one.pod.node}]"
    attempts = len(before) + 1
    return Observation(
        path=f"{one.pod.namespace}/{one.pod.name}",
        key=f"{one.key} first",
        node=one.pod.node,
        kind="pod",
        code=PodFailure.FAILS_FIRST,
        message=f"{one.job.kind} {one.job}: {attempts} attempts failed first on {one.pod.node}; {one.text}"[:1024],
        weight=Weight.PROGRAM,  # a program chooses where and when it fails, so this proves no fault of the node
        advice="" if same_pod else elsewhere,
        seen_at=one.at,
    )
