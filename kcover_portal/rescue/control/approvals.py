"""Approvals: a person's yes or no to a gated step, by button, REST or signed link (invariants 43 to 45).

``kcover.decisions.approval`` counts the votes: when someone votes, and again when the gated step is about to begin.
Both happen under the lock of the rescue's row, so that two simultaneous clicks are processed one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover import actors, audit, reasons
from kcover.decisions import approval
from kcover_portal.accounts import queries as accounts
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import voters
from kcover_portal.rescue.lifecycle import create
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Approval, Rescue, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteInput:
    """A person's answer. ``via``: console, rest or link; ``link_maker``: who made the link, "" if a channel carried it.

    ``plan_hash``: the plan that the person saw, None to answer for the present one.
    """

    actor: str
    reason: str
    via: str = ""
    link_maker: str = ""
    plan_hash: str | None = None


def approve(rescue: Rescue, *, now: datetime, **answer: Any) -> Rescue:
    """Approves a rescue by an ``VoteInput``. Raises RescueRefused, also where it was answered before, the fault has
    cleared, or the vote would not count.
    """
    return _vote(rescue, True, VoteInput(**answer), now=now)


def reject(rescue: Rescue, *, now: datetime, **answer: Any) -> Rescue:
    """Rejects a rescue that waits for approval: it ends, and the node stays as it is. Raises RescueRefused."""
    return _vote(rescue, False, VoteInput(**answer), now=now)


def unanswered(*, now: datetime) -> QuerySet[Rescue]:
    """Rescues whose request was not answered in time, or whose incidents are all closed; the oldest request first."""
    about = Incident.objects.filter(rescues=OuterRef("pk"))
    waiting = Rescue.objects.filter(state=Rescue.State.HELD, hold=Rescue.Hold.APPROVAL)
    over = waiting.filter(Q(expires_at__lte=now) | (Exists(about) & ~Exists(about.filter(state="open"))))
    return over.order_by("expires_at")


def expire(*, now: datetime) -> int:
    """Ends the requests of ``unanswered``; isolated nodes stay isolated. Returns how many."""
    return sum(_end_unanswered(pk, now=now) for pk in unanswered(now=now).values_list("pk", flat=True)[:100])


@transaction.atomic
def _end_unanswered(pk: int, *, now: datetime) -> bool:
    """Ends one request. A simultaneous vote is processed before or after it, and is answered accordingly."""
    with ledger.last():
        waiting = Rescue.objects.filter(pk=pk, state=Rescue.State.HELD, hold=Rescue.Hold.APPROVAL)
        rescue = waiting.select_for_update(of=("self",)).select_related("node", "cluster").first()
        if rescue is None:
            return False
        answer = _answer(rescue, now=now)
        because = answer.because[0]
        if isinstance(answer, approval.Expired):
            return _end(rescue, because, outcome="expired", actor="system", now=now, human=True)
        if isinstance(answer, approval.Void):
            return _end(rescue, because, outcome="void", actor="system", now=now)
    return False


def granted(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Returns whether the step may begin: it is not gated, has begun before, or is approved.

    An attempt that a guard held back has begun nothing, and neither has one that a person retries. A step that had
    begun before approve mode was set (``gated``) continues for as long as the approval is valid.
    """
    if rescue.gate is None or step.index != rescue.gate:
        return True
    if has_begun(step) and not step.typed_progress.gated:
        return True
    return rescue.expires_at is not None and isinstance(_answer(rescue, now=now), approval.Approved)


def end_if_healed(rescue: Rescue, step: Step, *, now: datetime) -> bool:
    """Ends a rescue that is about to take work away for a fault that has cleared or was closed.

    A reset, a reboot or the restart of a job that was requested is completed, so that nothing is left half done. A
    drain stops at once. The node stays isolated, and a person is told.
    """
    if not step.takes_away or step.typed_progress.committed or not healed(rescue):
        return False
    return _end(rescue, reasons.of("fault_cleared"), outcome="void", actor="system", now=now)


