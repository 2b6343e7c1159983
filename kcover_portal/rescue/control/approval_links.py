"""Signed links: a named approver answers one request from anywhere, without signing in.

A link is bound to the rescue, its plan, its gated step and the person, and is valid until the request ends. It grants
nothing by itself. When it is used, the person must exist, be active and have the role, and ``approvals`` decides as it
does for the console and REST. Where two people take part, a link alone answers nothing.

The token is the fragment of the address: browsers send it to no server, so it is in no access log and in no Referer.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.core import signing
from django.db.models import QuerySet

from kcover import actors, audit, reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.control import voters
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Approval, Rescue

SALT = "kcover.rescue.approval-link"
PATH = "/approve/#{token}"

# Why a link is not valid.
BAD, EXPIRED, NOBODY, VOID, ANSWERED, OVER = "bad", "expired", "nobody", "void", "answered", "over"


class LinkError(Exception):
    """The link is not valid (any more). ``code`` says why; ``rescue`` is set if the reader may know of it."""

    def __init__(self, code: str, rescue: Rescue | None = None, *, vote: Approval | None = None) -> None:
        super().__init__(code)
        self.code, self.rescue, self.vote = code, rescue, vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """The content of a link: the request for approval, the person who may answer it, and who made the link.

    ``maker``: as the audit log names people; of a link that a channel carried, who chose its person and address.
    """

    rescue: Rescue
    user: User
    maker: str


def approve_link(rescue: Rescue, user: User, *, maker: str) -> str:
    """The link by which ``user`` answers the present request; only a path if ``KCOVER_PUBLIC_URL`` is not set.

    Its holder answers in the person's name, so it must go to nobody else. Raises RescueRefused if the rescue does
    not wait for approval, or the person may not approve.
    """
    if not awaits(rescue):
        raise RescueRefused(reasons.of("not_awaiting_approval", rescue=str(rescue.pk)))
    if not accounts.may(user, Verb.APPROVE, rescue.node):
        raise RescueRefused(reasons.of("may_not_approve", user=user.get_username(), cluster=rescue.cluster.name))
    if voters.is_requester(rescue, accounts.actor(user)):
        raise RescueRefused(reasons.of("approver_is_requester", user=user.get_username()))
    content = [rescue.pk, rescue.plan_hash, rescue.gate or 0, user.pk, maker]
    token = _signer().sign_object(content, compress=True)
    return settings.KCOVER_PUBLIC_URL.rstrip("/") + PATH.format(token=token)


def invite(rescue: Rescue, user: User, *, maker: User, now: datetime) -> str:
    """``approve_link`` for a person who hands it on; recorded in the audit log. Raises RescueRefused.

    The maker sees the link and could use it. So if two people must approve, only an admin (who could create people
    as well) makes a link for someone else; and the requester makes none.
    """
    own = maker.pk == user.pk
    if voters.is_requester(rescue, accounts.actor(maker)):
        raise RescueRefused(reasons.of("own_request_link"))
    if not own and rescue.approvers > 1 and not accounts.may(maker, Verb.ADMINISTER, rescue.node):
        raise RescueRefused(reasons.of("admin_makes_links"))
    link = approve_link(rescue, user, maker=accounts.actor(maker))
    act = audit.ApprovalLinkMade(
        rescue=rescue.pk,
        node=rescue.node.name,
        approver=accounts.actor(user),
        step=rescue.gate or 0,
        plan_hash=rescue.plan_hash,
    )
    ledger.record(rescue.cluster.name, act, actor=accounts.actor(maker), now=now)
    return link


def channel_link(rescue: Rescue, user: User, *, addressed_by: str, person_by: str) -> str:
    """``approve_link`` for a channel that reaches this person. Raises RescueRefused.

    ``addressed_by``, ``person_by``: the actors who chose the channel's address, where the link can be read, and its
    person. Unless that is the person, each must be an admin, as for ``invite``.
    """
    for chooser in {addressed_by, person_by} - {accounts.actor(user)}:
        maker = accounts.find_user(actors.username(chooser)) if actors.is_user(chooser) else None
        if maker is None or not maker.is_active or not accounts.may(maker, Verb.ADMINISTER, rescue.node):
            raise RescueRefused(reasons.of("admin_makes_links"))
    return approve_link(rescue, user, maker=addressed_by)


def read(token: str, *, now: datetime) -> Invitation:
    """The request that the link opens now. Raises LinkError."""
    try:
        pk, plan_hash, step, user_pk, maker = _signer().unsign_object(token)
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise LinkError(BAD) from error
    rescue = Rescue.objects.select_related("node", "cluster", "decision").filter(pk=pk).first()
    user = User.objects.filter(pk=user_pk, is_active=True).first()
    if rescue is None or user is None or not accounts.may(user, Verb.APPROVE, rescue.node):
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
    return Invitation(rescue=rescue, user=user, maker=maker)


def awaits(rescue: Rescue) -> bool:
    return rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL


def votes(rescue: Rescue) -> QuerySet[Approval]:
    """The answers to the present or last request for approval, without those to earlier requests."""
    given = rescue.approvals.filter(step=rescue.gate or 0, plan_hash=rescue.plan_hash).order_by("at", "pk")
    if rescue.expires_at is None:
        return given
    return given.filter(at__gte=rescue.expires_at - timedelta(seconds=rescue.approval_seconds))


def _too_old(token: str, rescue: Rescue) -> bool:
    """Returns whether the link was made for an earlier request about the same plan and step."""
    try:
        _signer().unsign_object(token, max_age=rescue.approval_seconds)
    except signing.SignatureExpired:
        return True
    return False


def _signer() -> signing.TimestampSigner:
    return signing.TimestampSigner(salt=SALT)
