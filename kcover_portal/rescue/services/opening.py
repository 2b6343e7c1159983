"""Laying down: a plan becomes a rescue and its steps, a snapshot that later edits do not touch."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q

from kcover import decision as kernel
from kcover import lifecycle, plan, reasons
from kcover.policy import document, matching
from kcover_portal import doorbell
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions import guarding, turns
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.services import withdrawing

APPROVAL_HOLDS = timedelta(days=1)  # where a rule does not say: long enough for every shift


class Refused(Exception):
    """The request cannot be met as things stand; the message says why and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A rescue with its steps, just laid down, and what the ledger has yet to say of it."""

    rescue: Rescue
    steps: list[Step]
    drafts: list[ledger.Draft]


def open_by_policy(
    judged: kernel.Decision,
    row: Decision,
    *,
    node: Node,
    incident: Incident,
    chosen: matching.Candidate,
    now: datetime,
    lease_until: datetime | None,
    drafts: Sequence[ledger.Draft],
) -> Laid:
    """Opens the rescue that a rule asked for. ``drafts``: what the ledger is to say before it; the caller appends all.

    ``lease_until``: the caller goes on with it at once (``running.go_on``), so it is opened as claimed by them.
    """
    held = judged.answer == "approve"
    by_system = not judged.revision  # an external system's word in a policy's place
    gate = _gate(judged, chosen) if held else {}
    laid = lay_down(
        node,
        judged.steps,
        now=now,
        drafts=drafts,
        decision=row,
        origin=Rescue.Origin.API if by_system else Rescue.Origin.POLICY,
        requested_by=chosen.policy if by_system else by_rule(judged.rule or ""),
        reason="; ".join(map(str, judged.because))[:500],
        code=f"{incident.kind} {incident.code}",
        rule=judged.rule or "",
        policy=judged.policy or "",
        revision=judged.revision,
        boot_id=node.boot_id if incident.boot_id in ("", node.boot_id) else "",  # else the watch is behind the agent
        **begins(gate, lease_until=lease_until, now=now),
    )
    seen = incident_queries.open_on(node).filter(Q(program=False) | Q(pk=incident.pk))
    laid.rescue.incidents.add(*seen.values_list("pk", flat=True))
    return laid


def by_rule(rule: str) -> str:
    """How the ledger names a rule that acts, cut to what a row takes: a policy's name may be longer."""
    return f"policy:{rule}"[: ledger.ACTOR]


def begins(gate: dict[str, Any], *, lease_until: datetime | None, now: datetime) -> dict[str, Any]:
    """How a rescue's row begins: asking for approval, claimed by whoever opened it, or waiting for a worker."""
    if gate.get("gate") == 0:
        return {**gate, **asks_for_approval(now + timedelta(seconds=gate["approval_seconds"]))}
    claimed = {"token": 1, "lease_until": lease_until} if lease_until else {}
    return {**gate, "state": Rescue.State.RUNNING, "isolating_at": now, "due_at": now, **claimed}


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
    destructive = (index for index, step in enumerate(judged.steps) if plan.takes_away(step.name, step.args))
    return {
        "gate": 0 if judged.mode == "approve" else next(destructive, 0),
        "approvers": asked.approvers,
        "approval_seconds": int((asked.expires or APPROVAL_HOLDS).total_seconds()),
    }


def lay_down(
    node: Node,
    steps: Sequence[plan.PlannedStep],
    *,
    now: datetime,
    drafts: Sequence[ledger.Draft] = (),
    passed: Sequence[reasons.Reason] = (),
    boot_id: str | None = None,
    **fields: Any,
) -> Laid:
    """Writes the rescue and its steps; the caller puts ``drafts`` into the ledger, last in its transaction.

    ``passed``: the guards that a named person passes over with it. ``boot_id``: the boot that a reboot is to end, and
    none but it, however long the plan waits before
    (nothing: the one that it finds; None: the one that the watch shows).

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
    ends = node.boot_id if boot_id is None else boot_id
    rows = [
        Step(rescue=rescue, index=index, name=step.name, args=dict(step.args), progress=to_end(step.name, ends))
        for index, step in enumerate(steps)
    ]
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


def to_end(step: str, boot_id: str) -> dict[str, Any]:
    """What a step knows from its beginning: a reboot, which boot it is to end."""
    return {"boot_id": boot_id} if step == "reboot" and boot_id else {}


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
    given: only if the caller still holds the lease, and has no call under way.
    """
    with transaction.atomic(savepoint=False), ledger.last():
        if token is None:
            turns.leave(rescue, now=now)
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
