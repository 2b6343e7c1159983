"""Bounds the enrolment of names that the cluster does not have, and ends the credentials of those that stay unknown.

An enrolment token can claim any name. Without bounds, its holder could fill the database and the audit log without
limit.
"""

import math
from datetime import datetime, timedelta

from django.db import transaction

from kcover import reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import tokens
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import parked_nodes
from kcover_portal.ledger import services as ledger

MAX_UNKNOWN_NAMES = 20  # that one enrolment token enrols within UNKNOWN_NAMES_WINDOW
UNKNOWN_NAMES_WINDOW = timedelta(minutes=1)
PARKED_FULL_RETRY_SECONDS = 60  # the clean-up runs once an hour, but the cluster may list a node at any time
FIRST_LIST_SECONDS = 5  # a new cluster is listed within this time


class UnknownNode(tokens.RetryLater):
    """The cluster does not have the node, and too many such names were enrolled."""


def park_unknown(token: ApiToken, cluster: Cluster, node: str, *, now: datetime) -> None:
    """Parks the node unless the cluster has it; part of its enrolment, under the lock of ``tokens.lock_nodes``.

    Raises UnknownNode beyond the bounds.
    """
    if parked_nodes.in_cluster(cluster, node):
        return
    if wait := _seconds_until_next(token, cluster, now=now):
        limit = reasons.of(
            "unknown_nodes_enrolled",
            cluster=cluster.name,
            node=node,
            token=token.prefix,
            limit=MAX_UNKNOWN_NAMES,
            window=reasons.span(UNKNOWN_NAMES_WINDOW),
        )
        raise UnknownNode(limit, retry_after=_retry_after(cluster, wait))
    if not parked_nodes.park(cluster, node, now=now):
        full = reasons.of("parked_nodes_full", cluster=cluster.name, node=node, limit=parked_nodes.MAX_PARKED_NODES)
        raise UnknownNode(full, retry_after=_retry_after(cluster, PARKED_FULL_RETRY_SECONDS))


def _seconds_until_next(token: ApiToken, cluster: Cluster, *, now: datetime) -> int:
    """Returns the seconds until the token may enrol another unknown name, 0 if it may now."""
    listed = Node.objects.filter(cluster=cluster, in_cluster=True)
    enrolled = ApiToken.objects.filter(
        cluster=cluster,
        parent=token,
        created_at__gt=now - UNKNOWN_NAMES_WINDOW,
    ).exclude(node__in=listed.values("name"))
    latest = list(enrolled.order_by("-created_at").values_list("created_at", flat=True)[:MAX_UNKNOWN_NAMES])
    if len(latest) < MAX_UNKNOWN_NAMES:
        return 0
    return max(1, math.ceil((latest[-1] + UNKNOWN_NAMES_WINDOW - now).total_seconds()))


def _retry_after(cluster: Cluster, seconds: int) -> int:
    """Returns the seconds to wait; few while the names are only unknown because the watch has not listed them yet."""
    return seconds if cluster.watched_at is not None else min(seconds, FIRST_LIST_SECONDS)


def prune(*, now: datetime) -> int:
    """Removes parked nodes that do not report any more and revokes their enrolled credentials; returns their number."""
    clusters = [cluster for cluster in Cluster.objects.order_by("pk") if parked_nodes.silent(cluster, now=now).exists()]
    return sum(_prune(cluster, now=now) for cluster in clusters)


@transaction.atomic
def _prune(cluster: Cluster, *, now: datetime) -> int:
    with ledger.last():
        names = parked_nodes.remove_silent(cluster, now=now)  # before the lock of the cluster: nodes come first
        tokens.lock_nodes(cluster)
        because = reasons.of("token_node_not_listed", time=reasons.span(parked_nodes.PARKED_NODE_RETENTION))
        for name in names:
            for credential in tokens.of_node(cluster, name, now=now):
                if credential.origin != ApiToken.Origin.GIVEN:
                    tokens.withdraw(credential, actor="system", now=now, because=because)
    return len(names)
