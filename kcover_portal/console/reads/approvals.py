"""Approval requests with their evidence and votes, and the recently answered ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from kcover import actors
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User, Verb
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import rescues
from kcover_portal.fleet.models import Node
from kcover_portal.jobs import queries as jobs
from kcover_portal.lib import localization
from kcover_portal.rescue import queries
from kcover_portal.rescue.control import approval_links, hand_approval, voters
from kcover_portal.rescue.models import Approval, Rescue, Step
from kcover_portal.rescue.queries import needs_person

MAX_ROWS = 100
MAX_RECENT_ANSWERS = 8
UNANSWERED = ("expired", "void")  # the outcomes of a request that nobody answered


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the plan; ``gate``: this step needs the approval, the steps before it ran without."""

    step: Step
    title: str | Promise
    gate: bool


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """An approval request as a person reads it.

    ``isolated``: without an answer the node stays isolated; otherwise nothing was done to it. ``evicts``: the plan
    takes running work away. ``refusal``: why the reader cannot answer, "" if the reader can. ``cancels``: the
    reader may cancel the request. ``signs_in``: a link alone does not answer it.
    """

    rescue: Rescue
    plan: Sequence[PlannedStep]
    votes: Sequence[Approval]
    isolated: bool
    evicts: bool
    refusal: str = ""
    hands_out: bool = False
    cancels: bool = False
    signs_in: bool = False

    @property
    def yes(self) -> list[str]:
        """The names of those who approved."""
        return [actors.username(vote.by) for vote in self.votes if vote.approved]


@dataclass(frozen=True, slots=True)
class ApprovalOutcome:
    """An answer, or the end of a request; ``by`` is "" when the request expired or became void."""

    at: datetime
    rescue: Rescue
    look: Badge
    by: str
    reason: str
    via: str


def waiting(scope: accounts.Scope, *, user: User) -> list[ApprovalRequest]:
    """Open approval requests in the scope; the first to expire comes first."""
    rows = _with_evidence(scope.rows(needs_person.awaiting_approval()))
    return [question(rescue, user=user) for rescue in rows.order_by("expires_at", "pk")[:MAX_ROWS]]


def _with_evidence(rows: QuerySet[Rescue]) -> QuerySet[Rescue]:
    return rows.select_related("node", "cluster", "decision").prefetch_related("steps", "incidents")


def question(rescue: Rescue, *, user: User | None) -> ApprovalRequest:
    """The approval request of a rescue; ``user`` is None for a reader who answers by link."""
    steps = list(rescue.steps.all())
    gate = rescue.gate or 0
    votes = list(approval_links.votes(rescue))
    return ApprovalRequest(
        rescue=rescue,
        plan=[PlannedStep(step, rescues.title(step), step.index == gate) for step in steps if _asked_about(step)],
        votes=votes,
        isolated=queries.marked_on(rescue.node) is not None,
        evicts=any(step.takes_away for step in steps if step.index >= gate),
        refusal=_refusal(rescue, votes, user) if user is not None else "",
        hands_out=user is not None
        and accounts.may(user, Verb.APPROVE, rescue.node)
        and not voters.is_requester(rescue, accounts.actor(user)),
        cancels=user is not None and _cancels(rescue, user),
        signs_in=user is None and voters.needs_two_people(rescue),
    )


def _cancels(rescue: Rescue, user: User) -> bool:
    own = accounts.actor(user) in rescue.requesters[:1]
    verb = Verb.REPAIR if own or not hand_approval.is_held_question(rescue) else Verb.APPROVE
    return accounts.may(user, verb, rescue.node)


def _asked_about(step: Step) -> bool:
    """Returns whether a step is part of the request; cancelled steps of earlier rounds are not."""
    return step.state != Step.State.CANCELLED


def _refusal(rescue: Rescue, votes: Sequence[Approval], user: User) -> str:
    actor = accounts.actor(user)
    if not accounts.may(user, Verb.APPROVE, rescue.node):
        return _("Requires the %(role)s role.") % {"role": Role.APPROVER.label}
    if voters.is_requester(rescue, actor):
        return _("You cannot approve your own request.")
    if any(vote.by == actor for vote in votes):
        return _("You have answered. Waiting for others.")
    return ""


@dataclass(frozen=True, slots=True)
class AffectedJob:
    """A training job with pods on the node of a request. ``others``: requests about its other nodes, by expiry."""

    job: jobs.JobView
    others: Sequence[Rescue]

    @property
    def picked(self) -> str:
        """The keys of the other requests, for one answer to all."""
        return ",".join(str(other.pk) for other in self.others)


def affected_jobs(
    node: Node, scope: accounts.Scope, *, asked: Rescue | None = None, now: datetime
) -> list[AffectedJob]:
    """The training jobs that an act on the node would interrupt; none if the cluster does not answer.

    ``asked``: the request that the reader looks at.
    """
    found, _silent = jobs.jobs([node.cluster], scope, now=now)
    hit = [job for job in found if node.name in job.nodes]
    if not hit:
        return []
    rows = scope.rows(needs_person.awaiting_approval().filter(cluster=node.cluster))
    others = rows.exclude(pk=asked.pk) if asked else rows
    waiting = list(others.select_related("node").order_by("expires_at", "pk")[:MAX_ROWS])
    return [AffectedJob(job, [other for other in waiting if other.node.name in job.nodes]) for job in hit]


def next_question(user: User, *, after: int) -> int | None:
    """The key of the next request that the user can answer; None if there is none."""
    open_ones = waiting(accounts.scope(user), user=user)
    return next((one.rescue.pk for one in open_ones if one.rescue.pk != after and not one.refusal), None)


def answered(scope: accounts.Scope) -> list[ApprovalOutcome]:
    """Recently answered or ended requests, newest first."""
    votes = scope.rows(Approval.objects.all(), "rescue__cluster", "rescue__node")
    given = votes.select_related("rescue__node", "rescue__cluster")
    ended = Rescue.objects.filter(scope.where(), outcome__in=UNANSWERED, closed_at__isnull=False)
    found = [
        ApprovalOutcome(
            vote.at,
            vote.rescue,
            presentation.of("vote", "yes" if vote.approved else "no"),
            actors.username(vote.by),
            vote.reason,
            vote.via,
        )
        for vote in given.order_by("-at")[:MAX_RECENT_ANSWERS]
    ]
    found += [
        ApprovalOutcome(
            rescue.closed_at,
            rescue,
            presentation.of("vote", rescue.outcome),
            "",
            localization.stored(rescue.because),
            "",
        )
        for rescue in ended.select_related("node", "cluster").order_by("-closed_at")[:MAX_RECENT_ANSWERS]
        if rescue.closed_at is not None
    ]
    return sorted(found, key=lambda answer: answer.at, reverse=True)[:MAX_RECENT_ANSWERS]


def approvers(rescue: Rescue, *, maker: User) -> list[User]:
    """The people for whom ``maker`` may create a link (see ``approval_links.invite``)."""
    others = rescue.approvers == 1 or accounts.may(maker, Verb.ADMINISTER, rescue.node)
    people = User.objects.filter(is_active=True).prefetch_related("bindings").order_by("username")
    return [
        person
        for person in (people if others else people.filter(pk=maker.pk))
        if accounts.may(person, Verb.APPROVE, rescue.node) and not voters.is_requester(rescue, accounts.actor(person))
    ]
