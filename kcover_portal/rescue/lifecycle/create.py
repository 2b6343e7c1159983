"""Create and end rescues. A rescue's plan is a snapshot that later edits of the policy do not touch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction

from kcover import actions, audit, reasons
from kcover.decisions import decide as core, match
from kcover.plans import lifecycle, plan
from kcover.policy import document
from kcover_portal import tracing
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.rescue.lifecycle import revoke
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.step import node_lock, recheck_guards
from kcover_portal.runtime.services import claims

REPAIRS = "repairs.sweep"  # the task that opens the repairs of nodes left to people, which also runs by the clock
APPROVAL_TIME = timedelta(days=1)  # default of rules: long enough for every shift


class RescueRefused(Refused):
    """The request conflicts with the present state; the reason says why and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A rescue that is about to be written, with its steps and the incidents that it is to heal."""

    rescue: Rescue
    steps: list[Step]
    plan: tuple[plan.PlannedStep, ...]
    passed: tuple[reasons.Reason, ...]
    incidents: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """A new rescue with its steps, and the ledger entries that the caller must still append."""

    rescue: Rescue
    steps: list[Step]
    drafts: list[ledger.Draft]


def opening_by_policy(
    decision: core.Decision,
    row: Decision,
    *,
    node: Node,
    incident: Incident,
    opened: Iterable[Incident],
    now: datetime,
    lease_until: datetime | None,
    begins: bool,
) -> Opening:
    """The rescue that a rule asks for; the caller saves it.

    ``opened``: the open incidents of the node, which the rescue is to heal. ``lease_until``: the caller runs the rescue
    at once, so it is opened as claimed by the caller. ``begins``: the caller then begins its first call, too.
    """
    chosen = decision.candidate
    assert chosen is not None  # the answer asks for a rescue, so a rule applies
    by_system = chosen.external
    held = decision.answer == "approve"
    first = row.facts["cluster"].get("isolate_before_approval", False)  # a decision of an older portal has none
    gate = _gate(decision, chosen, isolate_first=first) if held else {}
    state = initial_state(gate, lease_until=lease_until, now=now)
    return opening(
        node,
        decision.steps,
        now=now,
        incidents=[row.pk for row in opened if not row.is_user_fault or row.pk == incident.pk],
        decision=row,
        origin=Rescue.Origin.API if by_system else Rescue.Origin.POLICY,
        requested_by=chosen.policy if by_system else by_rule(decision.rule or ""),
        requester_kind=Rescue.Requester.EXTERNAL if by_system else Rescue.Requester.POLICY,
        opened_because=reasons.both(*decision.because).to_json(),
        fault_kind=incident.kind,
        fault_code=incident.code,
        rule=decision.rule or "",
        policy=decision.policy or "",
        revision=decision.revision,
        on_probation=row.facts["node"]["on_probation"],
        boot_id=node.boot_id if incident.boot_id in ("", node.boot_id) else "",  # otherwise the watch is behind
        calls_begun=int(begins and "token" in state),  # a rescue that awaits approval is not claimed
        **state,
    )


def by_rule(rule: str) -> str:
    """The name of a rule as an actor, cut to the width of the column: a policy's name may be longer."""
    return f"policy:{rule}"[: ledger.MAX_ACTOR_CHARACTERS]


def initial_state(gate: dict[str, Any], *, lease_until: datetime | None, now: datetime) -> dict[str, Any]:
    """The first state of a rescue's row: awaiting approval, claimed by the caller, or waiting for a worker."""
    if gate.get("gate") == 0:
        return {**gate, **awaiting_approval(now + timedelta(seconds=gate["approval_seconds"]))}
    claimed = {"token": 1, "lease_until": lease_until} if lease_until else {}
    return {**gate, "state": Rescue.State.RUNNING, "isolating_at": now, "due_at": now, **claimed}


