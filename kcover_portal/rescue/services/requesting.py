"""Requesting: what a person, a program or a decision system asks for, held against modes and guards, then laid down."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from kcover import decision, external, guards, lifecycle, plan, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import drain
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.services import opening, refusing

ASKED = {"gate": 0, "approval_seconds": int(timedelta(days=1).total_seconds())}  # before anything is done
BY_HAND = ("breaker", "rate")

# These end what is under way on the node before they begin: an operator's word on the node's release comes last.
ENDING = ("uncordon", "release")


class Unmet(opening.Refused):
    """Something that a decision system's plan needs is not so."""


class LimitReached(opening.Refused):
    """As many plans of decision systems are open as the cluster takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a request would do, and what would hold it back, without doing anything."""

    steps: list[dict[str, Any]]
    held_back: list[str]
    pods: list[dict[str, Any]] | None
    plan_hash: str


def request(
    node: Node,
    verb: str,
    *,
    actor: str,
    reason: str,
    now: datetime,
    origin: str = Rescue.Origin.MANUAL,
    key: str | None = None,
    override: Collection[str] = (),
    by_person: bool = True,
) -> Rescue:
    """Opens the rescue behind a button or REST call; the same ``key`` finds the rescue it opened before.

    ``override``: guards that ``actor`` passes over (the door saw to it that they may); it is on record. A person's own
    act always passes those that stop automation from running away, under the person's name, and is its own approval; a
    program's (``by_person`` False) does not, and waits for a person in approve mode.

    Raises Refused when a guard or an open rescue is in the way, ValueError for an unknown verb.
    """
    steps = plan.manual(verb, by_person=by_person)
    record = refusing.on_record(node, actor=actor, asked=[verb], now=now, said=reason, override=sorted(override))
    with record, transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        node.refresh_from_db()
        if key is not None:
            before = Rescue.objects.filter(key=key).first()
            if before is not None:
                return before
        overrides = dict.fromkeys([*override, *(BY_HAND if by_person else ())], actor)
        refusals, passed = _refusals(node, verb, overrides=overrides, now=now)
        if origin == Rescue.Origin.API:
            refusals += _beyond_hands(node) if verb in ENDING else _beyond_plans(node, steps, now=now)
        if refusals:
            raise opening.Refused("; ".join(refusals))
        may_run = by_person or verb in ENDING or fleet.mode_of(node.cluster)[0] != "approve"
        under_way = queries.open_on(node)
        if under_way is not None:  # a call of its worker may be in flight: that has its turn first
            opening.end(
                under_way,
                state=Rescue.State.CANCELLED,
                because=f"{actor} asked to {verb} the node",
                actor=actor,
                now=now,
            )
        laid = opening.lay_down(
            node,
            steps,
            now=now,
            origin=origin,
            requested_by=actor,
            reason=reason,
            key=key,
            overrides=overrides,
            passed=passed,
            **opening.begins({} if may_run else ASKED, lease_until=None, now=now),
        )
        ledger.append(node.cluster.name, laid.drafts)
    return laid.rescue


def request_plan(
    node: Node,
    asked: external.Request,
    *,
    actor: str,
    payload: dict[str, Any],
    now: datetime,
    override: Collection[str] = (),
) -> tuple[Rescue, bool]:
    """Opens the rescue that a decision system asks for; the very same request while it is open finds it (False).

    Raises Unmet when something stands against it, LimitReached beyond the cluster's number of plans. The same guards
    as a policy's hold it back (invariant 11); in approve mode it waits for a person.
    """
    hash_, names = plan.digest(asked.steps), [step.name for step in asked.steps]
    record = refusing.on_record(node, actor=actor, asked=names, now=now, xid=asked.xid, override=sorted(override))
    with record, transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        node.refresh_from_db()
        under_way = queries.open_on(node)
        if under_way is not None:
            same = (under_way.origin, under_way.plan_hash, under_way.requested_by)
            if same == (Rescue.Origin.API, hash_, actor):
                return under_way, False
            raise Unmet(f"rescue {under_way.pk} is open on node {node.name}, and a node has one at a time")
        mode, refusals, passed = _may_be_planned(node, asked, overrides=dict.fromkeys(override, actor), now=now)
        if refusals:
            raise Unmet("; ".join(refusals))
        full = _full(node)
        if full is not None:
            raise LimitReached(full)
        gate = ASKED if mode == "approve" else {}
        made = opening.lay_down(
            node,
            asked.steps,
            now=now,
            origin=Rescue.Origin.API,
            requested_by=actor,
            reason="asked for by a decision system",
            code=f"xid {asked.xid}" if asked.xid is not None else "",
            overrides=dict.fromkeys(override, actor),
            passed=passed,
            request={**payload, "startBy": asked.start_by.isoformat() if asked.start_by else None},
            **opening.begins(gate, lease_until=None, now=now),
        )
        seen = incident_queries.open_on(node).filter(program=False)
        made.rescue.incidents.add(*seen.values_list("pk", flat=True))
        ledger.append(node.cluster.name, made.drafts)
    return made.rescue, True


def _full(node: Node) -> str | None:
    """Why the cluster takes no more plans of decision systems, if it does not."""
    Cluster.objects.select_for_update(no_key=True).values_list("pk").get(pk=node.cluster_id)  # two at once count each
    open_ones = Rescue.objects.filter(cluster=node.cluster, origin=Rescue.Origin.API, state__in=lifecycle.OPEN_RESCUE)
    full = guards.too_many_plans(fleet.guards_of(node.cluster), active=open_ones.count())
    return str(full) if full is not None else None


def _beyond_plans(node: Node, steps: tuple[plan.PlannedStep, ...], *, now: datetime) -> list[str]:
    """What stands against a decision system's act that came by a person's door: the same as against its plan."""
    full = _full(node)
    return [*([full] if full is not None else []), *_left_to_policies(node), *_tried_before(node, steps, now=now)]


