"""What the causes of needs hit: the GPUs of their nodes, and the training jobs there."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q

from kcover.needs import Need
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import JobSeen
from kcover_portal.needs.queries import Entry

NEAR: Final = timedelta(hours=1)  # between the beginning of a need and the look that found the jobs of its nodes
_OF_NODES: Final = (Need.INCIDENT, Need.RESCUE, Need.APPROVAL)


@dataclass(frozen=True, slots=True)
class Hit:
    """``gpus``: of all its nodes. ``jobs``: those that a look at the cluster found there. ``all_known``: every node was
    looked at, so there are no more; the storm guard looks, if another node of the cluster is faulty.
    """

    gpus: int
    jobs: int
    all_known: bool


def of(entries: Sequence[Entry]) -> dict[str, Hit]:
    """What each entry hits, by its id; none for entries that are not about nodes. At most two queries."""
    storms = [entry for entry in entries if entry.kind == Need.STORM and entry.nodes]
    nodes: dict[str, dict[int, int]] = _of_storms(storms) if storms else {}
    for entry in entries:
        if entry.kind in _OF_NODES:
            nodes[entry.id] = {item.place.pk: item.place.gpus for item in entry.items if item.place is not None}
    seen = _jobs(nodes)
    hits = {}
    for entry in entries:
        gpus = nodes.get(entry.id)
        if not gpus:
            continue
        looks = [look for node in gpus if (look := seen.get(node)) is not None and _is_near(look, entry)]
        jobs = {job for look in looks for job in look.jobs}
        hits[entry.id] = Hit(sum(gpus.values()), len(jobs), all_known=len(looks) == len(gpus))
    return hits


def _of_storms(storms: Sequence[Entry]) -> dict[str, dict[int, int]]:
    """The GPUs of the nodes of storms, by the entry's id and the node's key."""
    wanted = Q(pk__in=())
    for entry in storms:
        wanted |= Q(cluster=entry.cluster, name__in=entry.nodes)
    rows = {
        (cluster, name): (pk, gpus)
        for pk, cluster, name, gpus in Node.objects.filter(wanted).values_list("pk", "cluster", "name", "gpus")
    }
    return {
        entry.id: dict(rows[entry.cluster.pk, name] for name in entry.nodes if (entry.cluster.pk, name) in rows)
        for entry in storms
    }


@dataclass(slots=True)
class _Look:
    """The newest look at a node's pods, and the jobs that it found."""

    at: datetime
    jobs: list[str] = field(default_factory=list)


def _jobs(nodes: Mapping[str, Mapping[int, int]]) -> dict[int, _Look]:
    wanted = {node for of_entry in nodes.values() for node in of_entry}
    if not wanted:
        return {}
    rows: dict[int, list[tuple[str, datetime]]] = defaultdict(list)
    for node, job, at in JobSeen.objects.filter(node__in=wanted).values_list("node", "job", "at"):
        rows[node].append((job, at))
    looks = {node: _Look(at) for node, found in rows.items() for job, at in found if not job}
    for node, look in looks.items():
        look.jobs = [job for job, at in rows[node] if job and at >= look.at]
    return looks


def _is_near(look: _Look, entry: Entry) -> bool:
    """Returns whether the look is about this need: an older one found the jobs of another day."""
    if entry.since is None:
        return False
    # A rescue that ended takes its need's time from its end, and the jobs were there when it began.
    begun: list[datetime] = [item.row.opened_at for item in entry.items if entry.kind == Need.RESCUE]
    return look.at >= min([entry.since, *begun]) - NEAR