def awaiting_approval(expires_at: datetime) -> dict[str, Any]:
    """The columns of a rescue that waits for approval. No worker has it."""
    return {
        "state": Rescue.State.HELD,
        "hold": Rescue.Hold.APPROVAL,
        "because": reasons.of("awaiting_approval").to_json(),
        "needs_human": True,
        "expires_at": expires_at,
        "due_at": None,
        "lease_until": None,
    }


def _gate(decision: core.Decision, chosen: match.Candidate, *, isolate_first: bool) -> dict[str, Any]:
    """The first step that needs approval, the number of approvers, and the lifetime of a request.

    The node is isolated at once: without an answer it ends isolated and not rebooted. A rule that requires approval
    asks before the first step that takes running work away. Approve mode asks before any step that does more than
    isolate, or before the first step if the cluster says so.
    """
    approval = chosen.rule.approval or document.Approval()
    destructive = (index for index, step in enumerate(decision.steps) if actions.takes_away(step.name, step.args))
    first = next(destructive, 0)
    if decision.mode == "approve":
        first = (plan.first_to_approve(decision.steps) or 0) if isolate_first else 0
    return {
        "gate": first,
        "approvers": approval.approvers,
        "approval_seconds": int((approval.expires or APPROVAL_TIME).total_seconds()),
    }


def opening(
    node: Node,
    steps: Sequence[plan.PlannedStep],
    *,
    now: datetime,
    passed: Sequence[reasons.Reason] = (),
    boot_id: str | None = None,
    incidents: Sequence[int] = (),
    **fields: Any,
) -> Opening:
    """A rescue that is not saved yet.

    ``passed``: the guards that a named person overrides with it. ``boot_id``: the only boot that a reboot may end,
    however long the plan waits before it ("": the boot that the step finds; None: the boot that the watch shows).
    ``incidents``: those that it is to heal.
    """
    rescue = Rescue(
        node=node,
        node_uid=node.uid,
        cluster=node.cluster,
        plan_hash=plan.digest(steps),
        opened_at=now,
        passed_over=recheck_guards.new_rows((), recheck_guards.as_rows(passed, step="", now=now)),
        **{"due_at": None if fields["state"] == Rescue.State.HELD else now, **fields},
    )
    ends = node.boot_id if boot_id is None else boot_id
    rows = [
        Step(
            index=index,
            name=step.name,
            args=dict(step.args),
            progress=actions.ACTIONS[step.name].progress.initial(boot_id=ends).to_json(),
        )
        for index, step in enumerate(steps)
    ]
    if rescue.lease_until is not None:
        rows[0].reserve(now=now)
    return Opening(rescue=rescue, steps=rows, plan=tuple(steps), passed=tuple(passed), incidents=tuple(incidents))


def save(openings: Sequence[Opening]) -> list[Created]:
    """Writes rescues and their steps, each kind of row in one statement; the caller appends the ledger's entries.

    The caller holds the locks of the nodes' rows and has seen that no rescue is open on them; a database constraint
    guarantees it (invariant 8).
    """
    Rescue.objects.bulk_create([new.rescue for new in openings])
    for new in openings:
        for step in new.steps:
            step.rescue = new.rescue
    Step.objects.bulk_create([step for new in openings for step in new.steps])
    healed = Rescue.incidents.through
    healed.objects.bulk_create(
        [healed(rescue_id=new.rescue.pk, incident_id=incident) for new in openings for incident in new.incidents]
    )
    return [_created(new) for new in openings]


