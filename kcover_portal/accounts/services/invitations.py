"""Invitations: an admin creates an account and a link, and the invited person chooses the password."""

import logging
import secrets
from datetime import datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Invitation, User
from kcover_portal.accounts.services import account_names, people, roles, tokens, user_errors
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

INVITATION_LIFETIME = timedelta(days=3)
PREFIX = "kci_"  # so that secret scanners and people recognize a leaked token


class InvitationInvalid(Refused):
    """The invitation is unknown, used, replaced or expired."""


def invite_new(
    name: str,
    *,
    role: str,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    actor: str,
    now: datetime,
) -> tuple[Invitation, str]:
    """Creates an account without a password and an invitation to it. Returns the invitation and its token.

    Raises Refused if the name is taken, malformed or like another one, or the role cannot be given (``roles.bind``).
    """
    if refused := account_names.refusal(name):
        raise Refused(refused)
    user = User(username=name)
    user.set_unusable_password()
    try:
        user.full_clean()
    except ValidationError as error:
        raise Refused(user_errors.reason_of(error, name)) from error
    with transaction.atomic():
        user.save()
        roles.bind(user, role, cluster=cluster, pool=pool, giver=giver, actor=actor, now=now)
        return invite(user, actor=actor, now=now)


def invite(user: User, *, actor: str, now: datetime) -> tuple[Invitation, str]:
    """Invites a person whose account has no password yet, on record. Earlier invitations end.

    Raises Refused if the account has a password.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        locked = User.objects.select_for_update().get(pk=user.pk)
        if locked.has_usable_password():
            raise Refused(reasons.of("invitation_not_new", user=user.username))
        user.invitations.filter(ended_at=None).update(ended_at=now)
        invitation = Invitation.objects.create(
            user=user,
            digest=tokens.digest(secret),
            created_by=actor,
            created_at=now,
            expires_at=now + INVITATION_LIFETIME,
        )
        act = audit.UserInvited(user=user.username, expires_at=invitation.expires_at)
        ledger.record("", act, actor=actor, now=now)
    log.info("%s: user %s, by %s", act.verb, user.username, actor)
    return invitation, secret


@sensitive_variables("secret")
def read(secret: str, *, now: datetime) -> User:
    """Returns the invited person. Raises InvitationInvalid."""
    return _find(secret, now=now).user


@sensitive_variables("secret", "password")
def accept(secret: str, password: str, *, address: str, now: datetime) -> User:
    """Sets the first password of the invited person, on record. Raises InvitationInvalid, or Refused."""
    with transaction.atomic():
        found = _find(secret, now=now)
        user = User.objects.select_for_update().get(pk=found.user_id)
        if not Invitation.objects.filter(pk=found.pk, ended_at=None).update(ended_at=now):
            raise InvitationInvalid(reasons.of("invitation_invalid"))
        people.set_password(user, password, actor=queries.actor(user), now=now)
        act = audit.InvitationAccepted(user=user.username, address=address)
        ledger.record("", act, actor=queries.actor(user), now=now)
    log.info("%s: user %s", act.verb, user.username)
    return user


def _find(secret: str, *, now: datetime) -> Invitation:
    open_ones = Invitation.objects.select_related("user").filter(ended_at=None, expires_at__gt=now)
    found = open_ones.filter(digest=tokens.digest(secret), user__is_active=True).first()
    if found is None or found.user.has_usable_password():
        raise InvitationInvalid(reasons.of("invitation_invalid"))
    return found