def _tried_before(node: Node, steps: tuple[plan.PlannedStep, ...], *, now: datetime, code: str = "") -> list[str]:
    """What was done on the node before and did not help, or was left to people: it bounds whoever decides (11, 35)."""
    settings = fleet.guards_of(node.cluster)
    kind = "xid" if code else ""
    facts = queries.node_facts(node, Incident(kind=kind, code=code, last_at=now), settings=settings, now=now)
    situation = decision.Situation(
        now=now,
        fault=decision.FaultFacts(kind=kind, code=code),
        node=facts,
        cluster=decision.ClusterFacts(name=node.cluster.name),
        rules=(),
        settings=settings,
    )
    found = decision.helps_nobody(situation, steps)
    return [str(found)] if found is not None else []


def _beyond_hands(node: Node) -> list[str]:
    """What stands against a decision system's taking a node back: it is not its to lift what a person put there."""
    refusals = _left_to_policies(node)
    held = queries.open_on(node) or queries.marked_on(node)
    if held is not None and held.requested_by.startswith("user:"):
        refusals.append(f"rescue {held.pk} is {held.requested_by}'s: a person takes back what a person asked for")
    elif held is not None and held.needs_human:
        refusals.append(f"rescue {held.pk} waits for a person: {held.because}")
    return refusals


def _left_to_policies(node: Node) -> list[str]:
    if node.cluster.decision_mode != "policies":
        return []
    return [f"cluster {node.cluster.name} leaves decisions to policies (decision_mode policies)"]


def _may_be_planned(
    node: Node, asked: external.Request, *, overrides: Mapping[str, str], now: datetime
) -> tuple[str, list[str], list[reasons.Reason]]:
    """The mode that holds for it, what stands against it, and what is passed over."""
    mode, reason = fleet.mode_of(node.cluster)
    refusals = []
    if mode == "paused":
        refusals.append(f"everything is paused{': ' + reason if reason else ''}")
    if mode == "shadow":
        refusals.append("shadow mode: nothing is written to the cluster")
    refusals += _left_to_policies(node)
    acts = [step.name for step in asked.steps]
    code = str(asked.xid) if asked.xid is not None else ""
    refusals += _tried_before(node, asked.steps, now=now, code=code)
    held, passed = _guards(node, acts, overrides=overrides, now=now, code=code)
    return mode, refusals + held, passed


def preview(node: Node, verb: str, *, now: datetime, by_person: bool = True) -> Preview:
    """The dry run of ``request``: writes nothing. Raises ValueError for an unknown verb."""
    steps = plan.manual(verb, by_person=by_person)
    with transaction.atomic():
        held_back, _ = _refusals(
            node, verb, overrides=dict.fromkeys(BY_HAND if by_person else (), "whoever asks"), now=now
        )
    pods: list[dict[str, Any]] | None = None
    if any(step.name == "drain" for step in steps):
        try:
            found = drain.in_the_way(fleet.connect(node.cluster).list_pods(node=node.name))
            pods = [
                {"namespace": pod.namespace, "name": pod.name, "owner": f"{pod.owner_kind} {pod.owner_name}".strip()}
                for pod in found
            ]
        except port.KubeError as error:
            held_back.append(f"the cluster does not answer: {error}")
    return Preview(
        steps=[{"name": step.name, "args": dict(step.args)} for step in steps],
        held_back=held_back,
        pods=pods,
        plan_hash=plan.digest(steps),
    )


def _refusals(
    node: Node, verb: str, *, overrides: Mapping[str, str], now: datetime
) -> tuple[list[str], list[reasons.Reason]]:
    """What stands against an operator's request now, the same words in the dry run and in the refusal; and what is
    passed over for it."""
    refusals: list[str] = []
    passed: list[reasons.Reason] = []
    mode, reason = fleet.mode_of(node.cluster)
    if not node.known:
        refusals.append(f"the cluster {node.cluster.name} has no node {node.name}")
    if mode == "paused":
        refusals.append(f"everything is paused{': ' + reason if reason else ''}: resume first")
    if mode == "shadow":
        refusals.append("shadow mode: nothing is written to the cluster")
    if verb not in ENDING:
        acts = [step.name for step in plan.manual(verb)]
        held, passed = _guards(node, acts, overrides=overrides, now=now)
        refusals += held
        under_way = queries.open_on(node)
        if under_way is not None:
            refusals.append(f"rescue {under_way.pk} is open on this node: cancel it, or release the node")
    return refusals, passed


def _guards(
    node: Node, steps: Sequence[str], *, overrides: Mapping[str, str], now: datetime, code: str = ""
) -> tuple[list[str], list[reasons.Reason]]:
    """What the guards say to an act that was asked for: the same as to a policy's, unless somebody passes over them.

    Returns what holds it back, in words, and what is passed over, with its figures.
    """
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        return [f"the node carries {guards.EXCLUDE_LABEL}=true: hands off"], []
    if node.gpus < 1:
        return [], []  # limits are counted over GPU nodes
    settings = fleet.guards_of(node.cluster)
    counts.lock(node.cluster, settings, ())
    facts = counts.facts(node, settings=settings, now=now, kind="xid" if code else "", code=code, destructive=True)
    verdicts = [guards.isolation(settings, facts, now=now, overrides=overrides)]
    for act in [name for name in steps if name in plan.DESTRUCTIVE]:
        verdicts.append(guards.destructive(settings, facts, act=act, now=now, overrides=overrides))
    held = dict.fromkeys(str(reason) for verdict in verdicts for reason in verdict.held)
    return list(held), list(dict.fromkeys(reason for verdict in verdicts for reason in verdict.overridden))