def has_begun(step: Step) -> bool:
    """Returns whether the step has done anything yet: its progress then has more than a retry begins with."""
    return bool(step.attempts and step.typed_progress.begun)


def move_gate(rescue: Rescue, step: Step) -> None:
    """Moves the gate when a gated step is skipped: the next step that takes work away needs its own approval.

    Part of the caller's transaction, which has the rescue's row locked.
    """
    if rescue.gate != step.index:
        return
    later = rescue.steps.filter(index__gt=step.index).order_by("index")
    following = next((candidate.index for candidate in later if candidate.takes_away), None)
    if following is not None:
        Rescue.objects.filter(pk=rescue.pk).update(gate=following, expires_at=None)


def _vote(rescue: Rescue, approved: bool, given: VoteInput, *, now: datetime) -> Rescue:
    actor, reason = given.actor, given.reason
    with transaction.atomic(), ledger.last():
        row = Rescue.objects.select_for_update(of=("self",)).select_related("node", "cluster").get(pk=rescue.pk)
        _check_vote(row, approved, given)
        controllers = accounts.controllers(actor, at=now)
        if given.link_maker not in ("", actor):
            controllers = sorted({*controllers, given.link_maker})
        if approved:
            _check_person(row, actor, controllers, now=now)
        vote, _ = Approval.objects.update_or_create(
            rescue=row,
            step=row.gate or 0,
            plan_hash=row.plan_hash,
            by=actor,
            defaults={
                "node": row.node.name,
                "node_uid": row.node_uid,
                "approved": approved,
                "reason": reason,
                "via": given.via,
                "controllers": controllers,
                "at": now,
            },
        )
        answer = _answer(row, now=now)
        _note(row, vote, answer, now=now)
        _settle(row, answer, actor=actor, now=now)
    rescue.refresh_from_db()
    return rescue


def _check_vote(row: Rescue, approved: bool, given: VoteInput) -> None:
    """Raises RescueRefused unless the question is open and this person may still answer it."""
    if given.plan_hash is not None and given.plan_hash != row.plan_hash:
        raise RescueRefused(reasons.of("plan_changed"))
    if row.state != Rescue.State.HELD or row.hold != Rescue.Hold.APPROVAL:
        raise RescueRefused(reasons.of("not_awaiting_approval", rescue=str(row.pk)))
    if approved and given.actor in (row.requested_by, *row.requesters[:1]):
        raise RescueRefused(reasons.of("own_request"))
    if given.via == "link" and voters.needs_two_people(row):
        raise RescueRefused(reasons.of("link_needs_sign_in", user=actors.username(given.actor)))
    answered = row.approvals.filter(by=given.actor, step=row.gate or 0, plan_hash=row.plan_hash)
    if answered.filter(at__gte=_requested_at(row)).exists():
        raise RescueRefused(reasons.of("already_answered"))


def _check_person(row: Rescue, actor: str, controllers: Sequence[str], *, now: datetime) -> None:
    """Raises RescueRefused if the approval is not another person's, or completes one that must not count."""
    request = _request(row)
    vote = approval.Vote(subject=request.subject, approved=True, by=actor, at=now, controllers=tuple(controllers))
    refusal = approval.objection(request, _votes(row), vote)
    if refusal is not None:
        raise RescueRefused(refusal)
    gone = voters.who_may_not_any_more(row, since=request.requested_at)
    if gone is not None:
        raise RescueRefused(reasons.of("vote_of_gone", by=gone))


