"""Enrolment: a node's own credential for who shows an enrolment token, or is vouched for by the cluster."""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from kcover import reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import tokens
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.ledger import services as ledger


class InUse(tokens.Later):
    """The node's credential was used a moment ago."""


def enrol(token: ApiToken, node: str, *, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """The node's own credential for an enrolment token: one node, one live credential from enrolling.

    Who holds an enrolment token may claim any node of its cluster, so a node that is heard of is left its credential:
    InUse is raised while one was used within AGENT_SILENT_AFTER. An agent that lost its disk is silent and so comes
    back; what it was enrolled with before is revoked, and the ledger says so. What an administrator bound to the node
    is left alone. Raises Refused for an enrolment token no longer in force.
    """
    with transaction.atomic(), ledger.last():
        # Two enrolments of one node at once: the second waits here and finds the first one's credential.
        cluster = Cluster.objects.get(tokens=token)
        tokens.lock_nodes(cluster)
        if not ApiToken.objects.filter(tokens.in_force(now), pk=token.pk).exists():
            raise tokens.Refused("the enrolment token is expired or revoked; create one with manage.py token create")
        before = tokens.of_node(cluster, node, now=now)
        for one in before:
            _refuse_if_in_use(one, now=now)
        return _replace(before, cluster, node, by=token.prefix, expires_at=expires_at, now=now)


def enrol_proven(cluster: Cluster, node: str, *, by: str, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """The node's own credential for somebody whom the cluster itself puts on that node (``by``, for the ledger).

    Nobody else can be meant, so a credential in use is replaced at once; otherwise as ``enrol``.
    """
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(cluster)
        before = tokens.of_node(cluster, node, now=now)
        return _replace(before, cluster, node, by=by, expires_at=expires_at, now=now)


def _replace(
    before: Iterable[ApiToken], cluster: Cluster, node: str, *, by: str, expires_at: datetime, now: datetime
) -> tuple[ApiToken, str]:
    """A new credential from enrolling; those that the node had from enrolling are revoked."""
    made, secret = tokens.make_token(
        ApiToken.Kind.AGENT,
        cluster=cluster,
        node=node,
        name=f"enrolled by {by}",
        expires_at=expires_at,
        created_by=f"{tokens.BY_TOKEN}{by}",
        now=now,
    )
    for one in before:
        if one.created_by.startswith(tokens.BY_TOKEN):
            again = reasons.of("token_enrolled_again", token=made.prefix)
            tokens.withdraw(one, actor=made.created_by, now=now, because=again)
    return made, secret


def _refuse_if_in_use(credential: ApiToken, *, now: datetime) -> None:
    used_at = _used_at(credential)
    if used_at is None:
        return
    wait = used_at + fleet.AGENT_SILENT_AFTER - now
    if wait > timedelta():
        raise InUse(
            f"node {credential.node} uses its credential {credential.prefix}; it can enrol again once that is"
            f" revoked or unused for {fleet.AGENT_SILENT_AFTER.total_seconds():.0f} s",
            retry_after=math.ceil(wait.total_seconds()),
        )


def _used_at(credential: ApiToken) -> datetime | None:
    """When a node's credential was last used: as was noted, or since then by the node's last report."""
    if credential.last_used_at is None:
        return None
    heard = Agent.objects.filter(node__cluster=credential.cluster_id, node__name=credential.node)
    return max([credential.last_used_at, *heard.values_list("seen_at", flat=True)])
