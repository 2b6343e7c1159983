"""Judges the performance of jobs: one row a job and source, read and written once a reading."""

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Final, TypeAlias

from kcover.jobs import performance
from kcover.jobs.performance import Drop, Limits, Past, Reading
from kcover.sources.job_series import JobSeries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.jobs.models import JobPerformance
from kcover_portal.jobs.queries import JobRun
from kcover_portal.lib import doorbell

log = logging.getLogger(__name__)

MAX_JOBS: Final = 500  # of a source
WRITTEN: Final = ("past", "speed", "slow_since", "slow_node", "seen_at")
Place: TypeAlias = tuple[str, str, str]  # namespace, kind and name of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceChange:
    """A drop that follows a node began or ended."""

    namespace: str
    kind: str
    name: str
    node: str
    opened: bool
    drop: Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceReader:
    """What one source reads. ``asked``: its address and query; other answers cannot be compared with earlier ones.

    ``is_rate``: the values grow with the speed of the job.
    """

    cluster: Cluster
    source: str
    asked: str
    is_rate: bool
    limits: Limits

    def take(self, series: Sequence[JobSeries], runs: Collection[JobRun], *, now: datetime) -> list[PerformanceChange]:
        """Judges the jobs by their values now, as part of the caller's transaction."""
        stored = JobPerformance.objects.filter(cluster=self.cluster, source=self.source)
        rows = {(row.namespace, row.kind, row.name): row for row in stored}
        running = {run.place: run for run in runs}
        hardware = self._hardware(runs)
        changes: list[PerformanceChange] = []
        made: list[JobPerformance] = []
        changed: list[JobPerformance] = []
        slow = {place for place, row in rows.items() if row.slow_since is not None}
        over = slow | {place for place, row in rows.items() if row.past.get("over") and place in running}
        for place, own in _by_job(series, runs).items():
            reading = self._reading(running[place], own, hardware, now=now)
            if reading is None or not (place in rows or self._has_room(rows, running, place, made=made)):
                continue
            row = rows.get(place) or self._new(place, now=now)
            before = Past.from_json(row.past)
            past = performance.judge(before, reading, self.limits, others_slow=bool(over - {place}))
            row.seen_at = now
            changes += _kept(row, before.drop, past)
            (changed if place in rows else made).append(row)
        for place in slow - running.keys():
            row = rows[place]
            past = Past.from_json(row.past)
            changes += _kept(row, past.drop, performance.ended(past))
            changed.append(row)
        JobPerformance.objects.bulk_create(made)
        JobPerformance.objects.bulk_update(changed, WRITTEN, batch_size=50)
        if changes:
            doorbell.publish("job", 0, cluster=self.cluster.name)
        return changes

    def _has_room(
        self, rows: dict[Place, JobPerformance], running: Collection[Place], place: Place, *, made: list[JobPerformance]
    ) -> bool:
        """Returns whether a row may be added. The oldest one of a job that does not run any more makes room.

        If all run, the namespace with the most rows does: one with many jobs takes no place from the others.
        """
        if len(rows) + len(made) < MAX_JOBS:
            return True
        normal = [one for one, row in rows.items() if row.slow_since is None]
        if not (leaving := [one for one in normal if one not in running]):
            count = Counter((*(namespace for namespace, _, _ in rows), *(row.namespace for row in made)))
            largest, most = count.most_common(1)[0]
            if most > count[place[0]] + 1:
                leaving = [one for one in normal if one[0] == largest]
        if not leaving:
            return False
        row = rows.pop(min(leaving, key=lambda one: rows[one].seen_at))
        JobPerformance.objects.filter(pk=row.pk).delete()  # it may have been judged, and keeps its key for the update
        return True

    def _new(self, place: Place, *, now: datetime) -> JobPerformance:
        namespace, kind, name = place
        return JobPerformance(
            cluster=self.cluster, source=self.source, namespace=namespace, kind=kind, name=name, seen_at=now
        )

    def _hardware(self, runs: Iterable[JobRun]) -> dict[str, str]:
        """The pool and the GPU model of each node: a job may be slower on other hardware."""
        names = {node for run in runs for node in run.pods.values()}
        rows = Node.objects.filter(cluster=self.cluster, name__in=names).values_list("name", "pool", "model")
        return {name: f"{pool}/{model}" for name, pool, model in rows}

    def _reading(
        self, run: JobRun, own: Sequence[JobSeries], hardware: Mapping[str, str], *, now: datetime
    ) -> Reading | None:
        """The reading of a job; None if not all of its pods run, or one of its nodes says nothing usable.

        The median of some of the nodes is another one than that of all, and could accuse a node that is well.
        """
        nodes = frozenset(run.pods.values())
        costs: dict[str, list[float]] = {}
        for one in own:
            value = 1 / one.value if self.is_rate and one.value > 0 else one.value
            node = run.pods.get(one.pod, one.node if one.node in nodes else "")
            if performance.is_usable(value):
                costs.setdefault(node, []).append(value)
        by_node = {node: max(values) for node, values in costs.items() if node}
        if not run.is_up or not costs or (by_node and len(by_node) < len(nodes)):
            return None
        count = sum(map(len, costs.values()))  # of a node with more series than before, another one could be slow
        parts = [self.asked, run.version, str(len(nodes)), str(bool(by_node)), str(count)]
        parts += sorted({one.shape for one in own})
        parts += sorted({hardware.get(node, "") for node in nodes})
        return Reading(
            at=now,
            attempt=run.attempt,
            shape=_digest(parts),
            nodes=nodes,
            cost=median(by_node.values() or costs[""]),
            by_node=by_node,
        )


def _by_job(series: Iterable[JobSeries], runs: Iterable[JobRun]) -> dict[Place, list[JobSeries]]:
    """The series of each job: by their pod, else by its name, if one job of the namespace has it."""
    by_pod = {(run.namespace, pod): run.place for run in runs for pod in run.pods}
    named: dict[tuple[str, str], list[Place]] = {}
    for run in runs:
        named.setdefault((run.namespace, run.name), []).append(run.place)
    found: dict[Place, list[JobSeries]] = {}
    for one in series:
        places = named.get((one.namespace, one.job), [])
        place = by_pod.get((one.namespace, one.pod)) or (places[0] if len(places) == 1 else None)
        if place is not None:
            found.setdefault(place, []).append(one)
    return found


def _kept(row: JobPerformance, before: Drop | None, past: Past) -> list[PerformanceChange]:
    """Puts the past into the row. Returns what changed about nodes."""
    drop = past.drop
    row.past = past.to_json()
    row.speed = past.usual / past.cost if past.usual and past.cost else None
    if drop is not None and drop.of_peers and row.speed is not None:
        row.speed = min(row.speed, drop.speed)  # the slowest node sets the pace, and the median hides it
    row.slow_since, row.slow_node = (drop.since, drop.node) if drop else (None, "")
    changed = [(before, False), (drop, True)] if (before.node if before else "") != row.slow_node else []
    return [
        PerformanceChange(namespace=row.namespace, kind=row.kind, name=row.name, node=one.node, opened=opened, drop=one)
        for one, opened in changed
        if one is not None and one.node
    ]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