def _settle(rescue: Rescue, answer: approval.Answer, *, actor: str, now: datetime) -> None:
    """Carries out the result of the votes."""
    because = reasons.both(*answer.because)
    match answer:
        case approval.Approved():
            Rescue.objects.filter(pk=rescue.pk).update(
                state=Rescue.State.RUNNING, hold="", due_at=now, because={}, needs_human=False
            )
            doorbell.ring("rescue.run", rescue.pk)
        case approval.Waiting():
            Rescue.objects.filter(pk=rescue.pk).update(because=because.to_json())
        case approval.Rejected():
            _end(rescue, because, outcome="rejected", actor=actor, now=now)
        case approval.Expired():
            _end(rescue, because, outcome="expired", actor=actor, now=now, human=True)
        case approval.Void():
            _end(rescue, because, outcome="void", actor=actor, now=now)
    doorbell.publish("rescue", rescue.pk, cluster=rescue.cluster.name)


def _answer(rescue: Rescue, *, now: datetime) -> approval.Answer:
    request = _request(rescue)
    node = rescue.node
    actual = replace(request.subject, uid=node.uid) if rescue.node_uid and node.in_cluster else request.subject
    return approval.check(request, _votes(rescue), actual=actual, healed=healed(rescue), now=now)


def _request(rescue: Rescue) -> approval.Request:
    subject = approval.Subject(
        rescue=rescue.pk,
        step=rescue.gate or 0,
        plan_hash=rescue.plan_hash,
        node=rescue.node.name,
        uid=rescue.node_uid,
    )
    return approval.Request(
        subject=subject,
        requested_by=rescue.requested_by,
        requesters=tuple(rescue.requesters),
        requested_at=_requested_at(rescue),
        holds=timedelta(seconds=rescue.approval_seconds),
        approvers=rescue.approvers,
    )


def _votes(rescue: Rescue) -> list[approval.Vote]:
    return [
        approval.Vote(
            subject=approval.Subject(
                rescue=rescue.pk, step=vote.step, plan_hash=vote.plan_hash, node=vote.node, uid=vote.node_uid
            ),
            approved=vote.approved,
            by=vote.by,
            at=vote.at,
            reason=vote.reason,
            controllers=tuple(vote.controllers),
        )
        for vote in rescue.approvals.all()
    ]


def _requested_at(rescue: Rescue) -> datetime:
    """The time when approval was requested; only ``expires_at`` is stored, because the sweep looks for it."""
    assert rescue.expires_at is not None  # set with the hold
    return rescue.expires_at - timedelta(seconds=rescue.approval_seconds)


def healed(rescue: Rescue) -> bool:
    """Returns whether every fault that the rescue is about has been closed."""
    states = set(_STATES_OF_FAULTS.rows(rescue=rescue.pk))
    return bool(states) and Incident.State.OPEN not in states


_STATES_OF_FAULTS: Prepared[str] = Prepared(
    lambda rescue: Incident.objects.order_by().filter(rescues=rescue).values_list("state", flat=True), rescue=int
)


def _end(
    rescue: Rescue, because: reasons.Reason, *, outcome: str, actor: str, now: datetime, human: bool = False
) -> bool:
    """Ends the rescue. A person is told if its node stays isolated, or if ``human``."""
    marked = queries.marked_on(rescue.node) is not None
    ending = create.Ending(
        state="cancelled",
        outcome=outcome,
        because=reasons.both(because, reasons.of("stays_isolated" if marked else "nothing_done")),
        needs_human=human or marked,
    )
    # A rescue that was approved a moment ago is claimed under another token.
    return create.end(rescue, ending, actor=actor, now=now, token=rescue.token)


def _note(rescue: Rescue, vote: Approval, answer: approval.Answer, *, now: datetime) -> None:
    fields: dict[str, Any] = {
        "rescue": rescue.pk,
        "node": rescue.node.name,
        "step": vote.step,
        "plan_hash": vote.plan_hash,
        "uid": vote.node_uid,
        "reason": vote.reason,
        "via": vote.via,
        "controllers": tuple(vote.controllers),
    }
    granted = isinstance(answer, approval.Approved)
    act = audit.RescueApproved(**fields, granted=granted) if vote.approved else audit.RescueRejected(**fields)
    ledger.record(rescue.cluster.name, act, actor=vote.by, now=now)
