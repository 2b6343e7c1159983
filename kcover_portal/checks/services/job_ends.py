"""Checks of a training job's nodes after it has ended, where its owner asks for them with an annotation.

A job is watched as a row, because its pods and often its object are gone once it has ended. The row moves from one
state to the next by a conditional update, so each job gets at most one run, however many workers look. Nothing is
watched where the mode lets the portal do nothing.
"""

import functools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from django.db import transaction

from kcover import reasons
from kcover.validation import profiles
from kcover.values import shares
from kcover_portal.checks.models import CheckRun, WatchedJob
from kcover_portal.checks.services import eligibility, runs, validation_profiles
from kcover_portal.checks.services.deep_checks import BATCHES
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.runtime.services import retention
from kcover_portal.workloads import training_jobs

log = logging.getLogger(__name__)

ANNOTATION: Final = "kcover.io/check-after"  # or a label
LOOK_EVERY: Final = 60  # seconds
MAX_JOB_AGE_UNSEEN: Final = timedelta(seconds=3 * LOOK_EVERY)  # a job that ended between two looks is not older
MAX_WATCHED: Final = 500  # jobs of a cluster
MAX_WATCHED_OF_NAMESPACE: Final = 50  # jobs that never end must not take the places of other namespaces
MAX_READ: Final = 50  # jobs of which one look reads the pods, of each kind of work
MAX_NODES: Final = 256  # of one job
MAX_RUNS: Final = 5  # of a cluster at one time; of runs.MAX_RUNS
MAX_RUNS_OF_NAMESPACE: Final = 20  # within PERIOD; anybody who may annotate jobs can ask for them
PERIOD: Final = timedelta(hours=1)
MAX_WAIT_FOR_ROOM: Final = timedelta(hours=1)  # a later result says little about the job's end

State = WatchedJob.State


MAX_LEVEL: Final = 2  # of dcgm; the next one takes a quarter of an hour
# The validation profile by the value of the annotation. Not burn-in: an owner may ask after every job.
PROFILES: Final[Mapping[str, str]] = MappingProxyType(
    {"true": profiles.LIGHT, profiles.LIGHT: profiles.LIGHT, profiles.FULL: profiles.FULL}
)


