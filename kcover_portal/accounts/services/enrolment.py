"""Enrolment: gives an agent its node's credential, for an enrolment token or a pod token of the cluster."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

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
    (answer,) = enrol_together(token, [node], expires_at=expires_at, now=now)
    if isinstance(answer, tokens.Refused):
        raise answer
    return answer


def enrol_together(
    token: ApiToken, nodes: Sequence[str], *, expires_at: datetime, now: datetime
) -> list[tuple[ApiToken, str] | tokens.Refused]:
    """Like ``enrol``, for many nodes in one transaction: a credential or what refuses it for each, in their order.

    Raises Refused if the enrolment token is no longer valid.
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
        known = _Known.of(cluster, nodes, now=now)
        answers: dict[int, tuple[ApiToken, str] | tokens.Refused] = {}
        # Unknown names are inserted by name, as the watch inserts them: otherwise each could wait for the other.
        for place in sorted(range(len(nodes)), key=nodes.__getitem__):
            node = nodes[place]
            try:
                known.refuse(node, now=now)
                if node not in known.listed:
                    parked_names.park_unknown(token, cluster, node, now=now)
            except tokens.Refused as refused:  # nothing was written for this node
                answers[place] = refused
                continue
            existing = known.credentials[node]
            made = _replace(existing, cluster, node, by=token.prefix, parent=token, expires_at=expires_at, now=now)
            known.add(made[0])
            answers[place] = made
    return [answers[place] for place in range(len(nodes))]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database has about the nodes of a batch; read once, under the lock of ``tokens.lock_nodes``.

    ``listed``: those that the cluster has. ``credentials``: the valid ones of each, oldest first. ``enrolled``: the
    times of each node's enrolments and renewals within REPEATS_WINDOW, latest first.
    """

    listed: frozenset[str]
    credentials: defaultdict[str, list[ApiToken]]
    enrolled: defaultdict[str, list[datetime]]

    @classmethod
    def of(cls, cluster: Cluster, nodes: Sequence[str], *, now: datetime) -> Self:
        found = cls(parked_nodes.listed(cluster, nodes), defaultdict(list), defaultdict(list))
        for credential in tokens.of_nodes(cluster, nodes, now=now):
            found.credentials[credential.node].append(credential)
        recent = ApiToken.objects.filter(cluster=cluster, node__in=set(nodes), created_at__gt=now - REPEATS_WINDOW)
        by_tokens = recent.filter(origin__in=(ApiToken.Origin.ENROLMENT, ApiToken.Origin.RENEWAL))
        for node, created_at in by_tokens.order_by("-created_at").values_list("node", "created_at"):
            found.enrolled[node].append(created_at)
        return found

    def refuse(self, node: str, *, now: datetime) -> None:
        """Raises InUse or EnrolledOften."""
        for credential in self.credentials[node]:
            _refuse_if_in_use(credential, now=now)
        latest = self.enrolled[node][:MAX_REPEATS]
        if len(latest) < MAX_REPEATS or node not in self.listed:  # parked_names has the bounds for other names
            return
        limit = reasons.of("node_enrolled_often", node=node, limit=MAX_REPEATS, window=reasons.span(REPEATS_WINDOW))
        raise EnrolledOften(limit, retry_after=math.ceil((latest[-1] + REPEATS_WINDOW - now).total_seconds()))

    def add(self, created: ApiToken) -> None:
        """Notes the new credential of a node that was just enrolled; it replaced all but those that people gave."""
        kept = [one for one in self.credentials[created.node] if one.origin == ApiToken.Origin.GIVEN]
        self.credentials[created.node] = [*kept, created]
        self.enrolled[created.node].insert(0, created.created_at)


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


def _used_at(credential: ApiToken) -> datetime | None:
    """Returns when the credential was last used; the node's last report may be newer than the noted time."""
    if credential.last_used_at is None:
        return None
    agents = Agent.objects.filter(node__cluster=credential.cluster_id, node__name=credential.node)
    return max([credential.last_used_at, *agents.values_list("seen_at", flat=True)])
