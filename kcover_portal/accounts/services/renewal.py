"""Renewal: a node's credential is traded for the next one by whoever holds it.

The next one takes the place of the old one when it is first used. Until then both are good, so that an answer that was
lost, or an agent that died before it stored what it got, locks nobody out: the agent asks again with what it has, and
what it never used is withdrawn. So a node has two at most, and two that were copied from one do not both live on.
"""

import math
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from kcover import reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import tokens
from kcover_portal.ledger import services as ledger

AT_MOST_EVERY = timedelta(minutes=30)  # each is on record for ever; an agent asks once an hour until it has its answer
RENEWABLE = tuple(tokens.BY_TOKEN + tokens.PREFIXES[kind] for kind in ("agent", "node"))


class Bound(tokens.Refused):
    """Somebody else says how long this credential lives: an administrator, or the cluster that vouched for a pod."""


class RenewedLately(tokens.Later):
    """The node was given a credential by renewal less than AT_MOST_EVERY ago."""


def renew(credential: ApiToken, *, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """The next credential of the node whose credential this is, and its secret.

    Raises Bound for one that is not from enrolling, RenewedLately, and Refused for one that is not in force (any more).
    """
    if not credential.created_by.startswith(RENEWABLE):
        raise Bound(
            f"credential {credential.prefix} was not created by enrolment and cannot be renewed; "
            "enrol with an enrolment token or create one with manage.py token create --node"
        )
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(credential.cluster)  # revocation, enrolment, first use: before all this or after it
        in_force = tokens.of_node(credential.cluster, credential.node, now=now)
        if credential not in in_force:
            raise tokens.Refused(
                "the credential is expired, revoked or replaced; enrol with an enrolment token "
                "or create one with manage.py token create --node"
            )
        _refuse_a_flood(credential, now=now)
        made, secret = tokens.make_token(
            ApiToken.Kind.AGENT,
            cluster=credential.cluster,
            node=credential.node,
            name=f"renewed from {credential.prefix}",
            expires_at=expires_at,
            created_by=f"{tokens.BY_TOKEN}{credential.prefix}",
            now=now,
        )
        for one in in_force:
            if one.pk > credential.pk and _is_renewed(one):  # of an answer that never arrived
                unused = reasons.of("token_renewed_again", token=made.prefix)
                tokens.withdraw(one, actor=made.created_by, now=now, because=unused)
    return made, secret


def takes_over(credential: ApiToken) -> bool:
    """Whether its first use, which is to come, withdraws others."""
    return credential.last_used_at is None and _is_renewed(credential)


def begin_to_use(credential: ApiToken, *, now: datetime) -> bool:
    """To be called at a credential's first use: of one from renewing, what it was renewed from is withdrawn.

    Returns whether it is in force still. Raises OperationalError where a lock is held for tokens.PATIENCE_MS.
    """
    if not takes_over(credential):
        return True
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(credential.cluster)
        in_force = tokens.of_node(credential.cluster, credential.node, now=now)
        if credential not in in_force:
            return False
        ApiToken.objects.filter(pk=credential.pk).update(last_used_at=now)
        for one in in_force:
            if one.pk < credential.pk and one.created_by.startswith(tokens.BY_TOKEN):
                renewed = reasons.of("token_renewed", token=credential.prefix)
                tokens.withdraw(one, actor=f"{tokens.BY_TOKEN}{credential.prefix}", now=now, because=renewed)
    return True


def prune(*, before: datetime) -> int:
    """Forgets credentials from enrolling and renewing that ended before a moment; the ledger keeps them. Returns how
    many: a node has two dozen a year."""
    ended = Q(revoked_at__lt=before) | Q(expires_at__lt=before)
    return ApiToken.objects.filter(ended, created_by__startswith=tokens.BY_TOKEN).exclude(node="").delete()[0]


def _is_renewed(credential: ApiToken) -> bool:
    return credential.created_by.startswith(tokens.BY_TOKEN + tokens.PREFIXES["node"])


def _refuse_a_flood(credential: ApiToken, *, now: datetime) -> None:
    of_node = ApiToken.objects.filter(cluster=credential.cluster, node=credential.node, created_at__lte=now)
    latest = of_node.filter(created_by__startswith=RENEWABLE[1]).order_by("created_at").last()
    if latest is None or latest.created_at + AT_MOST_EVERY <= now:
        return
    raise RenewedLately(
        f"node {credential.node} was given its next credential at {latest.created_at:%H:%M:%S} UTC: renewing goes every"
        f" {AT_MOST_EVERY.total_seconds() / 60:.0f} min at most; this one is good until then",
        retry_after=math.ceil((latest.created_at + AT_MOST_EVERY - now).total_seconds()),
    )