def _created(new: Opening) -> Created:
    rescue = new.rescue
    act = audit.RescueOpened(
        rescue=rescue.pk,
        node=rescue.node.name,
        steps=new.plan,
        plan_hash=rescue.plan_hash,
        state=rescue.state,
        reason=rescue.reason,
        because=reasons.kept(rescue.opened_because),
        overrides=rescue.overrides,
        passed_over=new.passed,
        origin=rescue.origin,
        requester=rescue.requester_kind,
        decision=rescue.decision_id,
        rule=rescue.rule,
        revision=rescue.revision,
        uid=rescue.node_uid,
        gate=rescue.gate,
        approvers=rescue.approvers,
        approval_seconds=rescue.approval_seconds,
        requesters=tuple(rescue.requesters),
        on_probation=rescue.on_probation,
    )
    if rescue.lease_until is None:
        doorbell.ring("rescue.run", rescue.pk)
    if rescue.on_probation:
        doorbell.ring(REPAIRS)
    doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    if rescue.decision_id is None and tracing.is_on():
        where = {"cluster": rescue.cluster.name, "node": rescue.node.name}
        requested = partial(
            tracing.record, tracing.rescue(rescue.pk), "request", began=rescue.opened_at, first=True, **where
        )
        transaction.on_commit(requested, robust=True)
    draft = ledger.Draft(act=act, actor=rescue.requested_by, at=rescue.opened_at)
    return Created(rescue=rescue, steps=new.steps, drafts=[draft])


def create_rescue(node: Node, steps: Sequence[plan.PlannedStep], *, now: datetime, **fields: Any) -> Created:
    """Writes one rescue; see ``opening`` and ``save``."""
    return save([opening(node, steps, now=now, **fields)])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a rescue ends. ``outcome``: in one word; "": its state, if that says all (failed, cancelled)."""

    state: str
    outcome: str = ""
    because: reasons.Reason | None = None
    needs_human: bool = False


def ended(ending: Ending, *, now: datetime) -> dict[str, Any]:
    """The columns of a closed rescue."""
    return {
        "state": ending.state,
        "outcome": ending.outcome or ending.state,
        "hold": "",
        "because": ending.because.to_json() if ending.because else {},
        "needs_human": ending.needs_human,
        "closed_at": now,
        "due_at": None,
        "lease_until": None,
        "token": claims.NEXT_TOKEN,
    }


def end(rescue: Rescue, ending: Ending, *, actor: str, now: datetime, token: int | None = None) -> bool:
    """Closes a rescue from any state that may move there; False if it was closed before.

    The token is raised, so that a worker with a call in flight settles nothing afterwards (invariant 9). With ``token``
    it closes only if the caller still holds the lease; the caller has no call under way.
    """
    with transaction.atomic(savepoint=False), ledger.last():
        if token is None:
            node_lock.hand_to_worker(rescue, now=now)
        rows = Rescue.objects.filter(pk=rescue.pk, state__in=lifecycle.sources(lifecycle.RESCUE, ending.state))
        if token is not None:
            rows = rows.filter(token=token)
        if not rows.update(**ended(ending, now=now)):
            return False
        close(rescue, ending, actor=actor, now=now)
    return True


def close(rescue: Rescue, ending: Ending, *, actor: str, now: datetime, steps: Sequence[Step] | None = None) -> None:
    """Cancels the steps and withdraws the requests of a rescue whose row has just got the columns of ``ended``.

    Part of the transaction that ends it. ``steps``: all of them as they are stored, if the caller has them: most ends
    of a plan that only isolates then need no statement.
    """
    over = (*lifecycle.FINISHED_STEP, "failed")
    if steps is None or any(step.state not in over for step in steps):
        rescue.steps.exclude(state__in=over).update(state="cancelled", finished_at=now)
    withdrawn = None
    if steps is None or any(step.spec.requests for step in steps):
        withdrawn = revoke.revoke(rescue, because=reasons.of("its_rescue_ended"), now=now)
    if withdrawn is not None:
        Rescue.objects.filter(pk=rescue.pk).update(because=reasons.both(ending.because, withdrawn).to_json())
    act = audit.RescueEnded(
        rescue=rescue.pk,
        node=rescue.node.name,
        state=audit.RescueEnd(ending.state),
        outcome=ending.outcome or ending.state,
        needs_human=ending.needs_human,
        because=ending.because,
        withdrawn=withdrawn,
    )
    ledger.record(rescue.cluster.name, act, actor=actor, now=now)
    doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)
    if ending.needs_human:
        doorbell.ring(REPAIRS)
