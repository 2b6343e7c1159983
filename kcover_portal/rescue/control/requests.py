"""Requests of people, programs and decision systems, checked against modes and guards before a rescue is created."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from kcover import actions, audit, reasons
from kcover.decisions import guards
from kcover.plans import kce_actions, plan
from kcover.reasons import Reason
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import drain
from kcover_portal.rescue.control import hand_approval, plan_limits, refused_requests
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import blocking_budgets, counts
from kcover_portal.rescue.step import errors, recheck_guards

NEEDS_APPROVAL = {"gate": 0, "approval_seconds": int(timedelta(days=1).total_seconds())}  # before the first step
BY_HAND = ("breaker", "rate")  # guards that a person's own request always overrides

# These end the rescue under way on the node first: an operator's decision to release or exclude a node prevails.
ENDING = tuple(actions.names(lambda spec: spec.ends_rescue))
DRAIN = actions.drain.SPEC.name
END_EXCLUSION = actions.end_exclusion.SPEC.name

Figures = Mapping[str, Any] | None  # of the guards; empty: limits do not apply; None: no guard was asked


def right_for(verb: str) -> Verb:
    """The right that a button of a node needs. To end an exclusion, which no guard may pass, needs that to override."""
    return Verb.OVERRIDE if verb == END_EXCLUSION else Verb.REPAIR


def needs_factor(verb: str) -> bool:
    """Returns whether a person confirms the act by a second factor, as they do to pass a guard."""
    return right_for(verb) is Verb.OVERRIDE


class PreconditionFailed(create.RescueRefused):
    """A precondition of a decision system's plan is not met."""


class LimitReached(create.RescueRefused):
    """The cluster's limit of open plans of decision systems is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effects of a request, the conditions that would hold it back, and the number of approvals that it needs.

    ``pods``: those that it evicts, and ``jobs`` the training jobs that lose one, as "namespace/job"; None if it evicts
    none. ``budgets``: the disruption budgets that allow no eviction of one of them now; None also if they cannot be
    read.
    """

    steps: list[dict[str, Any]]
    approvers: int
    held_back: list[Reason]
    pods: list[dict[str, Any]] | None
    jobs: list[str] | None
    budgets: list[str] | None
    plan_hash: str


def request(
    node: Node,
    verb: str,
    *,
    actor: str,
    now: datetime,
    reason: str = "",
    because: reasons.Reason | None = None,
    origin: str = Rescue.Origin.MANUAL,
    key: str | None = None,
    override: Collection[str] = (),
    requester: str = Rescue.Requester.PERSON,
    person: str = "",
    taints_of: str = "",
) -> Rescue:
    """Opens the rescue behind a button or REST call; the same ``key`` finds the rescue that it opened before.

    ``reason``: a person's own words; ``because``: the portal's reason if nobody made the request.
    ``override``: guards that ``actor`` overrides, as the caller has authorised; it is recorded. A person's request
    always overrides the guards that stop runaway automation; a program's request does not. ``person``: who counts as
    the requester, by default ``actor``; for a token, its owner. ``hand_approval`` says how many others must approve.
    ``taints_of``: the system whose taint a release by a person removes, too.

    Raises RescueRefused if a guard or an open rescue is in the way, ValueError for an unknown verb.
    """
    by_person = requester != Rescue.Requester.TOKEN
    steps = plan.manual(verb, by_person=by_person, taints_of=taints_of)
    record = refused_requests.on_record(
        node, actor=actor, asked=[verb], now=now, reason=reason, override=sorted(override)
    )
    with record, transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        node.refresh_from_db()
        if key is not None:
            before = Rescue.objects.filter(key=key).first()
            if before is not None:
                return before
        overrides = dict.fromkeys([*override, *(BY_HAND if by_person else ())], actor)
        refusals, passed, counted = _refusals(node, verb, overrides=overrides, now=now)
        refusals += _of_exclusion(node, verb, by_person=by_person)
        if origin == Rescue.Origin.API:
            refusals += (
                plan_limits.beyond_hands(node) if verb in ENDING else plan_limits.beyond_plans(node, steps, now=now)
            )
        if refusals:
            raise create.RescueRefused(reasons.both(*refusals))
        under_way = queries.open_on(node)
        if under_way is not None:  # a call of its worker may be in flight, and keeps the node's lock
            because = reasons.of("replaced_by_request", by=actor, act=reasons.of(f"act_{verb}"))
            left = bool(under_way.marks) and not any(actions.ACTIONS[step.name].returns_node for step in steps)
            ending = create.Ending(state="cancelled", because=because, needs_human=left)
            create.end(under_way, ending, actor=actor, now=now)
        created = create.create_rescue(
            node,
            steps,
            now=now,
            origin=origin,
            requested_by=actor,
            requesters=counted_as(person or actor, now=now),
            requester_kind=requester,
            reason=reason,
            opened_because=because.to_json() if because else {},
            key=key,
            overrides=overrides,
            passed=passed,
            **create.initial_state(_gate(node, verb, steps, by_person=by_person, now=now), lease_until=None, now=now),
        )
        ledger.append(node.cluster.name, [*created.drafts, *_guards_passed(created.rescue, counted)])
    return created.rescue


