"""The symptoms of a storm: properties that a fault shares with faults of other nodes (invariant 33).

Only nodes that the cluster has are counted, so that invented nodes make no storm. A node that lost its GPUs counts,
because that may be the symptom.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Case, Count, Exists, F, Min, Q, QuerySet, Value, When
from django.db.models.functions import Concat

from kcover.decisions import guards
from kcover.faults import fault
from kcover.nodes import topology
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import STORM, Incident, JobSeen
from kcover_portal.rescue.queries.numbers import number_of

SWITCH_LABELS = topology.WELL_KNOWN["leaf"]

Code = tuple[str, str]  # kind and code of a fault


def names_of(nodes: Collection[Node], codes: Collection[Code]) -> dict[tuple[int, str, str], Code]:
    """The Xids that open incidents of these nodes stand for, by node, kind and code.

    Sources tell one fault under names of their own: a health event, an alert, a component. On many nodes it is one
    symptom. Costs a statement if a code is of a kind that has other names.
    """
    told = sorted({code for kind, code in codes if kind in fault.SOURCE_KINDS})
    if not told:
        return {}
    rows = Incident.objects.filter(
        node__in=[node.pk for node in nodes], state=Incident.State.OPEN, kind__in=fault.SOURCE_KINDS
    )
    known = rows.filter(code__in=told, alias__startswith="xid ").order_by("pk")
    return {(row.node_id or 0, row.kind, row.code): name_of(row) for row in known.only("node", "kind", "code", "alias")}


def name_of(incident: Incident) -> Code:
    """The Xid that the incident of a source stands for, else its own kind and code."""
    kind, _, code = incident.alias.partition(" ")
    return (kind, code) if incident.kind in fault.SOURCE_KINDS and kind == "xid" else (incident.kind, incident.code)


def alias_of(kind: str, code: str) -> str:
    """What the incidents of sources have as their alias where they stand for this fault."""
    return f"{kind} {code}"


def expressions(cluster: int, *, since: datetime, codes: Collection[tuple[str, str, str]]) -> dict[str, Any]:
    """The data about the cluster that ``Symptoms`` needs, for one statement of the caller.

    ``since``: faults of other nodes count if they were seen since then. ``codes``: with the alias of each.
    """
    versions = Agent.objects.filter(node__cluster=cluster, node__in_cluster=True).exclude(version="")
    with_code = {
        f"code_{index}": number_of(_recent(cluster, since=since).filter(by_name(kind, code, alias)), "node")
        for index, (kind, code, alias) in enumerate(codes)
    }
    return {
        "storms": Exists(_open_storms(cluster)),
        "versions": number_of(versions, "version"),
        "jobs": Exists(JobSeen.objects.filter(node__cluster=cluster, at__gte=since).exclude(job="")),
        **with_code,
    }


class Symptoms:
    """The symptoms of faults of one cluster. Counts that several faults share are taken once.

    ``nodes``: the nodes whose faults are asked about. ``known``: the result of ``expressions``. ``names``: that of
    ``names_of``. ``without_storm``: the key of an open storm that is left out, as if it was closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        since: datetime,
        nodes: Collection[Node],
        codes: Iterable[Code],
        known: Mapping[str, Any],
        names: Mapping[tuple[int, str, str], Code],
        without_storm: int | None = None,
    ) -> None:
        self._cluster, self._since, self._nodes, self._known = cluster, since, nodes, known
        self._names, self._without_storm = names, without_storm
        # By the key of the symptom, and the label that names the switch: a value of one label is not that of another.
        self._counted = {("code", kind, code, ""): known[f"code_{index}"] for index, (kind, code) in enumerate(codes)}

    def of(self, node: Node, kind: str, code: str, *, code_only: bool = False) -> tuple[guards.Symptom, ...]:
        """The symptoms of a fault and on how many nodes each was seen.

        An open storm counts with all its nodes until a person closes it. Time alone does not end it.

        ``code_only``: only the same fault on other nodes counts. For faults without a rule: these are often warnings (a
        fan, a clock), and different ones behind one switch must not hold back the repair of a real fault.
        """
        found = []
        for symptom in self._of_one(node, kind, code):
            if code_only and symptom.trait != "code":
                break
            scope = self._storms.get(symptom.key, [])
            in_storm = len(scope) if node.name in scope else 0
            found.append(replace(symptom, nodes=max(self._count(node, symptom), in_storm)))
        return tuple(found)

    def _of_one(self, node: Node, kind: str, code: str) -> Iterable[guards.Symptom]:
        """The symptoms of the fault that a common cause would leave on other nodes too, the code by all its
        names first.

        Other nodes are not counted.
        """
        for name_kind, name in dict.fromkeys((self._names.get((node.pk, kind, code), (kind, code)), (kind, code))):
            yield guards.Symptom(trait="code", kind=name_kind, value=name, nodes=1)
        version = self._versions.get(node.pk)
        if version:
            yield guards.Symptom(trait="agent_version", value=version, nodes=1)
        key = _switch_label(node)
        if key is not None:
            yield guards.Symptom(trait="switch", value=node.labels[key], nodes=1)
        for job in self._jobs.get(node.pk, ()):
            yield guards.Symptom(trait="job", value=job, nodes=1)

    def _count(self, node: Node, symptom: guards.Symptom) -> int:
        """The number of nodes that show the symptom."""
        label = _switch_label(node) if symptom.trait == "switch" else None
        key = (*symptom.key, label or "")
        if key not in self._counted:
            rows = _sharing(node, symptom, since=self._since)
            self._counted[key] = rows.values("node").distinct().count()
        return int(self._counted[key])

    @cached_property
    def _storms(self) -> dict[tuple[str, str, str], list[str]]:
        """The nodes of each open storm by its symptom's key."""
        if not self._known["storms"]:
            return {}
        rows = _open_storms(self._cluster.pk, without=self._without_storm).values_list(
            "trait", "symptom_kind", "symptom", "scope"
        )
        return {(trait, kind, value): scope for trait, kind, value, scope in rows}

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
    rows = _sharing(node, symptom, since=since)
    return sorted(set(rows.values_list("node__name", flat=True)))


