"""Signed links: a named approver answers one question from wherever the link finds them, without signing in.

A link is bound to the rescue, its plan, its gated step and the person, and holds as long as the question does. It opens
nothing by itself: the person must exist, be active and have the role when it is used, and ``approving`` decides as it
does for every other door.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core import signing
from django.db.models import QuerySet

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Approval, Rescue
from kcover_portal.rescue.services.opening import Refused

SALT = "kcover.rescue.approval-link"
PATH = "/approve/{token}/"

# Why a link opens nothing.
BAD, EXPIRED, NOBODY, VOID, ANSWERED, OVER = "bad", "expired", "nobody", "void", "answered", "over"


class LinkError(Exception):
    """The link opens nothing (any more). ``code`` says why; ``rescue`` is there for whoever may know of it."""

    def __init__(self, code: str, rescue: Rescue | None = None, *, vote: Approval | None = None) -> None:
        super().__init__(code)
        self.code, self.rescue, self.vote = code, rescue, vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What a link opens: the question, and the person whose answer it takes."""

    rescue: Rescue
    user: User


def approve_link(rescue: Rescue, user: User) -> str:
    """The link by which ``user`` answers what the rescue asks now; a path only where ``KCOVER_PUBLIC_URL`` is not set.

    Whoever has it answers in the person's name, so it goes to nobody else. Raises Refused where nothing is asked, or
    the person may not answer.
    """
    if not awaits(rescue):
        raise Refused(f"rescue {rescue.pk} does not wait for approval")
    if not accounts.may(user, Role.APPROVER, rescue.cluster):
        raise Refused(f"{user.get_username()} may not approve in cluster {rescue.cluster.name}")
    if accounts.actor(user) == rescue.requested_by:
        raise Refused("who asked for it cannot approve it: somebody else must")
    token = _signer().sign_object([rescue.pk, rescue.plan_hash, rescue.gate or 0, user.pk], compress=True)
    return settings.KCOVER_PUBLIC_URL.rstrip("/") + PATH.format(token=token)


def invite(rescue: Rescue, user: User, *, maker: User, now: datetime) -> str:
    """``approve_link`` for a person who hands it on, on record. Raises Refused.

    The maker sees the link and could use it. So where two people must say yes nobody but an admin, who could make
    people just as well, makes one for somebody else; and who asked for the rescue makes none.
    """
    own = maker.pk == user.pk
    if accounts.actor(maker) == rescue.requested_by:
        raise Refused("who asked for it cannot hand out links to approve it: somebody else must")
    if not own and rescue.approvers > 1 and not accounts.may(maker, Role.ADMIN, rescue.cluster):
        raise Refused("where two people must say yes only an admin makes a link for somebody else")
    link = approve_link(rescue, user)
    ledger.write(
        rescue.cluster.name,
        actor=accounts.actor(maker),
        verb="rescue.link_made",
        subject=f"rescue {rescue.pk}",
        node=rescue.node.name,
        rescue=rescue.pk,
        now=now,
        data={"for": accounts.actor(user), "step": rescue.gate or 0, "plan_hash": rescue.plan_hash},
    )
    return link


def read(token: str, *, now: datetime) -> Invitation:
    """What the link opens now. Raises LinkError."""
    try:
        pk, plan_hash, step, user_pk = _signer().unsign_object(token)
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise LinkError(BAD) from error
    rescue = Rescue.objects.select_related("node", "cluster", "decision").filter(pk=pk).first()
    user = User.objects.filter(pk=user_pk, is_active=True).first()
    if rescue is None or user is None or not accounts.may(user, Role.APPROVER, rescue.cluster):
        raise LinkError(NOBODY)
    if (rescue.plan_hash, rescue.gate or 0) != (plan_hash, step):
        raise LinkError(VOID, rescue)
    vote = votes(rescue).filter(by=accounts.actor(user)).first()
    if vote is not None:
        raise LinkError(ANSWERED, rescue, vote=vote)
    if not awaits(rescue):
        raise LinkError(EXPIRED if rescue.outcome == "expired" else OVER, rescue)
    if _too_old(token, rescue) or (rescue.expires_at is not None and now >= rescue.expires_at):
        raise LinkError(EXPIRED, rescue)
    return Invitation(rescue=rescue, user=user)


def awaits(rescue: Rescue) -> bool:
    """Whether the rescue waits for a person's yes."""
    return rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL


def votes(rescue: Rescue) -> QuerySet[Approval]:
    """What people answered to what the rescue asks, or asked last; answers to an earlier asking are not among them."""
    given = rescue.approvals.filter(step=rescue.gate or 0, plan_hash=rescue.plan_hash).order_by("at", "pk")
    if rescue.expires_at is None:
        return given
    return given.filter(at__gte=rescue.expires_at - timedelta(seconds=rescue.approval_seconds))


def _too_old(token: str, rescue: Rescue) -> bool:
    """Whether it was made for an earlier question about the very same plan and step."""
    try:
        _signer().unsign_object(token, max_age=rescue.approval_seconds)
    except signing.SignatureExpired:
        return True
    return False


def _signer() -> signing.TimestampSigner:
    return signing.TimestampSigner(salt=SALT)
