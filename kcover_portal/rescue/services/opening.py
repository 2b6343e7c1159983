"""Laying down: a plan becomes a rescue and its steps, a snapshot that later edits do not touch."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from kcover import decision as kernel
from kcover import external, guards, lifecycle, plan, reasons
from kcover.policy import document, matching
from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import drain, guarding
from kcover_portal.rescue.actions.context import LEASE
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.services import withdrawing

ASKED = {"gate": 0, "approval_seconds": int(timedelta(days=1).total_seconds())}  # before anything is done
BY_HAND = ("breaker", "rate")
APPROVAL_HOLDS = timedelta(days=1)  # where a rule does not say: long enough for every shift

# These end what is under way on the node before they begin: an operator's word on the node's release comes last.
ENDING = ("uncordon", "release")


class Refused(Exception):
    """The request cannot be met as things stand; the message says why and what would help."""


class Unmet(Refused):
    """Something that a decision system's plan needs is not so."""


class LimitReached(Refused):
    """As many plans of decision systems are open as the cluster takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A rescue with its steps, just laid down, and what the ledger has yet to say of it."""

    rescue: Rescue
    steps: list[Step]
    drafts: list[ledger.Draft]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a request would do, and what would hold it back, without doing anything."""

    steps: list[dict[str, Any]]
    held_back: list[str]
    pods: list[dict[str, Any]] | None
    plan_hash: str


def open_by_policy(
    judged: kernel.Decision,
    row: Decision,
    *,
    node: Node,
    incident: Incident,
    chosen: matching.Candidate,
    now: datetime,
    lease: bool,
    drafts: Sequence[ledger.Draft],
) -> Laid:
    """Opens the rescue that a rule asked for. ``drafts``: what the ledger is to say before it; the caller appends all.

    ``lease``: the caller goes on with it at once (``running.go_on``), so it is opened as claimed by them.
    """
    held = judged.answer == "approve"
    by_system = not judged.revision  # an external system's word in a policy's place
    gate = _gate(judged, chosen) if held else {}
    laid = _open(
        node,
        judged.steps,
        now=now,
        drafts=drafts,
        decision=row,
        origin=Rescue.Origin.API if by_system else Rescue.Origin.POLICY,
        requested_by=chosen.policy if by_system else f"policy:{judged.rule}",
        reason="; ".join(map(str, judged.because))[:500],
        code=f"{incident.kind} {incident.code}",
        rule=judged.rule or "",
        policy=judged.policy or "",
        revision=judged.revision,
        **_begins(gate, lease=lease, now=now),
    )
    seen = incident_queries.open_on(node).filter(Q(program=False) | Q(pk=incident.pk))
    laid.rescue.incidents.add(*seen.values_list("pk", flat=True))
    return laid


def _begins(gate: dict[str, Any], *, lease: bool, now: datetime, due_at: datetime | None = None) -> dict[str, Any]:
    """How a rescue's row begins: asking for approval, claimed by whoever opened it, or waiting for a worker, which may
    take it up from ``due_at`` on (nothing: at once)."""
    if gate.get("gate") == 0:
        return {**gate, **asks_for_approval(now + timedelta(seconds=gate["approval_seconds"]))}
    claimed = {"token": 1, "lease_until": now + LEASE} if lease else {}
    return {**gate, "state": Rescue.State.RUNNING, "isolating_at": now, "due_at": due_at or now, **claimed}


def asks_for_approval(expires_at: datetime) -> dict[str, Any]:
    """What a rescue's row says while it waits for a person's yes."""
    return {
        "state": Rescue.State.HELD,
        "hold": Rescue.Hold.APPROVAL,
        "because": "waits for a person's approval",
        "needs_human": True,
        "expires_at": expires_at,
    }


def _gate(judged: kernel.Decision, chosen: matching.Candidate) -> dict[str, Any]:
    """Which step needs a yes first, of how many, and for how long.

    In approve mode nothing is done before it. A rule that asks for approval isolates the node at once, and asks before
    the first step that takes running work away: without an answer the node ends safe, isolated and not rebooted.
    """
    asked = chosen.rule.approval or document.Approval()
    names = [step.name for step in judged.steps]
    destructive = (index for index, name in enumerate(names) if name in plan.DESTRUCTIVE)
    return {
        "gate": 0 if judged.mode == "approve" else next(destructive, 0),
        "approvers": asked.approvers,
        "approval_seconds": int((asked.expires or APPROVAL_HOLDS).total_seconds()),
    }


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
    steps = plan.manual(verb)
    with transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        node.refresh_from_db()
        if key is not None:
            before = Rescue.objects.filter(key=key).first()
            if before is not None:
                return before
        overrides = dict.fromkeys([*override, *(BY_HAND if by_person else ())], actor)
        refusals, passed = _refusals(node, verb, overrides=overrides, now=now)
        if origin == Rescue.Origin.API and verb not in ENDING:
            refusals += _beyond_plans(node)
        if refusals:
            raise Refused("; ".join(refusals))
        may_run = by_person or verb in ENDING or fleet.mode_of(node.cluster)[0] != "approve"
        under_way = queries.open_on(node, lock=True)
        due_at = now
        if under_way is not None:
            # A call of its worker may be in flight: what takes back begins when that must be over. Locked, so that the
            # lease that is read is the last one that there is.
            due_at = max(now, under_way.lease_until or now)
            end(
                under_way,
                state=Rescue.State.CANCELLED,
                because=f"{actor} asked to {verb} the node",
                actor=actor,
                now=now,
            )
        laid = _open(
            node,
            steps,
            now=now,
            origin=origin,
            requested_by=actor,
            reason=reason,
            key=key,
            overrides=overrides,
            passed=passed,
            **_begins({} if may_run else ASKED, lease=False, now=now, due_at=due_at),
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
    hash_ = plan.digest(asked.steps)
    with transaction.atomic(), ledger.last():
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
        made = _open(
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
            **_begins(gate, lease=False, now=now),
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


def _beyond_plans(node: Node) -> list[str]:
    """What stands against a decision system's act, whichever door it came by."""
    full = _full(node)
    refusals = [full] if full is not None else []
    if node.cluster.decision_mode == "policies":
        refusals.append(f"cluster {node.cluster.name} leaves decisions to policies (decision_mode policies)")
    return refusals


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
    if node.cluster.decision_mode == "policies":
        refusals.append(f"cluster {node.cluster.name} leaves decisions to policies (decision_mode policies)")
    acts = [step.name for step in asked.steps]
    code = str(asked.xid) if asked.xid is not None else ""
    held, passed = _guards(node, acts, overrides=overrides, now=now, code=code)
    return mode, refusals + held, passed


