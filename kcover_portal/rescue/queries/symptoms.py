"""The symptoms of a storm: properties that a fault shares with faults of other nodes (invariant 33).

Only nodes that the cluster has are counted, so that invented nodes make no storm. A node that lost its GPUs counts,
because that may be the symptom.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Exists, QuerySet

from kcover.decisions import guards
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.rescue.queries.numbers import number_of

STORM = "storm"  # the kind of an incident that covers many nodes
# Labels that name a node's leaf switch: NVIDIA topograph's, then our own.
SWITCH_LABELS = ("network.topology.nvidia.com/leaf", "kcover.io/switch")

Code = tuple[str, str]  # kind and code of a fault


def expressions(cluster: int, *, since: datetime, codes: Collection[Code]) -> dict[str, Any]:
    """The data about the cluster that ``Symptoms`` needs, for one statement of the caller.

    ``since``: faults of other nodes count if they were seen since then.
    """
    versions = Agent.objects.filter(node__cluster=cluster, node__in_cluster=True).exclude(version="")
    with_code = {
        f"code_{index}": number_of(_recent(cluster, since=since).filter(kind=kind, code=code), "node")
        for index, (kind, code) in enumerate(codes)
    }
    return {
        "storms": Exists(_open_storms(cluster)),
        "versions": number_of(versions, "version"),
        "jobs": Exists(JobSeen.objects.filter(node__cluster=cluster, at__gte=since).exclude(job="")),
        **with_code,
    }


class Symptoms:
    """The symptoms of faults of one cluster. Counts that several faults share are taken once.

    ``nodes``: the nodes whose faults are asked about. ``known``: the result of ``expressions``.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        since: datetime,
        nodes: Collection[Node],
        codes: Iterable[Code],
        known: Mapping[str, Any],
    ) -> None:
        self._cluster, self._since, self._nodes, self._known = cluster, since, nodes, known
        self._counted = {("code", f"{kind} {code}"): known[f"code_{index}"] for index, (kind, code) in enumerate(codes)}

    def of(self, node: Node, kind: str, code: str) -> tuple[guards.Symptom, ...]:
        """The symptoms of a fault and on how many nodes each was seen.

        An open storm counts with all its nodes until a person closes it. Time alone does not end it.
        """
        found = []
        for trait, value in self._traits(node, kind, code):
            scope = self._storms.get(storm_code(trait, value), [])
            in_storm = len(scope) if node.name in scope else 0
            found.append(guards.Symptom(trait=trait, value=value, nodes=max(self._count(node, trait, value), in_storm)))
        return tuple(found)

    def _traits(self, node: Node, kind: str, code: str) -> Iterable[tuple[str, str]]:
        """The traits and values of the fault that a common cause would leave on other nodes too."""
        yield "code", f"{kind} {code}"
        version = self._versions.get(node.pk)
        if version:
            yield "agent_version", version
        key = _switch_label(node)
        if key is not None:
            yield "switch", node.labels[key]
        for job in self._jobs.get(node.pk, ()):
            yield "job", job

    def _count(self, node: Node, trait: str, value: str) -> int:
        """The number of nodes that show the symptom. A value of one label is not that of another."""
        if (trait, value) in self._counted:
            return int(self._counted[trait, value])
        rows = _sharing(node, trait, value, since=self._since)
        number = rows.values("node").distinct().count()
        if trait != "switch":
            self._counted[trait, value] = number
        return number

    @cached_property
    def _storms(self) -> dict[str, list[str]]:
        if not self._known["storms"]:
            return {}
        return dict(_open_storms(self._cluster.pk).values_list("code", "scope"))

    @cached_property
    def _versions(self) -> dict[int, str]:
        """The agent's version by node, if the cluster has several versions."""
        if self._known["versions"] < 2:
            return {}
        return dict(Agent.objects.filter(node__in=self._nodes).values_list("node", "version"))

    @cached_property
    def _jobs(self) -> dict[int, list[str]]:
        """The jobs that had pods on each node recently."""
        if not self._known["jobs"]:
            return {}
        found: dict[int, list[str]] = {}
        rows = JobSeen.objects.filter(node__in=self._nodes, at__gte=self._since).exclude(job="")
        for node, job in rows.values_list("node", "job"):
            found.setdefault(node, []).append(job)
        return found


def storm_nodes(node: Node, symptom: guards.Symptom, *, since: datetime) -> list[str]:
    """The names of the nodes that show the symptom of this node's fault."""
    rows = _sharing(node, symptom.trait, symptom.value, since=since)
    return sorted(set(rows.values_list("node__name", flat=True)))


def storm_code(trait: str, value: str) -> str:
    """The code of a storm's incident."""
    return f"{trait} {value}"[:64]


def _open_storms(cluster: int) -> QuerySet[Incident]:
    return Incident.objects.filter(cluster=cluster, node=None, kind=STORM, state="open")


def _recent(cluster: int, *, since: datetime) -> QuerySet[Incident]:
    """Recent incidents of the cluster's nodes."""
    return Incident.objects.filter(cluster=cluster, node__in_cluster=True, last_at__gte=since)


def _sharing(node: Node, trait: str, value: str, *, since: datetime) -> QuerySet[Incident]:
    """Recent incidents of the node's cluster that show this trait."""
    recent = _recent(node.cluster_id, since=since)
    if trait == "code":
        kind, _, code = value.partition(" ")
        return recent.filter(kind=kind, code=code)
    faults = recent.filter(is_user_fault=False)
    if trait == "agent_version":
        return faults.filter(node__agent__version=value)
    if trait == "switch":
        return faults.filter(**{f"node__labels__{_switch_label(node)}": value})
    on_nodes = JobSeen.objects.filter(job=value, at__gte=since, node__cluster=node.cluster_id)
    return faults.filter(node__in=on_nodes.values("node"))


def _switch_label(node: Node) -> str | None:
    """The key of the label that names the node's leaf switch."""
    own = node.cluster.topology.get("leaf")
    return next((key for key in ((own,) if own else SWITCH_LABELS) if key in node.labels), None)
