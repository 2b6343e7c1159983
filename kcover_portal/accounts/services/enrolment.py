"""Enrolment: gives an agent its node's credential, for an enrolment token or a pod token of the cluster."""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from kcover import actors, reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import parked_names, tokens
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.fleet.services import parked_nodes
from kcover_portal.ledger import services as ledger

MAX_REPEATS = 5  # enrolments of one node by enrolment tokens within REPEATS_WINDOW
REPEATS_WINDOW = timedelta(hours=1)


class InUse(tokens.RetryLater):
    """The node's current credential was used recently."""


class EnrolledOften(tokens.RetryLater):
    """The node was enrolled too often lately."""


def enrol(token: ApiToken, node: str, *, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """Creates the node's credential and returns it with its secret.

    An enrolment token can claim any node of its cluster, so a credential that is in use is protected. InUse is
    raised if one was used within AGENT_SILENT_AFTER. An agent that lost its disk is silent and can enrol again.
    Credentials from earlier enrolments are revoked, on record; one that an administrator bound to the node stays valid.
    A node that the cluster does not have is parked; UnknownNode is raised beyond the bounds for such names, and
    EnrolledOften beyond MAX_REPEATS: a stolen enrolment token must neither fill the audit log nor take the credentials
    of a silent node again and again.
    Raises Refused if the enrolment token is expired or revoked, its owner is disabled, or does not administer the
    cluster any more.
    """
    with transaction.atomic(), ledger.last():
        # Of two concurrent enrolments of one node, the second waits for this lock and sees the first one's credential.
        cluster = Cluster.objects.get(tokens=token)
        tokens.lock_nodes(cluster)
        valid = ApiToken.objects.select_related("cluster", "owner").filter(tokens.in_force(now), tokens.owner_enabled())
        current = valid.filter(pk=token.pk).first()
        if current is None:
            raise tokens.Refused(reasons.of("enrolment_token_invalid"))
        tokens.check_owner(current)
        existing = tokens.of_node(cluster, node, now=now)
        for credential in existing:
            _refuse_if_in_use(credential, now=now)
        _refuse_if_enrolled_often(cluster, node, now=now)
        parked_names.park_unknown(token, cluster, node, now=now)
        return _replace(existing, cluster, node, by=token.prefix, parent=token, expires_at=expires_at, now=now)


def enrol_proven(
    cluster: Cluster, node: str, *, account: str, expires_at: datetime, now: datetime
) -> tuple[ApiToken, str]:
    """Like ``enrol``, for a service ``account`` whose pod the cluster itself places on the node.

    The cluster has proved which node it is, so a credential in use is replaced at once.
    """
    with transaction.atomic(), ledger.last():
        tokens.lock_nodes(cluster)
        existing = tokens.of_node(cluster, node, now=now)
        return _replace(existing, cluster, node, by=f"service account {account}", expires_at=expires_at, now=now)


def _replace(
    existing: Iterable[ApiToken],
    cluster: Cluster,
    node: str,
    *,
    by: str,
    parent: ApiToken | None = None,
    expires_at: datetime,
    now: datetime,
) -> tuple[ApiToken, str]:
    """Creates a credential and revokes those that earlier enrolments created. ``parent``: the enrolment token."""
    created, secret = tokens.make_token(
        ApiToken.Kind.AGENT,
        cluster=cluster,
        node=node,
        name=f"enrolled by {by}",
        expires_at=expires_at,
        created_by=actors.token(by),
        origin=ApiToken.Origin.ENROLMENT if parent else ApiToken.Origin.ACCOUNT,
        parent=parent,
        now=now,
    )
    for credential in existing:
        if credential.origin != ApiToken.Origin.GIVEN:
            because = reasons.of("token_enrolled_again", token=created.prefix)
            tokens.withdraw(credential, actor=created.created_by, now=now, because=because)
    return created, secret


def _refuse_if_in_use(credential: ApiToken, *, now: datetime) -> None:
    used_at = _used_at(credential)
    if used_at is None:
        return
    wait = used_at + fleet.AGENT_SILENT_AFTER - now
    if wait > timedelta():
        raise InUse(
            reasons.of(
                "credential_in_use",
                node=credential.node,
                credential=credential.prefix,
                wait=f"{fleet.AGENT_SILENT_AFTER.total_seconds():.0f} s",
            ),
            retry_after=math.ceil(wait.total_seconds()),
        )


def _refuse_if_enrolled_often(cluster: Cluster, node: str, *, now: datetime) -> None:
    recent = ApiToken.objects.filter(cluster=cluster, node=node, created_at__gt=now - REPEATS_WINDOW)
    by_tokens = recent.filter(origin__in=(ApiToken.Origin.ENROLMENT, ApiToken.Origin.RENEWAL))
    latest = list(by_tokens.order_by("-created_at").values_list("created_at", flat=True)[:MAX_REPEATS])
    if len(latest) < MAX_REPEATS or not parked_nodes.in_cluster(cluster, node):
        return  # parked_names has the bounds for other names
    limit = reasons.of("node_enrolled_often", node=node, limit=MAX_REPEATS, window=reasons.span(REPEATS_WINDOW))
    raise EnrolledOften(limit, retry_after=math.ceil((latest[-1] + REPEATS_WINDOW - now).total_seconds()))


def _used_at(credential: ApiToken) -> datetime | None:
    """Returns when the credential was last used; the node's last report may be newer than the noted time."""
    if credential.last_used_at is None:
        return None
    agents = Agent.objects.filter(node__cluster=credential.cluster_id, node__name=credential.node)
    return max([credential.last_used_at, *agents.values_list("seen_at", flat=True)])
