"""Rotation: a new secret for a program, while the old one stays valid for a while."""

from datetime import datetime, timedelta

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.accounts.services import tokens
from kcover_portal.ledger import services as ledger

MAX_OVERLAP = timedelta(days=7)
DEFAULT_OVERLAP = timedelta(days=1)


def rotate(
    token: ApiToken, *, overlap: timedelta = DEFAULT_OVERLAP, owner: User | None, actor: str, now: datetime
) -> tuple[ApiToken, str]:
    """Creates a token with the same rights and the same lifetime, and ends the old one after ``overlap``.

    ``owner``: who rotates it; None for the shell. A token without an owner gets this one. Raises Refused for a token
    of another person: whoever knows the new secret could act in that person's name.
    """
    if not timedelta(0) <= overlap <= MAX_OVERLAP:
        most = round(MAX_OVERLAP.total_seconds())
        raise tokens.Refused(reasons.of("overlap_out_of_range", most=most))
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(token.cluster)
        row = ApiToken.objects.select_for_update(of=("self",)).select_related("cluster", "owner").get(pk=token.pk)
        if owner is not None and row.owner not in (None, owner):
            raise tokens.Refused(reasons.of("token_rotated_by_owner"))
        if not may_rotate(row, owner or row.owner, now=now):
            raise tokens.Refused(reasons.of("token_not_rotated", token=row.prefix))
        created, secret = tokens.make_token(
            row.kind,
            cluster=row.cluster,
            source=row.source,
            name=row.name,
            expires_at=now + (row.expires_at - row.created_at) if row.expires_at else None,
            scopes=row.scopes,
            verbs=row.verbs,
            networks=row.networks,
            owner=row.owner or owner,
            created_by=actor,
            now=now,
        )
        row.replaced_by = created
        row.expires_at = min(row.expires_at or now + overlap, now + overlap)
        row.save(update_fields=["replaced_by", "expires_at"])
        act = audit.TokenRotated(token=row.prefix, kind=row.kind, successor=created.prefix, expires_at=row.expires_at)
        ledger.record(row.cluster.name if row.cluster else "", act, actor=actor, now=now)
    return created, secret


def may_rotate(token: ApiToken, who: User | None, *, now: datetime) -> bool:
    """Returns whether the token is valid, was not rotated yet, and is this person's or nobody's."""
    valid = token.revoked_at is None and (token.expires_at is None or token.expires_at > now)
    return valid and not token.node and token.replaced_by_id is None and token.owner in (None, who)
