"""The nodes that a restart by an order keeps its job off, because attempts of the job failed first there."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db.models import Count, Max, Q, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import PodFailure
from kcover_portal.kube import node_exclusion, port
from kcover_portal.workloads import training_jobs

MAX_EXCLUDED: Final = 2  # nodes of one job over all its restarts: a job that fails everywhere must still find room


def to_exclude(cluster: Cluster, job: training_jobs.Job, workload: port.Workload, *, now: datetime) -> list[str]:
    """The hostname labels of the nodes to exclude beside those that the job excludes already, by name.

    A node counts if attempts of the job failed first there within WITNESS_WINDOW, not always the same pod, while its
    incident is open. None for kinds without a template that may be changed, and for jobs in a queue of Kueue, which may
    stop a job whose template is not the one that it admitted.
    """
    if not (job.known.replicas and job.uid) or job.uid != workload.uid or workload.queue:
        return []
    hosts = _hosts_of(cluster, _accused(cluster, job, now=now))
    room = max(0, MAX_EXCLUDED - len(workload.excluded_hosts))
    return sorted([host for host in hosts if host not in workload.excluded_hosts][:room])


def _hosts_of(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """The hostname labels of the nodes, in order. A node states its own: one that others have, too, is left out."""
    label = Cast(KeyTextTransform(node_exclusion.HOSTNAME, "labels"), TextField())
    rows = Node.objects.filter(cluster=cluster).annotate(host=label)
    stated = dict(rows.filter(name__in=names).values_list("name", "host"))
    wanted = {name: stated.get(name) or name for name in names}
    others = rows.filter(in_cluster=True).filter(Q(host__in=wanted.values()) | Q(name__in=wanted.values()))
    owners = defaultdict[str, set[str]](set)
    for name, host in others.values_list("name", "host"):
        owners[name].add(name)
        owners[host or name].add(name)
    return [host for name, host in wanted.items() if owners[host] <= {name}]


def _accused(cluster: Cluster, job: training_jobs.Job, *, now: datetime) -> list[str]:
    """The nodes by their latest failure, the latest first."""
    accusations = Incident.objects.filter(cluster=cluster, kind="pod", code=PodFailure.FAILS_FIRST, state="open")
    rows = PodFailure.objects.filter(
        cluster=cluster,
        namespace=job.namespace,
        kind=job.kind,
        name=job.name,
        first=True,
        seen_at__gt=now - PodFailure.WITNESS_WINDOW,
        node__in=accusations.values("node__name"),
    )
    counted = rows.order_by().values("node")
    counted = counted.annotate(n=Count("pod_uid", distinct=True), names=Count("pod", distinct=True), last=Max("pk"))
    return list(counted.filter(n__gt=1, names__gt=1).order_by("-last").values_list("node", flat=True))
