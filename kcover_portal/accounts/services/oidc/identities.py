"""Accounts of people who sign in through the provider, and the roles of their groups."""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover_portal.accounts.models import Identity, Role, RoleBinding, User
from kcover_portal.accounts.services import account_names
from kcover_portal.accounts.services.oidc.groups import MAX_NAME, join
from kcover_portal.accounts.services.oidc.id_tokens import is_name
from kcover_portal.accounts.services.oidc.problems import SignOnRefused
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

MAX_GROUPS = 1000


def actor(issuer: str) -> str:
    """Returns how the audit log names the provider, which gives and takes roles."""
    return f"provider:{urlsplit(issuer).netloc}"[:200]


def groups_of(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """Returns the groups in the claims: a list of names, or one name. Raises SignOnRefused."""
    overage = claims.get("_claim_names")
    if claim not in claims and isinstance(overage, dict) and claim in overage:
        raise SignOnRefused(reasons.of("oidc_groups_overage", claim=claim), status=403)
    value = claims.get(claim)
    listed = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or len(listed) > MAX_GROUPS or not all(isinstance(one, str) for one in listed):
        raise SignOnRefused(reasons.of("oidc_groups_invalid", claim=claim, most=MAX_GROUPS), status=403)
    return frozenset(filter(is_name, listed))  # no other text can be mapped to a role


def account_of(claims: Mapping[str, Any], *, issuer: str, groups: Collection[str], now: datetime) -> Identity:
    """Returns the identity, with its account and the roles of these groups. The first sign-in creates the account.

    Raises SignOnRefused if the account is disabled, or another account has the name.
    """
    with transaction.atomic(), ledger.last():
        rows = Identity.objects.select_for_update(of=("self",)).select_related("user")
        identity = rows.filter(issuer=issuer, subject=claims["sub"]).first() or _create(claims, issuer=issuer, now=now)
        if not identity.user.is_active:
            raise SignOnRefused(reasons.of("oidc_account_disabled"), status=403)
        identity.name, identity.seen_at = _shown(claims), now
        identity.save(update_fields=["name", "seen_at"])
        join(identity.user, groups, actor=actor(issuer), now=now)
    return identity


def link(user: User, *, issuer: str, subject: str, actor: str, now: datetime, reason: str = "") -> Identity:
    """Links an account to a person at the provider, who can then sign in to it. Raises Refused."""
    if not (0 < len(issuer) <= MAX_NAME and 0 < len(subject) <= MAX_NAME):
        raise Refused(reasons.of("identity_invalid", most=MAX_NAME))
    with transaction.atomic(), ledger.last():
        identity, made = Identity.objects.select_related("user").get_or_create(
            issuer=issuer, subject=subject, defaults={"user": user, "created_at": now, "seen_at": now}
        )
        if not made:
            raise Refused(reasons.of("identity_taken", user=identity.user.username))
        act = audit.IdentityLinked(user=user.username, issuer=issuer, subject_id=subject, reason=reason)
        ledger.record("", act, actor=actor, now=now)
    return identity


def unlink(user: User, *, issuer: str, subject: str, actor: str, now: datetime, reason: str = "") -> None:
    """Takes a link back: ends the sessions of the identity and removes the roles of its groups. Raises Refused."""
    with transaction.atomic(), ledger.last():
        deleted, _ = Identity.objects.filter(user=user, issuer=issuer, subject=subject).delete()
        if not deleted:
            raise Refused(reasons.of("identity_unknown", user=user.username))
        join(user, (), actor=actor, now=now)
        act = audit.IdentityUnlinked(user=user.username, issuer=issuer, subject_id=subject, reason=reason)
        ledger.record("", act, actor=actor, now=now)


def _create(claims: Mapping[str, Any], *, issuer: str, now: datetime) -> Identity:
    if not (name := account_names.usable(claims)):
        raise SignOnRefused(reasons.of("oidc_name_invalid"), status=403)
    taken = SignOnRefused(reasons.of("oidc_name_taken", name=name, subject=claims["sub"]), status=403)
    if User.objects.filter(username__iexact=name).exists():
        raise taken
    if account_names.are_alike(name, User.objects.values_list("username", flat=True)):
        raise SignOnRefused(reasons.of("oidc_name_alike", name=name, subject=claims["sub"]), status=403)
    user = User(username=name)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError as error:  # the same name at the same time
        raise taken from error
    act = audit.IdentityCreated(user=name, issuer=issuer, subject_id=claims["sub"])
    ledger.record("", act, actor=actor(issuer), now=now)
    log.info("%s: user %s, issuer %s", act.verb, name, issuer)
    return Identity.objects.create(user=user, issuer=issuer, subject=claims["sub"], created_at=now, seen_at=now)


def _shown(claims: Mapping[str, Any]) -> str:
    for claim in account_names.CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= 200:
            return value
    return ""


def is_admin_by_hand(user: User) -> bool:
    """Returns whether a person made the user an admin of all clusters. Groups of the provider do not count."""
    by_hand = user.bindings.filter(source=RoleBinding.Source.HAND, cluster__isnull=True, role=Role.ADMIN)
    return user.is_superuser or by_hand.exists()