def storm_scope(node: Node, symptom: guards.Symptom) -> list[str]:
    """The nodes of the symptom's open storm if the node is one of them; else none."""
    trait, kind, value = symptom.key
    storm = _open_storms(node.cluster_id).filter(trait=trait, symptom_kind=kind, symptom=value)
    return next((scope for scope in storm.values_list("scope", flat=True) if node.name in scope), [])


def open_storms_of(node: Node) -> tuple[guards.Symptom, ...]:
    """The symptoms of the open storms that the node is a part of, each with the number of their nodes. One query."""
    rows = _open_storms(node.cluster_id).values_list("trait", "symptom_kind", "symptom", "scope")
    return tuple(
        guards.Symptom(trait=trait, kind=kind, value=value, nodes=len(scope))
        for trait, kind, value, scope in rows
        if node.name in scope
    )


def begin_of_storms(cluster: Cluster, *, without: int | None = None) -> datetime | None:
    """When the first of the cluster's open storms was opened; None without one. ``without``: one that is left out."""
    found: datetime | None = _open_storms(cluster.pk, without=without).aggregate(first=Min("opened_at"))["first"]
    return found


def _open_storms(cluster: int, *, without: int | None = None) -> QuerySet[Incident]:
    rows = Incident.objects.filter(cluster=cluster, node=None, kind=STORM, state="open")
    return rows if without is None else rows.exclude(pk=without)


def widest_code(cluster: int, *, since: datetime) -> tuple[Code, int] | None:
    """The code that the most nodes of the cluster have shown since a time, and how many; None without a fault.

    An Xid that a source tells under a name of its own counts as that Xid. Programs, drills and notes do not count.
    """
    rows = _recent(cluster, since=since).exclude(is_user_fault=True).exclude(drill=True).exclude(severity="info")
    told = Case(
        When(kind__in=fault.SOURCE_KINDS, alias__startswith="xid ", then=F("alias")),
        default=Concat("kind", Value(" "), "code"),
    )
    counted = rows.order_by().annotate(told=told).values("told").annotate(nodes=Count("node", distinct=True))
    found = counted.order_by("-nodes", "told").first()
    if found is None:
        return None
    kind, _, code = found["told"].partition(" ")
    return (kind, code), found["nodes"]


def _recent(cluster: int, *, since: datetime) -> QuerySet[Incident]:
    """Recent incidents of the cluster's nodes."""
    return Incident.objects.filter(cluster=cluster, node__in_cluster=True, last_at__gte=since)


def by_name(kind: str, code: str, alias: str) -> Q:
    """Incidents of a fault, by whatever name it was told."""
    return Q(kind=kind, code=code) | Q(alias=alias)


def _sharing(node: Node, symptom: guards.Symptom, *, since: datetime) -> QuerySet[Incident]:
    """Recent incidents of the node's cluster that show this symptom."""
    trait, kind, value = symptom.key
    recent = _recent(node.cluster_id, since=since)
    if trait == "code":
        return recent.filter(by_name(kind, value, alias_of(kind, value)))
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
