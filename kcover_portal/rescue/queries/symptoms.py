"""What a fault has in common with faults of other nodes: the symptoms of a storm (invariant 33)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, QuerySet, Subquery

from kcover.decisions import guards
from kcover_portal.fleet.models import Agent, Node
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.rescue.queries.numbers import number_of

STORM = "storm"  # the kind of an incident that covers many nodes
# Labels that name a node's leaf switch: NVIDIA topograph's, then our own.
SWITCH_LABELS = ("network.topology.nvidia.com/leaf", "kcover.io/switch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The fault at hand. ``since``: faults of other nodes count if they were seen since then."""

    node: Node
    kind: str
    code: str
    since: datetime


def numbers(fault: Fault) -> dict[str, Any]:
    """The expressions that ``of`` needs, for one statement of the caller."""
    node = fault.node
    own_version = Agent.objects.filter(node=node).exclude(version="").values("version")
    versions = Agent.objects.filter(node__cluster=node.cluster).exclude(version="")
    return {
        "storms": Exists(_open_storms(node)),
        "nodes_with_code": number_of(_sharing(fault, "code", ""), "node"),
        "agent_version": Subquery(own_version[:1]),
        "other_versions": Exists(versions.exclude(version=Subquery(own_version[:1]))),
        "jobs": Exists(_jobs(fault)),
    }


def of(fault: Fault, known: Mapping[str, Any]) -> tuple[guards.Symptom, ...]:
    """The symptoms and on how many nodes each was seen. ``known``: the answers to ``numbers``.

    An open storm counts with all its nodes until a person closes it. Time alone does not end it.
    """
    storms = dict(_open_storms(fault.node).values_list("code", "scope")) if known["storms"] else {}

    def in_storm(trait: str, value: str) -> int:
        scope = storms.get(storm_code(trait, value), [])
        return len(scope) if fault.node.name in scope else 0

    symptoms = []
    for trait, value in _traits(fault, known):
        nodes = known["nodes_with_code"] if trait == "code" else _nodes(_sharing(fault, trait, value))
        symptoms.append(guards.Symptom(trait=trait, value=value, nodes=max(nodes, in_storm(trait, value))))
    return tuple(symptoms)


def storm_nodes(fault: Fault, *, symptom: guards.Symptom) -> list[str]:
    """The names of the nodes that show the symptom."""
    return sorted(set(_sharing(fault, symptom.trait, symptom.value).values_list("node__name", flat=True)))


def storm_code(trait: str, value: str) -> str:
    """The code of a storm's incident."""
    return f"{trait} {value}"[:64]


def _open_storms(node: Node) -> QuerySet[Incident]:
    return Incident.objects.filter(cluster=node.cluster, node=None, kind=STORM, state="open")


def _jobs(fault: Fault) -> QuerySet[JobSeen]:
    return JobSeen.objects.filter(node=fault.node, at__gte=fault.since).exclude(job="")


def _traits(fault: Fault, known: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The traits and values of the fault at hand that a common cause would leave on other nodes too."""
    yield "code", f"{fault.kind} {fault.code}"
    if known["agent_version"] and known["other_versions"]:
        yield "agent_version", known["agent_version"]
    key = _switch_label(fault.node)
    if key is not None:
        yield "switch", fault.node.labels[key]
    if known["jobs"]:
        for job in _jobs(fault).values_list("job", flat=True):
            yield "job", job


def _sharing(fault: Fault, trait: str, value: str) -> QuerySet[Incident]:
    """Recent incidents of the node's cluster that show this trait."""
    cluster = fault.node.cluster
    recent = Incident.objects.filter(cluster=cluster, node__isnull=False, last_at__gte=fault.since)
    if trait == "code":
        return recent.filter(kind=fault.kind, code=fault.code)
    faults = recent.filter(is_user_fault=False)
    if trait == "agent_version":
        return faults.filter(node__agent__version=value)
    if trait == "switch":
        return faults.filter(**{f"node__labels__{_switch_label(fault.node)}": value})
    on_nodes = JobSeen.objects.filter(job=value, at__gte=fault.since, node__cluster=cluster)
    return faults.filter(node__in=on_nodes.values("node"))


def _switch_label(node: Node) -> str | None:
    """The key of the label that names the node's leaf switch."""
    return next((key for key in SWITCH_LABELS if key in node.labels), None)


def _nodes(rows: QuerySet[Incident]) -> int:
    return rows.values("node").distinct().count()