def _guards_passed(rescue: Rescue, counted: Figures) -> list[ledger.Draft]:
    """The entry with the figures that let the request pass; none if no guard was asked."""
    if counted is None:
        return []
    act = audit.GuardPassed(rescue=rescue.pk, node=rescue.node.name, act=guards.ISOLATION, figures=counted)
    return [ledger.Draft(act=act, actor=rescue.requested_by, at=rescue.opened_at)]


def _gate(
    node: Node, verb: str, steps: Sequence[plan.PlannedStep], *, by_person: bool, now: datetime
) -> dict[str, Any]:
    """The columns of a request that needs an approval; {} if it may start at once."""
    if verb in ENDING:
        return {}
    needed = hand_approval.needed(node, steps, by_person=by_person, mode=fleet.mode_of(node.cluster)[0], now=now)
    return {**NEEDS_APPROVAL, "approvers": needed} if needed else {}


def counted_as(person: str, *, now: datetime) -> list[str]:
    """The people who count as the requester: the person, and who could have used the person's account."""
    return [person, *accounts.controllers(person, at=now)]


def request_plan(
    node: Node,
    asked: kce_actions.Request,
    *,
    actor: str,
    payload: dict[str, Any],
    now: datetime,
    override: Collection[str] = (),
    person: str = "",
) -> tuple[Rescue, bool]:
    """Opens the rescue that a decision system requests. A repeated request finds the open rescue (False).

    Raises PreconditionFailed if the plan is not possible now, LimitReached at the cluster's limit of plans. The
    guards are those of a policy's rescue (invariant 11). In approve mode the rescue waits for a person. ``person``: as
    for ``request``.
    """
    hash_, names = plan.digest(asked.steps), [step.name for step in asked.steps]
    record = refused_requests.on_record(
        node, actor=actor, asked=names, now=now, xid=asked.xid, override=sorted(override)
    )
    with record, transaction.atomic(), ledger.last():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        node.refresh_from_db()
        under_way = queries.open_on(node)
        if under_way is not None:
            repeated = (under_way.origin, under_way.plan_hash, under_way.requested_by)
            if repeated == (Rescue.Origin.API, hash_, actor):
                return under_way, False
            raise PreconditionFailed(reasons.of("rescue_open", rescue=str(under_way.pk)))
        overrides = dict.fromkeys(override, actor)
        mode, refusals, passed, counted = _may_be_planned(node, asked, overrides=overrides, now=now)
        if refusals:
            raise PreconditionFailed(reasons.both(*refusals))
        full = plan_limits.full(node)
        if full is not None:
            raise LimitReached(full)
        needed = hand_approval.needed(node, asked.steps, by_person=False, mode=mode, now=now)
        gate = {**NEEDS_APPROVAL, "approvers": needed} if needed else {}
        created = create.create_rescue(
            node,
            asked.steps,
            now=now,
            origin=Rescue.Origin.API,
            requested_by=actor,
            requesters=counted_as(person or actor, now=now),
            requester_kind=Rescue.Requester.TOKEN,
            opened_because=reasons.of("requested_by_system").to_json(),
            fault_kind="xid" if asked.xid is not None else "",
            fault_code=str(asked.xid) if asked.xid is not None else "",
            on_probation=asked.xid is not None and node.probation_until is not None,
            overrides=overrides,
            passed=passed,
            request={**payload, "startBy": asked.start_by.isoformat() if asked.start_by else None},
            **create.initial_state(gate, lease_until=None, now=now),
        )
        seen = incident_queries.open_on(node).filter(is_user_fault=False)
        created.rescue.incidents.add(*seen.values_list("pk", flat=True))
        ledger.append(node.cluster.name, [*created.drafts, *_guards_passed(created.rescue, counted)])
    return created.rescue, True


def _may_be_planned(
    node: Node, asked: kce_actions.Request, *, overrides: Mapping[str, str], now: datetime
) -> tuple[str, list[Reason], list[Reason], Figures]:
    """The effective mode, the objections to the plan, the overridden guards, and the guards' figures."""
    mode, why = fleet.mode_of(node.cluster)
    refusals = [recheck_guards.silent(mode, why)] if mode in fleet.MODES_WITHOUT_WRITES else []
    refusals += plan_limits.left_to_policies(node)
    acts = [step.name for step in asked.steps]
    code = str(asked.xid) if asked.xid is not None else ""
    refusals += plan_limits.tried_before(node, asked.steps, now=now, code=code)
    held, passed, counted = _guards(node, acts, overrides=overrides, now=now, code=code)
    return mode, refusals + held, passed, counted