def look(cluster: Cluster, *, now: datetime) -> None:
    """Watches the jobs that ask for checks, and begins the checks of those that have ended.

    Raises port.KubeError. The checks of jobs whose ends were seen before begin all the same.
    """
    if fleet.mode_now(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
        WatchedJob.objects.filter(cluster=cluster, state__in=(State.WATCHED, State.ENDED)).delete()
        return
    problem: port.KubeError | None = None
    try:
        _Look(cluster, now=now).watch()
    except port.KubeError as error:
        problem = error
    _begin_runs(cluster, now=now)
    if problem is not None:
        raise problem


def prune(*, now: datetime) -> None:
    """Deletes jobs that ended long ago."""
    WatchedJob.objects.filter(ended_at__lt=retention.before(WatchedJob, now=now)).delete()


class _Look:
    """One look at the jobs of a cluster."""

    def __init__(self, cluster: Cluster, *, now: datetime) -> None:
        self._cluster, self._now = cluster, now
        self._kube = fleet.connect(cluster)
        self._pods_in = functools.cache(lambda namespace: self._kube.list_pods(namespace=namespace))
        self._by_uid = {one.uid: one for one in self._kube.workloads()}
        self._asking = self._tops()
        known = WatchedJob.objects.filter(cluster=cluster, uid__in=self._asking)
        self._known = set(known.values_list("uid", flat=True))

    def _tops(self) -> dict[str, str]:
        """The profile by the uid of each job that asks for checks; a part of a job asks for the whole job."""
        by_place = {(one.namespace, one.kind, one.name): one for one in self._by_uid.values()}
        found: dict[str, str] = {}
        for one in self._by_uid.values():
            wanted = one.annotations.get(ANNOTATION) or one.labels.get(ANNOTATION, "")
            if wanted not in PROFILES:
                continue
            top = one
            for _ in range(training_jobs.MAX_OWNERS):
                above = by_place.get((top.namespace, training_jobs.kind_of_owner(top), top.owner_name))
                if above is None:
                    break
                top = above
            if top is one or top.uid not in found:  # the job's own annotation counts more than its part's
                found[top.uid] = wanted
        return found

    def watch(self) -> None:
        """Stores new jobs, the nodes of those that run, and the ends of others."""
        running = [self._by_uid[uid] for uid in self._asking if not _is_over(self._by_uid[uid])]
        rows = {row.uid: row for row in WatchedJob.objects.filter(cluster=self._cluster, state=State.WATCHED)}
        turn, room = int(self._now.timestamp()) // LOOK_EVERY, max(0, MAX_WATCHED - len(rows))
        new = self._within_shares([one for one in running if one.uid not in self._known], rows.values())
        old = [one for one in running if one.uid in rows]
        for jobs, most in ((new, min(room, MAX_READ)), (old, MAX_READ)):
            for one in shares.rotated(jobs, lambda job: job.namespace, most=most, turn=turn) if most else ():
                self._store(one, rows.get(one.uid), State.WATCHED)
        if len(new) > room:
            log.info("cluster %s: %s jobs ask for checks, %s more may", self._cluster.name, len(new), room)
        self._end([row for row in rows.values() if self._may_be_over(row)], turn=turn)
        over = [one for uid in self._asking if _is_over(one := self._by_uid[uid]) and uid not in self._known]
        oldest = self._now - MAX_JOB_AGE_UNSEEN
        unseen = [one for one in over if one.created_at is not None and one.created_at > oldest]
        for one in shares.rotated(unseen, lambda job: job.namespace, most=MAX_READ, turn=turn):
            self._store(one, None, State.ENDED)

    def _within_shares(self, new: Sequence[port.Workload], rows: Iterable[WatchedJob]) -> list[port.Workload]:
        """The new jobs for which their namespaces have room."""
        count = Counter(row.namespace for row in rows)
        found = []
        for one in new:
            count[one.namespace] += 1
            if count[one.namespace] <= MAX_WATCHED_OF_NAMESPACE:
                found.append(one)
        full = sorted(name for name, jobs in count.items() if jobs > MAX_WATCHED_OF_NAMESPACE)
        if full:
            limit = f"at most {MAX_WATCHED_OF_NAMESPACE} jobs of a namespace are watched"
            log.info("cluster %s: %s; more ask for checks in: %s", self._cluster.name, limit, ", ".join(full)[:1000])
        return found

    def _may_be_over(self, row: WatchedJob) -> bool:
        """Returns whether the job is over or not listed. Deletes the row of a job that no longer asks for checks.

        At its end a job may lose the part that asked, such as the RayCluster of a RayJob.
        """
        job = self._by_uid.get(row.uid)
        if job is None or _is_over(job):
            return True
        if row.uid not in self._asking:
            row.delete()
        return False

    def _end(self, rows: Sequence[WatchedJob], *, turn: int) -> None:
        """Notes that watched jobs are over."""
        for row in shares.rotated(rows, lambda row: row.namespace, most=MAX_READ, turn=turn):
            job = self._by_uid.get(row.uid)
            if job is not None:
                self._store(job, row, State.ENDED)
            elif self._is_gone(row):
                self._move(row, nodes=row.nodes)

    def _store(self, job: port.Workload, row: WatchedJob | None, state: str) -> None:
        before = row.nodes if row is not None else []
        nodes = sorted({*before, *self._nodes(job)})
        if len(nodes) > MAX_NODES:
            log.info("job %s/%s: only %s of its nodes are checked", job.namespace, job.name, MAX_NODES)
            nodes = nodes[:MAX_NODES]
        if row is None:
            place = {"namespace": job.namespace, "kind": job.kind, "name": job.name, "seen_at": self._now}
            given = {**place, "profile": self._asking[job.uid], "nodes": nodes, "state": state}
            ended_at = self._now if state == State.ENDED else None
            WatchedJob.objects.get_or_create(
                cluster=self._cluster, uid=job.uid, defaults={**given, "ended_at": ended_at}
            )
        elif state == State.ENDED:
            self._move(row, nodes=nodes)
        elif nodes != row.nodes or self._asking[job.uid] != row.profile:
            WatchedJob.objects.filter(pk=row.pk).update(nodes=nodes, profile=self._asking[job.uid])

    def _nodes(self, workload: port.Workload) -> set[str]:
        """The nodes on which the job's pods held GPUs. A pod that only names a node proves nothing about it."""
        job = training_jobs.of_workload(workload)
        try:
            if job.label:
                pods = training_jobs.pods_of(self._kube, job)
            else:
                pods = training_jobs.controlled(job, self._pods_in(job.namespace))
        except port.Unavailable:
            raise
        except port.KubeError as error:
            log.info("cluster %s: the pods of %s are not read: %s", self._cluster.name, job.name, error)
            return set()
        return {pod.node for pod in pods if pod.node and pod.gpus and pod.phase != "Pending"}

    def _move(self, row: WatchedJob, *, nodes: Sequence[str]) -> None:
        mine = WatchedJob.objects.filter(pk=row.pk, state=State.WATCHED)
        mine.update(state=State.ENDED, ended_at=self._now, nodes=nodes)

    def _is_gone(self, row: WatchedJob) -> bool:
        """Returns whether nobody has the job any more; a list may lack what began to be served a moment ago."""
        try:
            return self._kube.workload(row.namespace, row.kind, row.name).uid != row.uid
        except port.NotFound:
            return True


def _is_over(job: port.Workload) -> bool:
    return job.phase in (port.Phase.SUCCEEDED, port.Phase.FAILED)


def _begin_runs(cluster: Cluster, *, now: datetime) -> None:
    active = CheckRun.objects.filter(cluster=cluster, state=CheckRun.State.RUNNING, after_job__isnull=False)
    room = MAX_RUNS - active.count()
    for row in WatchedJob.objects.filter(cluster=cluster, state=State.ENDED).order_by("ended_at", "pk"):
        if room <= 0:
            _wait(row, reasons.of("check_runs_full", count=MAX_RUNS, cluster=cluster.name), now=now)
        elif _begin(row, now=now):
            room -= 1


def _begin(row: WatchedJob, *, now: datetime) -> bool:
    """Begins the run for a job that ended. Returns False if none began; the next look tries again if it may."""
    found = Node.objects.filter(cluster=row.cluster, name__in=row.nodes, in_cluster=True, gpus__gt=0).order_by("name")
    skipped = eligibility.why_skipped(row.cluster, found, now=now)
    nodes = [node for node in found if node.name not in skipped]
    lately = WatchedJob.objects.filter(cluster=row.cluster, namespace=row.namespace, state=State.REQUESTED)
    if not nodes:
        _decline(row, next(iter(skipped.values()), reasons.of("check_after_without_nodes")))
    elif lately.filter(ended_at__gt=now - PERIOD).count() >= MAX_RUNS_OF_NAMESPACE:
        _decline(row, reasons.of("check_after_too_many", namespace=row.namespace, count=MAX_RUNS_OF_NAMESPACE))
    else:
        try:
            return _ask(row, nodes, now=now)
        except runs.CheckRunRefused as refused:
            _wait(row, refused.reason, now=now)
    return False


def _ask(row: WatchedJob, nodes: Sequence[Node], *, now: datetime) -> bool:
    name = PROFILES[row.profile]
    profile = validation_profiles.named(name)
    with transaction.atomic():
        if not WatchedJob.objects.filter(pk=row.pk, state=State.ENDED).update(state=State.REQUESTED):
            return False
        run = runs.begin(
            row.cluster,
            nodes,
            checks=profile.names,
            level=min(profile.level, MAX_LEVEL),
            limits=profile.limits,
            batch=-(-len(nodes) // BATCHES) if name == profiles.FULL else 0,
            actor=eligibility.actor_of_job(row.namespace, row.name),
            requester=CheckRun.Requester.JOB,
            now=now,
        )
        WatchedJob.objects.filter(pk=row.pk).update(run=run)
    return True


def _wait(row: WatchedJob, why: reasons.Reason, *, now: datetime) -> None:
    if row.ended_at is not None and now - row.ended_at >= MAX_WAIT_FOR_ROOM:
        _decline(row, why)


def _decline(row: WatchedJob, why: reasons.Reason) -> None:
    log.info("job %s/%s: no checks after its end: %s", row.namespace, row.name, why)
    WatchedJob.objects.filter(pk=row.pk, state=State.ENDED).update(state=State.DECLINED, because=why.to_json())
