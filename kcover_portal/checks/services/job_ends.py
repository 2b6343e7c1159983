"""Checks of a training job's nodes after it has ended, where its owner asks for them with an annotation.

A job is watched as a row, because its pods and often its object are gone once it has ended. The row moves from one
state to the next by a conditional update, so an end begins one run, whoever looks and however often. Nothing is
watched where the mode lets the portal do nothing.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from django.db import transaction

from kcover import reasons, shares
from kcover_portal.checks.models import CheckRun, WatchedJob
from kcover_portal.checks.services import eligibility, runs
from kcover_portal.checks.services.deep_checks import BATCHES
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port, training_jobs

log = logging.getLogger(__name__)

ANNOTATION: Final = "kcover.io/check-after"  # or a label
LOOK_EVERY: Final = 60  # seconds
YOUNG: Final = timedelta(seconds=3 * LOOK_EVERY)  # a job that ended between two looks is not older
MOST_WATCHED: Final = 500  # jobs of a cluster
MOST_READ: Final = 50  # jobs of which one look reads the pods
MOST_NODES: Final = 256  # of one job
MOST_RUNS: Final = 5  # of a cluster at one time; of runs.MAX_RUNS
MOST_OF_NAMESPACE: Final = 20  # runs within PERIOD; anybody who may annotate jobs can ask for them
PERIOD: Final = timedelta(hours=1)
PATIENCE: Final = timedelta(hours=1)  # a later result says little about the job's end

State = WatchedJob.State


@dataclass(frozen=True, slots=True)
class Profile:
    """The checks that a value of the annotation asks for. ``level``: of dcgm."""

    checks: tuple[str, ...]
    level: int = 1


# Nothing longer than half an hour: an owner may ask after every job.
LIGHT: Final = Profile(("remapped", "gpupower", "pciebw", "dcgm"))
FULL: Final = Profile((*LIGHT.checks, "gpumem"), level=2)
PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({"true": LIGHT, "light": LIGHT, "full": FULL})


def look(cluster: Cluster, *, now: datetime) -> None:
    """Watches the jobs that ask for checks, and begins the checks of those that have ended. Raises port.KubeError."""
    if fleet.mode_now(cluster)[0] in fleet.SILENT:
        WatchedJob.objects.filter(cluster=cluster, state__in=(State.WATCHED, State.ENDED)).delete()
        return
    _Look(cluster, now=now).watch()
    for row in WatchedJob.objects.filter(cluster=cluster, state=State.ENDED).order_by("ended_at", "pk"):
        _begin(row, now=now)


def prune(*, before: datetime) -> None:
    """Deletes jobs that ended before that time."""
    WatchedJob.objects.filter(ended_at__lt=before).delete()


class _Look:
    """One look at the jobs of a cluster."""

    def __init__(self, cluster: Cluster, *, now: datetime) -> None:
        self._cluster, self._now = cluster, now
        self._kube = fleet.connect(cluster)
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
            for _ in range(training_jobs.MOST_OWNERS):
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
        turn, room = int(self._now.timestamp()) // LOOK_EVERY, max(0, MOST_WATCHED - len(rows))
        new = [one for one in running if one.uid not in self._known]
        old = [one for one in running if one.uid in rows]
        for jobs, most in ((new, min(room, MOST_READ)), (old, MOST_READ)):
            for one in shares.rotated(jobs, lambda job: job.namespace, most=most, turn=turn) if most else ():
                self._store(one, rows.get(one.uid), State.WATCHED)
        for row in rows.values():
            self._end(row)
        over = [one for uid in self._asking if _is_over(one := self._by_uid[uid]) and uid not in self._known]
        young = [one for one in over if one.created_at is not None and one.created_at > self._now - YOUNG]
        for one in shares.rotated(young, lambda job: job.namespace, most=MOST_READ, turn=turn):
            self._store(one, None, State.ENDED)

    def _end(self, row: WatchedJob) -> None:
        """Notes that a watched job is over, or asks for nothing any more."""
        job = self._by_uid.get(row.uid)
        if job is None:
            if self._is_gone(row):
                self._move(row, nodes=row.nodes)
        elif row.uid not in self._asking:
            row.delete()
        elif _is_over(job):
            self._store(job, row, State.ENDED)

    def _store(self, job: port.Workload, row: WatchedJob | None, state: str) -> None:
        try:
            pods = training_jobs.pods_of(self._kube, training_jobs.of_workload(job))
        except port.Unavailable:
            raise
        except port.KubeError as error:
            log.info("cluster %s: the pods of %s are not read: %s", self._cluster.name, job.name, error)
            pods = []
        before = row.nodes if row is not None else []
        nodes = sorted({*before, *(pod.node for pod in pods if pod.node)})[:MOST_NODES]
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


def _begin(row: WatchedJob, *, now: datetime) -> None:
    """Begins the run for a job that ended; leaves it for the next look while there is no room."""
    found = Node.objects.filter(cluster=row.cluster, name__in=row.nodes, in_cluster=True, gpus__gt=0).order_by("name")
    skipped = eligibility.why_skipped(row.cluster, found, now=now)
    nodes = [node for node in found if node.name not in skipped]
    lately = WatchedJob.objects.filter(cluster=row.cluster, namespace=row.namespace, state=State.ASKED)
    if not nodes:
        _decline(row, next(iter(skipped.values()), reasons.of("check_after_without_nodes")))
    elif lately.filter(ended_at__gt=now - PERIOD).count() >= MOST_OF_NAMESPACE:
        _decline(row, reasons.of("check_after_too_many", namespace=row.namespace, count=MOST_OF_NAMESPACE))
    elif _is_full(row.cluster):
        _wait(row, reasons.of("check_runs_full", count=MOST_RUNS, cluster=row.cluster.name), now=now)
    else:
        try:
            _ask(row, nodes, now=now)
        except runs.CheckRunRefused as refused:
            _wait(row, refused.reason, now=now)


def _is_full(cluster: Cluster) -> bool:
    rows = CheckRun.objects.filter(cluster=cluster, state=CheckRun.State.RUNNING, after_job__isnull=False)
    return rows.count() >= MOST_RUNS


def _ask(row: WatchedJob, nodes: Sequence[Node], *, now: datetime) -> None:
    profile = PROFILES[row.profile]
    with transaction.atomic():
        if not WatchedJob.objects.filter(pk=row.pk, state=State.ENDED).update(state=State.ASKED):
            return
        run = runs.begin(
            row.cluster,
            nodes,
            checks=profile.checks,
            level=profile.level,
            batch=-(-len(nodes) // BATCHES) if profile is FULL else 0,
            actor=eligibility.actor_of_job(row.namespace, row.name),
            requester=CheckRun.Requester.JOB,
            now=now,
        )
        WatchedJob.objects.filter(pk=row.pk).update(run=run)


def _wait(row: WatchedJob, why: reasons.Reason, *, now: datetime) -> None:
    if row.ended_at is not None and now - row.ended_at >= PATIENCE:
        _decline(row, why)


def _decline(row: WatchedJob, why: reasons.Reason) -> None:
    log.info("job %s/%s: no checks after its end: %s", row.namespace, row.name, why)
    WatchedJob.objects.filter(pk=row.pk, state=State.ENDED).update(state=State.DECLINED, because=why.to_json())