def preview(
    node: Node,
    verb: str,
    *,
    now: datetime,
    by_person: bool = True,
    budgets: blocking_budgets.Budgets | None = None,
) -> Preview:
    """The dry run of ``request``: writes nothing. Raises ValueError for an unknown verb.

    ``budgets``: those that were read for other nodes already.
    """
    steps = plan.manual(verb, by_person=by_person)
    with transaction.atomic():
        held_back, _, _ = _refusals(
            node, verb, overrides=dict.fromkeys(BY_HAND if by_person else (), "whoever asks"), now=now
        )
        held_back += _of_exclusion(node, verb, by_person=by_person)
    pods: list[dict[str, Any]] | None = None
    jobs: list[str] | None = None
    blocking: list[str] | None = None
    if any(step.name == DRAIN for step in steps):
        try:
            found = drain.in_the_way(fleet.connect(node.cluster).list_pods(node=node.name))
            pods = [
                {"namespace": pod.namespace, "name": pod.name, "owner": f"{pod.owner_kind} {pod.owner_name}".strip()}
                for pod in found
            ]
            jobs = sorted(drain.jobs_of(found))
            blocking = (budgets or blocking_budgets.Budgets()).of_pods(node.cluster, found)
        except port.KubeError as error:
            held_back.append(errors.reason_of(error))
    gate = _gate(node, verb, steps, by_person=by_person, now=now)
    return Preview(
        approvers=gate.get("approvers", 0),
        steps=[{"name": step.name, "args": dict(step.args)} for step in steps],
        held_back=held_back,
        pods=pods,
        jobs=jobs,
        budgets=blocking,
        plan_hash=plan.digest(steps),
    )


def _refusals(
    node: Node, verb: str, *, overrides: Mapping[str, str], now: datetime
) -> tuple[list[Reason], list[Reason], Figures]:
    """The objections to an operator's request now, the overridden guards and the figures; also for the dry run."""
    refusals: list[Reason] = []
    passed: list[Reason] = []
    counted: Figures = None
    mode, why = fleet.mode_of(node.cluster)
    if not node.in_cluster:
        refusals.append(reasons.of("no_such_node", cluster=node.cluster.name, node=node.name))
    if mode in fleet.MODES_WITHOUT_WRITES:
        refusals.append(recheck_guards.silent(mode, why))
    if mode == "paused":
        refusals.append(reasons.of("resume_first"))
    under_way = queries.open_on(node)
    if verb in ENDING:
        question = hand_approval.release_objection(under_way)
        refusals += [question] if question is not None else []
    else:
        acts = [step.name for step in plan.manual(verb)]
        held, passed, counted = _guards(node, acts, overrides=overrides, now=now)
        refusals += held
        if under_way is not None:
            refusals.append(reasons.of("rescue_in_the_way", rescue=str(under_way.pk)))
    return refusals, passed, counted


def _of_exclusion(node: Node, verb: str, *, by_person: bool) -> list[Reason]:
    """The objections to an exclusion or its end. A program may exclude a node, and ends no exclusion."""
    excluded = node.labels.get(guards.EXCLUDE_LABEL) == "true"
    if verb == "exclude" and excluded:
        return [recheck_guards.excluded(node.name)]
    if verb != END_EXCLUSION:
        return []
    refusals = [] if by_person else [reasons.of("exclusion_ended_by_person")]
    if not excluded:
        refusals.append(reasons.of("not_excluded", node=node.name, label=guards.EXCLUDE_LABEL))
    return refusals


def _guards(
    node: Node, steps: Sequence[str], *, overrides: Mapping[str, str], now: datetime, code: str = ""
) -> tuple[list[Reason], list[Reason], Figures]:
    """The guards' findings about a requested act: the same as for a policy's act, unless someone overrides them.

    Returns what holds it back, what is overridden, and the figures of the isolation.
    """
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        return [recheck_guards.excluded(node.name)], [], {}
    if node.gpus < 1:
        return [], [], {}  # limits are counted over GPU nodes
    settings = fleet.guards_of(node.cluster)
    counts.lock(node.cluster, settings, ())
    verdicts, counted = guard_verdicts(node, steps, settings=settings, overrides=overrides, now=now, code=code)
    held = dict.fromkeys(reason for verdict in verdicts for reason in verdict.held)
    overridden = list(dict.fromkeys(reason for verdict in verdicts for reason in verdict.overridden))
    return list(held), overridden, counted


def guard_verdicts(
    node: Node,
    steps: Sequence[str],
    *,
    settings: guards.Settings,
    overrides: Mapping[str, str],
    now: datetime,
    code: str = "",
) -> tuple[list[guards.Verdict], Mapping[str, Any]]:
    """The verdicts on requested steps, and the figures of the isolation. ``code``: an Xid, "" if none is named.

    An open storm of the node holds what takes work away. A node may be isolated by hand meanwhile.
    """
    kind = "xid" if code else ""
    alone = counts.facts(node, settings=settings, now=now, kind=kind, code=code, destructive=True)
    facts = counts.with_open_storms(alone, node, settings=settings)
    verdicts = [guards.isolation(settings, alone, now=now, overrides=overrides)]
    for act in [name for name in steps if actions.ACTIONS[name].takes_work_away]:
        verdicts.append(guards.destructive(settings, facts, act=act, now=now, overrides=overrides))
    return verdicts, guards.figures(settings, alone, act=guards.ISOLATION)
