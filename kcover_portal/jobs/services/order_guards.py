"""The guards of orders about jobs: the storm and rate guards of the cluster, and what is off limits on a failed node.

Isolations and floors do not apply, because an order takes no node out of service.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from kcover.actions import restart_jobs
from kcover.decisions import guards
from kcover.decisions.guards import settings as guard_settings
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import PodFailure
from kcover_portal.rescue.queries import counts, symptoms

SHARED = ("storm", "rate")  # guards about the cluster as a whole
NOTHING = guards.Verdict(held=(), passed=())


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSubject:
    """What the guards are asked about: the nodes of a job, and the incident of its failed pod, if there is one."""

    cluster: Cluster
    namespace: str
    nodes: Collection[str]
    incident: Incident | None = None


def evaluate(about: GuardSubject, *, now: datetime) -> guards.Verdict:
    """The verdict on a restart now. Without GPU nodes nothing is held: limits are counted over them."""
    node = _node(about)
    if node is None:
        return NOTHING
    settings = replace(fleet.guards_of(node.cluster), floor=guard_settings.Floor())
    facts = counts.facts(node, settings=settings, now=now, destructive=True)
    if facts.eligible < 1:
        return NOTHING
    if settings.storm.enabled and about.incident is not None:
        facts = replace(facts, symptoms=(_failed_jobs(node, about.namespace, since=now - settings.storm.window),))
    verdict = guards.destructive(settings, facts, act=restart_jobs.SPEC.name, now=now)
    if about.incident is not None:
        return verdict
    # The node of no failure is at hand: its own exclusion or maintenance says nothing about the job.
    held = tuple(reason for reason in verdict.held if guards.guard_of(reason.code) in SHARED)
    return replace(verdict, held=held)


def _node(about: GuardSubject) -> Node | None:
    """The node of the failed pod, else any node of the job: the counts of the cluster are what matters then."""
    known = Node.objects.select_related("cluster").filter(cluster=about.cluster, in_cluster=True)
    if about.incident is not None and about.incident.node_id is not None:
        return known.filter(pk=about.incident.node_id).first()
    return known.filter(name__in=list(about.nodes)).order_by("name").first()


def _failed_jobs(node: Node, namespace: str, *, since: datetime) -> guards.Symptom:
    """On how many nodes pods failed lately: of different namespaces, or of different jobs of this namespace.

    One job that keeps failing is not a storm, and the jobs of one namespace are not a storm for the others.
    """
    rows = PodFailure.objects.filter(cluster=node.cluster_id, seen_at__gte=since).order_by()
    mine = rows.filter(namespace=namespace)
    own = min(mine.values("kind", "name").distinct().count(), mine.values("node").distinct().count())
    shared = min(rows.values("namespace").distinct().count(), rows.values("node").distinct().count())
    failed = guards.Symptom(trait="code", kind="pod", value=PodFailure.CODE, nodes=max(own, shared))
    return replace(failed, nodes=max(failed.nodes, len(symptoms.storm_scope(node, failed))))
