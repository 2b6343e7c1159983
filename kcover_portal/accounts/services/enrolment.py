"""Enrolment: gives an agent its node's credential, for an enrolment token or a pod token of the cluster.

An agent that got no answer asks again with the same key. It gets the same credential, as long as that was never used.
No secret is stored for this: it follows from the key, the node, the enrolment token and the portal's secret key.
"""

import base64
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from django.db import transaction
from django.utils.crypto import salted_hmac

from kcover import actors, reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import parked_names, tokens
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.fleet.services import parked_nodes
from kcover_portal.ledger import services as ledger

MAX_REPEATS = 5  # enrolments of one node by enrolment tokens within REPEATS_WINDOW
REPEATS_WINDOW = timedelta(hours=1)
MAX_UNUSED = 5  # credentials of one node that were never used, within UNUSED_WINDOW; each is in the audit log
UNUSED_WINDOW = timedelta(minutes=10)


class InUse(tokens.RetryLater):
    """The node's current credential was used recently."""


class EnrolledOften(tokens.RetryLater):
    """The node was enrolled too often lately."""


def enrol(token: ApiToken, node: str, *, key: str = "", expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """Creates the node's credential and returns it with its secret.

    ``key``: what the agent chose for this enrolment. As long as the credential was not used, the same key is answered
    with the same credential, and neither creates nor revokes another. "": each call creates one.

    An enrolment token can claim any node of its cluster, so a credential that is in use is protected. InUse is
    raised if one was used within AGENT_SILENT_AFTER. An agent that lost its disk is silent and can enrol again.
    Credentials from earlier enrolments are revoked, on record; one that an administrator bound to the node stays valid.
    A node that the cluster does not have is parked; UnknownNode is raised beyond the bounds for such names, and
    EnrolledOften beyond MAX_REPEATS: a stolen enrolment token must neither fill the audit log nor take the credentials
    of a silent node again and again. Credentials that were never used are no repeats, because agents of a slow portal
    did not get them. They have a bound of their own, MAX_UNUSED.
    Raises Refused if the enrolment token is expired or revoked, its owner is disabled, or does not administer the
    cluster any more.
    """
    (answer,) = enrol_together(token, [node], keys=[key], expires_at=expires_at, now=now)
    if isinstance(answer, tokens.Refused):
        raise answer
    return answer


def enrol_together(
    token: ApiToken, nodes: Sequence[str], *, keys: Sequence[str] = (), expires_at: datetime, now: datetime
) -> list[tuple[ApiToken, str] | tokens.Refused]:
    """Like ``enrol``, for many nodes in one transaction: a credential or what refuses it for each, in their order.

    ``keys``: one for each node, in the same order; empty: none has one.
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
        secrets = [_secret(token, node, key) for node, key in zip(nodes, keys or [""] * len(nodes), strict=True)]
        known = _Known.of(cluster, nodes, secrets, now=now)
        answers: dict[int, tuple[ApiToken, str] | tokens.Refused] = {}
        # Unknown names are inserted by name, as the watch inserts them: otherwise each could wait for the other.
        for place in sorted(range(len(nodes)), key=nodes.__getitem__):
            node, secret = nodes[place], secrets[place]
            if (told := known.unused(secret, now=now)) is not None:  # whose answer was lost
                answers[place] = told, secret
                continue
            try:
                known.refuse(node, now=now)
                if node not in known.listed:
                    parked_names.park_unknown(token, cluster, node, now=now)
            except tokens.Refused as refused:  # nothing was written for this node
                answers[place] = refused
                continue
            existing = known.credentials[node]
            made = _replace(
                existing,
                cluster,
                node,
                by=token.prefix,
                parent=token,
                secret=known.fresh(secret),
                expires_at=expires_at,
                now=now,
            )
            known.add(made[0])
            answers[place] = made
    return [answers[place] for place in range(len(nodes))]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database has about the nodes of a batch; read once, under the lock of ``tokens.lock_nodes``.

    ``listed``: those that the cluster has. ``credentials``: the valid ones of each, oldest first. ``enrolled``: the
    times of each node's enrolments and renewals within REPEATS_WINDOW whose credentials were used, latest first.
    ``lost``: those within UNUSED_WINDOW whose credentials were not. ``told``: the credentials that have the secrets of
    the batch, by digest.
    """

    listed: frozenset[str]
    credentials: defaultdict[str, list[ApiToken]]
    enrolled: defaultdict[str, list[datetime]]
    lost: defaultdict[str, list[datetime]]
    told: dict[str, ApiToken]

    @classmethod
    def of(cls, cluster: Cluster, nodes: Sequence[str], secrets: Iterable[str], *, now: datetime) -> Self:
        digests = {tokens.digest(secret) for secret in secrets if secret}
        told = {one.digest: one for one in ApiToken.objects.filter(digest__in=digests)} if digests else {}
        listed = parked_nodes.listed(cluster, nodes)
        found = cls(listed, defaultdict(list), defaultdict(list), defaultdict(list), told)
        for credential in tokens.of_nodes(cluster, nodes, now=now):
            found.credentials[credential.node].append(credential)
        recent = ApiToken.objects.filter(cluster=cluster, node__in=set(nodes), created_at__gt=now - REPEATS_WINDOW)
        by_tokens = recent.filter(origin__in=(ApiToken.Origin.ENROLMENT, ApiToken.Origin.RENEWAL))
        rows = by_tokens.order_by("-created_at").values_list("node", "created_at", "last_used_at")
        for node, created_at, last_used_at in rows:
            if last_used_at is not None:
                found.enrolled[node].append(created_at)
            elif created_at > now - UNUSED_WINDOW:
                found.lost[node].append(created_at)
        return found

    def unused(self, secret: str, *, now: datetime) -> ApiToken | None:
        """The valid credential that has this secret and was never used."""
        found = self.told.get(tokens.digest(secret)) if secret else None
        if found is None or found.last_used_at is not None or found.revoked_at is not None:
            return None
        return found if found.expires_at is None or found.expires_at > now else None

    def fresh(self, secret: str) -> str:
        """The secret if no credential has it yet, else "": a key that was answered once has a new secret then."""
        return secret if secret and tokens.digest(secret) not in self.told else ""

    def refuse(self, node: str, *, now: datetime) -> None:
        """Raises InUse or EnrolledOften."""
        for credential in self.credentials[node]:
            _refuse_if_in_use(credential, now=now)
        if node not in self.listed:  # parked_names has the bounds for these
            return
        _refuse_if_often(node, self.enrolled[node], limit=MAX_REPEATS, window=REPEATS_WINDOW, now=now)
        _refuse_if_often(node, self.lost[node], limit=MAX_UNUSED, window=UNUSED_WINDOW, now=now)

    def add(self, created: ApiToken) -> None:
        """Notes the new credential of a node that was just enrolled; it replaced all but those that people gave."""
        for replaced in self.credentials[created.node]:
            if replaced.origin != ApiToken.Origin.GIVEN and replaced.digest in self.told:
                self.told[replaced.digest].revoked_at = created.created_at
        kept = [one for one in self.credentials[created.node] if one.origin == ApiToken.Origin.GIVEN]
        self.credentials[created.node] = [*kept, created]
        self.lost[created.node].insert(0, created.created_at)
        self.told[created.digest] = created


def _refuse_if_often(node: str, times: Sequence[datetime], *, limit: int, window: timedelta, now: datetime) -> None:
    """Raises EnrolledOften if there are ``limit`` times, latest first, within ``window``."""
    latest = times[:limit]
    if len(latest) < limit:
        return
    often = reasons.of("node_enrolled_often", node=node, limit=limit, window=reasons.span(window))
    raise EnrolledOften(often, retry_after=math.ceil((latest[-1] + window - now).total_seconds()))


def _secret(token: ApiToken, node: str, key: str) -> str:
    """The secret of the credential that the token gives the node for a key; "" without a key."""
    if not key:
        return ""
    content = "\n".join((token.digest, node, key))
    made = salted_hmac("kcover_portal.accounts.enrolment", content, algorithm="sha256").digest()
    return tokens.PREFIXES["node"] + base64.urlsafe_b64encode(made).decode().rstrip("=")


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
    secret: str = "",
    expires_at: datetime,
    now: datetime,
) -> tuple[ApiToken, str]:
    """Creates a credential and revokes those that earlier enrolments created.

    ``parent``: the enrolment token. ``secret`` "": a random one.
    """
    created, secret = tokens.make_token(
        ApiToken.Kind.AGENT,
        cluster=cluster,
        node=node,
        name=f"enrolled by {by}",
        expires_at=expires_at,
        created_by=actors.token(by),
        origin=ApiToken.Origin.ENROLMENT if parent else ApiToken.Origin.ACCOUNT,
        parent=parent,
        secret=secret,
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
