"""Renewal: the holder of a node's credential exchanges it for a new one.

The new credential replaces the old one at its first use; until then both are valid. An agent that loses the response,
or dies before it stores the credential, can therefore renew again with the old one. A new credential that was never
used is then revoked, so a node has at most two. If a credential is copied, only one of the copies stays valid.
"""

import math
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from kcover import actors, reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import tokens
from kcover_portal.ledger import services as ledger
from kcover_portal.runtime.services import retention

MIN_RENEWAL_INTERVAL = timedelta(minutes=30)  # each renewal stays in the audit log; an agent retries once an hour
RENEWABLE = (ApiToken.Origin.ENROLMENT, ApiToken.Origin.RENEWAL)


class NotRenewable(tokens.Refused):
    """The credential was not created by an enrolment token, so its creator decides how long it is valid."""


class RenewedLately(tokens.RetryLater):
    """The node's last renewal was less than MIN_RENEWAL_INTERVAL ago."""


def renew(credential: ApiToken, *, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """Creates the node's next credential and returns it with its secret.

    Raises NotRenewable if the credential was not created by enrolment, RenewedLately, and Refused if it is not valid
    (any more).
    """
    if credential.origin not in RENEWABLE:
        raise NotRenewable(reasons.of("credential_bound", credential=credential.prefix))
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(credential.cluster)  # serializes with revocation, enrolment and first use
        in_force = tokens.of_node(credential.cluster, credential.node, now=now)
        if credential not in in_force:
            raise tokens.Refused(reasons.of("credential_invalid"))
        _limit_rate(credential, now=now)
        created, secret = tokens.make_token(
            ApiToken.Kind.AGENT,
            cluster=credential.cluster,
            node=credential.node,
            name=f"renewed from {credential.prefix}",
            expires_at=expires_at,
            created_by=actors.token(credential.prefix),
            origin=ApiToken.Origin.RENEWAL,
            parent=credential,
            now=now,
        )
        for other in in_force:
            if other.pk > credential.pk and _is_renewed(other):  # its response never arrived
                because = reasons.of("token_renewed_again", token=created.prefix)
                tokens.withdraw(other, actor=created.created_by, now=now, because=because)
    return created, secret


def takes_over(credential: ApiToken) -> bool:
    """Returns whether the credential is still unused and its first use will revoke others."""
    return credential.last_used_at is None and _is_renewed(credential)


def begin_to_use(credential: ApiToken, *, now: datetime) -> bool:
    """Must be called at a credential's first use. Revokes the credentials that a renewed one replaces.

    Returns whether the credential is still valid. Raises OperationalError if a lock is held for tokens.LOCK_TIMEOUT_MS.
    """
    if not takes_over(credential):
        return True
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(credential.cluster)
        in_force = tokens.of_node(credential.cluster, credential.node, now=now)
        if credential not in in_force:
            return False
        ApiToken.objects.filter(pk=credential.pk).update(last_used_at=now)
        for other in in_force:
            if other.pk < credential.pk and other.origin != ApiToken.Origin.GIVEN:
                because = reasons.of("token_renewed", token=credential.prefix)
                tokens.withdraw(other, actor=actors.token(credential.prefix), now=now, because=because)
    return True


def prune(*, now: datetime) -> int:
    """Deletes credentials from enrolments and renewals that ended long ago, and returns their number.

    A node uses about two dozen a year. The audit log keeps them.
    """
    before = retention.before(ApiToken, now=now)
    ended = Q(revoked_at__lt=before) | Q(expires_at__lt=before)
    return ApiToken.objects.filter(ended).exclude(origin=ApiToken.Origin.GIVEN).exclude(node="").delete()[0]


def _is_renewed(credential: ApiToken) -> bool:
    return credential.origin == ApiToken.Origin.RENEWAL


def _limit_rate(credential: ApiToken, *, now: datetime) -> None:
    of_node = ApiToken.objects.filter(cluster=credential.cluster, node=credential.node, created_at__lte=now)
    latest = of_node.filter(origin=ApiToken.Origin.RENEWAL).order_by("created_at").last()
    if latest is None or latest.created_at + MIN_RENEWAL_INTERVAL <= now:
        return
    raise RenewedLately(
        reasons.of(
            "renewed_recently",
            node=credential.node,
            at=reasons.moment(latest.created_at),
            interval=reasons.span(MIN_RENEWAL_INTERVAL),
        ),
        retry_after=math.ceil((latest.created_at + MIN_RENEWAL_INTERVAL - now).total_seconds()),
    )
