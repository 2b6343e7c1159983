"""The limits of requests by decision systems: what they may not override, repeat or undo."""

from datetime import datetime

from kcover import reasons
from kcover.decisions import decide, guards
from kcover.plans import lifecycle, plan
from kcover.reasons import Reason
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries.node_facts import node_facts
from kcover_portal.rescue.queries.past_rescues import PastRescues


def full(node: Node) -> Reason | None:
    """The reason why the cluster takes no more plans of decision systems; None if it does."""
    Cluster.objects.select_for_update(no_key=True).values_list("pk").get(
        pk=node.cluster_id
    )  # so that simultaneous requests count each other
    open_ones = Rescue.objects.filter(cluster=node.cluster, origin=Rescue.Origin.API, state__in=lifecycle.OPEN_RESCUE)
    return guards.too_many_plans(fleet.guards_of(node.cluster), active=open_ones.count())


def beyond_plans(node: Node, steps: tuple[plan.PlannedStep, ...], *, now: datetime) -> list[Reason]:
    """The objections to a decision system's request of a single act: the same as to its plan."""
    limit = full(node)
    return [*([limit] if limit is not None else []), *left_to_policies(node), *tried_before(node, steps, now=now)]


def tried_before(node: Node, steps: tuple[plan.PlannedStep, ...], *, now: datetime, code: str = "") -> list[Reason]:
    """Earlier actions on the node that had no success or were left to people (invariants 11, 35)."""
    settings = fleet.guards_of(node.cluster)
    kind = "xid" if code else ""
    fault, past = Incident(kind=kind, code=code, last_at=now), PastRescues([node])
    facts = node_facts(node, fault, past, settings=settings, now=now)
    situation = decide.Situation(
        now=now,
        fault=decide.FaultFacts(kind=kind, code=code),
        node=facts,
        cluster=decide.ClusterFacts(name=node.cluster.name),
        rules=(),
        settings=settings,
    )
    found = decide.helps_nobody(situation, steps)
    return [found] if found is not None else []


def beyond_hands(node: Node) -> list[Reason]:
    """The objections to a decision system's release of a node: it must not undo what a person requested."""
    refusals = left_to_policies(node)
    held = queries.open_on(node) or queries.marked_on(node)
    if held is not None and held.requester_kind == Rescue.Requester.PERSON:
        refusals.append(reasons.of("requested_by_person", rescue=str(held.pk), by=held.requested_by))
    elif held is not None and held.needs_human:
        refusals.append(reasons.both(reasons.of("waits_for_person", rescue=str(held.pk)), reasons.kept(held.because)))
    return refusals


def left_to_policies(node: Node) -> list[Reason]:
    if node.cluster.decision_mode != "policies":
        return []
    return [reasons.of("left_to_policies", cluster=node.cluster.name)]