def preview(node: Node, verb: str, *, now: datetime, by_person: bool = True) -> Preview:
    """The dry run of ``request``: writes nothing. Raises ValueError for an unknown verb."""
    steps = plan.manual(verb)
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
    if node.labels.get(guards.EXCLUDE_LABEL) == "true" and "exclusion" not in overrides:
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


def _open(
    node: Node,
    steps: Sequence[plan.PlannedStep],
    *,
    now: datetime,
    drafts: Sequence[ledger.Draft] = (),
    passed: Sequence[reasons.Reason] = (),
    **fields: Any,
) -> Laid:
    """Writes the rescue and its steps; the caller puts ``drafts`` into the ledger, last in its transaction.

    ``passed``: the guards that a named person passes over with it.

    The caller holds the lock of the node's row and has seen that no rescue is open on it; a constraint of the database
    stands behind that (invariant 8).
    """
    rescue = Rescue.objects.create(
        node=node,
        node_uid=node.uid,
        cluster=node.cluster,
        plan_hash=plan.digest(steps),
        opened_at=now,
        passed_over=guarding.fresh((), guarding.as_rows(passed, step="", now=now)),
        **{"due_at": None if fields["state"] == Rescue.State.HELD else now, **fields},
    )
    rows = [Step(rescue=rescue, index=index, name=step.name, args=dict(step.args)) for index, step in enumerate(steps)]
    if rescue.lease_until is not None:
        rows[0].reserve(now=now)
    Step.objects.bulk_create(rows)
    opened = ledger.Draft(
        actor=rescue.requested_by,
        verb="rescue.opened",
        subject=f"rescue {rescue.pk}",
        node=node.name,
        rescue=rescue.pk,
        at=now,
        data={
            "steps": [{"name": step.name, "args": dict(step.args)} for step in steps],
            "plan_hash": rescue.plan_hash,
            "reason": rescue.reason,
            "state": rescue.state,
            "overrides": rescue.overrides,
            **({"passed_over": [str(reason) for reason in passed]} if passed else {}),
        },
    )
    if rescue.lease_until is None:
        doorbell.ring("rescue.run", rescue.pk)
    doorbell.tell("rescue", rescue.pk, cluster=node.cluster.name)
    return Laid(rescue=rescue, steps=rows, drafts=[*drafts, opened])


def end(
    rescue: Rescue,
    *,
    state: str,
    because: str,
    actor: str,
    now: datetime,
    outcome: str = "",
    needs_human: bool = False,
    token: int | None = None,
) -> bool:
    """Closes a rescue from any state that may move there; False if somebody else was faster.

    The token is raised, so that whatever a worker has in flight settles nothing afterwards (invariant 9). ``token``
    given: only if the caller still holds the lease.
    """
    with transaction.atomic(), ledger.last():
        rows = Rescue.objects.filter(pk=rescue.pk, state__in=lifecycle.sources(lifecycle.RESCUE, state))
        if token is not None:
            rows = rows.filter(token=token)
        ended = rows.update(
            state=state,
            outcome=outcome or state,
            hold="",
            because=because[:1000],
            needs_human=needs_human,
            closed_at=now,
            due_at=None,
            lease_until=None,
            token=F("token") + 1,
        )
        if not ended:
            return False
        rescue.steps.exclude(state__in=(*lifecycle.FINISHED_STEP, "failed")).update(state="cancelled", finished_at=now)
        withdrawn = withdrawing.call_back(rescue, because="its rescue has ended", now=now)
        if withdrawn:
            because = f"{because}; {withdrawn}"
            Rescue.objects.filter(pk=rescue.pk).update(because=because[:1000])
        ledger.write(
            rescue.cluster.name,
            actor=actor,
            verb=f"rescue.{state}",
            subject=f"rescue {rescue.pk}",
            node=rescue.node.name,
            rescue=rescue.pk,
            now=now,
            data={"because": because, "outcome": outcome or state, "needs_human": needs_human},
        )
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    return True
