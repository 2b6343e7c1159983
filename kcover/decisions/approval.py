"""Approvals: evaluate people's votes on a gated step.

An approval is bound to the rescue, the step, the plan's hash and the node. A change of any of them voids it. Requesters
cannot approve their own request, each person counts once, one rejection is enough (a requester's, too), and approvals
expire (invariants 43 to 45).

Whoever set the password or the role of an account a short time ago could use it. So accounts with a common controller
count as one person, and none of them approves what one of them requested.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from kcover import actors, reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of an approval: one step of one plan for one node. ``uid`` distinguishes machines of one name."""

    rescue: int
    step: int
    plan_hash: str
    node: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request for approval.

    ``holds``: how long the request and each approval stay valid. ``approvers``: how many people must approve.
    ``requested_by``: the requester, named as votes name people. ``requesters``: others who count as the requester: the
    owner of the token, and who could have used the requester's account.
    """

    subject: Subject
    requested_by: str
    requesters: tuple[str, ...] = ()
    requested_at: datetime
    holds: timedelta
    approvers: int = 1

    @property
    def expires_at(self) -> datetime:
        """Votes no longer count from this time on."""
        return self.requested_at + self.holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's vote, and what the person saw. ``controllers``: others who could have used the person's account."""

    subject: Subject
    approved: bool
    by: str
    at: datetime
    reason: str = ""
    controllers: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Everybody who may have cast the vote."""
        return frozenset((self.by, *self.controllers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """The step may run before ``until``."""

    by: tuple[str, ...]
    until: datetime
    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """``missing`` more people must approve."""

    missing: int
    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A person rejected the request."""

    by: str
    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Not enough approvals in time: the node stays as it is, isolated and not rebooted."""

    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Void:
    """Nothing is left to approve: the plan changed, or the fault has cleared."""

    because: tuple[reasons.Reason, ...]


Answer = Approved | Waiting | Rejected | Expired | Void


def check(request: Request, votes: Iterable[Vote], *, actual: Subject, healed: bool, now: datetime) -> Answer:
    """Count the votes. ``actual``: the step, plan and node as they are now. ``healed``: the fault has cleared.

    The reasons also say which votes did not count, and why.
    """
    changed = _difference(request.subject, actual)
    if changed is not None:
        part, requested, found = changed
        return Void(because=(reasons.of("approval_void", part=part, asked=requested, actual=found),))
    if healed:
        return Void(because=(reasons.of("approval_healed"),))
    in_time = sorted((vote for vote in votes if vote.at <= now), key=lambda vote: (vote.at, vote.by))
    refusals = [_refusal(vote, request) for vote in in_time]
    counted = [vote for vote, refusal in zip(in_time, refusals, strict=True) if refusal is None]
    ignored = tuple(refusal for refusal in refusals if refusal is not None)
    for vote in counted:
        if not vote.approved:
            return Rejected(by=vote.by, because=(_rejection(vote), *ignored))
    people = _people([vote for vote in counted if now < vote.at + request.holds])
    ignored = (*ignored, *_repeats(people))
    missing = request.approvers - len(people)
    if missing <= 0:
        standing = [max(vote.at for vote in votes) + request.holds for votes in people]
        until = sorted(standing, reverse=True)[request.approvers - 1]
        names = tuple(votes[0].by for votes in people)
        granted = reasons.of("approval_granted", by=", ".join(names), until=reasons.moment(until))
        return Approved(by=names, until=until, because=(granted, *ignored))
    ends = reasons.moment(request.expires_at)
    if now >= request.expires_at:
        return Expired(because=(reasons.of("approval_expired", until=ends), *ignored))
    waits = reasons.of("approval_waits", missing=missing, needed=request.approvers, until=ends)
    return Waiting(missing=missing, because=(waits, *ignored))


def objection(request: Request, votes: Iterable[Vote], vote: Vote) -> reasons.Reason | None:
    """The reason why this approval adds no person to the earlier votes; None if it does. Times are not checked."""
    refusal = _refused_person(vote, request)
    if refusal is not None or not vote.approved:
        return refusal
    earlier = [one for one in votes if one.approved and one.by != vote.by and _refusal(one, request) is None]
    before, after = _people(earlier), _people([*earlier, vote])
    return None if len(after) > len(before) else _repeats([next(one for one in after if vote in one)])[-1]


def _people(votes: Iterable[Vote]) -> list[list[Vote]]:
    """The votes by person: votes with a name in common are one person's."""
    people: list[list[Vote]] = []
    for vote in votes:
        same = [one for one in people if any(vote.names & other.names for other in one)]
        people = [one for one in people if one not in same]
        people.append([*(other for one in same for other in one), vote])
    return people


def _repeats(people: Iterable[list[Vote]]) -> tuple[reasons.Reason, ...]:
    """The reason why a person's further votes do not count."""
    return tuple(
        reasons.of("vote_same_person", by=vote.by, other=first.by)
        for first, *further in people
        for vote in further
        if vote.by != first.by
    )


def _difference(expected: Subject, actual: Subject) -> tuple[reasons.Reason, str, str] | None:
    """The first part in which two subjects differ."""
    for part in fields(Subject):
        first, second = getattr(expected, part.name), getattr(actual, part.name)
        if first != second:
            return reasons.of(f"part_{part.name}"), str(first), str(second)
    return None


def _refusal(vote: Vote, request: Request) -> reasons.Reason | None:
    """The reason why a vote does not count."""
    changed = _difference(request.subject, vote.subject)
    if changed is not None:
        part, requested, voted = changed
        return reasons.of("vote_void", by=vote.by, part=part, asked=requested, voted=voted)
    person = _refused_person(vote, request)
    if person is not None:
        return person
    if vote.at < request.requested_at:
        return reasons.of("vote_early", by=vote.by, at=reasons.moment(vote.at))
    if vote.at >= request.expires_at:
        return reasons.of("vote_late", by=vote.by, at=reasons.moment(vote.at))
    return None


def _refused_person(vote: Vote, request: Request) -> reasons.Reason | None:
    """The reason why this person cannot cast the vote. A rejection by the requester counts: it prevents the act."""
    if actors.is_token(vote.by):
        return reasons.of("vote_of_program", by=vote.by)
    if not vote.approved:
        return None
    if vote.by in (request.requested_by, *request.requesters):
        return reasons.of("vote_of_requester", by=vote.by)
    shared = sorted(vote.names & {request.requested_by, *request.requesters})
    if shared:
        return reasons.of("vote_controlled", by=vote.by, requester=shared[0])
    return None


def _rejection(vote: Vote) -> reasons.Reason:
    if vote.reason:
        return reasons.of("rejected_because", by=vote.by, why=vote.reason)
    return reasons.of("rejected", by=vote.by)
