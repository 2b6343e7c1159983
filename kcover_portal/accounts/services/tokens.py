"""Making and withdrawing programs' tokens; every act is in the ledger."""

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Q

from kcover import audit, reasons
from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger

# The kind can be read off a token, so that secret scanners and people know what leaked.
PREFIXES = {"agent": "kce_", "node": "kca_", "decision": "kcd_", "operator": "kco_", "viewer": "kcv_"}
SHOWN = 8  # characters of a secret that stay readable: its prefix and four more
PATIENCE_MS = 5_000  # for each lock: agents' doors ask for what was revoked in the last two minutes, not before
BY_TOKEN = "token:"  # how created_by begins where a token made another one: an enrolment or a renewal


class Refused(ValueError):
    """What was asked for cannot be; the message says why and what is accepted."""


class Later(Refused):
    """It cannot be just now; it may be asked again after ``retry_after`` seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


SCOPES = ("override",)  # override: may name guards to pass over; each is on record


def make_token(
    kind: str,
    *,
    cluster: Cluster | None = None,
    node: str = "",
    name: str = "",
    expires_at: datetime | None = None,
    scopes: Collection[str] = (),
    created_by: str,
    now: datetime,
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is shown this once: only its SHA-256 is kept.

    An agent's token names its cluster; with a node it is that node's own, without one it is good only for enrolling.
    Raises Refused when the parts do not fit together.
    """
    if kind not in ApiToken.Kind.values:
        raise Refused(f"unknown kind {kind!r}; use one of {', '.join(ApiToken.Kind.values)}")
    if kind == ApiToken.Kind.AGENT and cluster is None:
        raise Refused("an agent token requires the cluster of its nodes")
    if node and kind != ApiToken.Kind.AGENT:
        raise Refused(f"only agent tokens can be bound to a node, not kind {kind}")
    if expires_at is not None and expires_at <= now:
        raise Refused("the expiry is in the past")
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Refused(f"unknown scope {unknown[0]!r}; use {', '.join(SCOPES)}")
    if scopes and kind not in (ApiToken.Kind.DECISION, ApiToken.Kind.OPERATOR):
        raise Refused(f"tokens of kind {kind} have no scopes; only decision system and operator tokens do")
    secret = PREFIXES["node" if node else kind] + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = ApiToken.objects.create(
            kind=kind,
            name=name,
            digest=digest(secret),
            prefix=secret[:SHOWN],
            cluster=cluster,
            node=node,
            created_by=created_by,
            created_at=now,
            expires_at=expires_at,
            scopes=sorted(set(scopes)),
        )
        act = audit.TokenCreated(
            token=token.prefix,
            kind=kind,
            node=node,
            name=name,
            scopes=tuple(sorted(set(scopes))),
            expires_at=expires_at,
        )
        ledger.record(cluster.name if cluster else "", act, actor=created_by, now=now)
    return token, secret


def revoke_token(token: ApiToken, *, actor: str, now: datetime, reason: str = "") -> ApiToken:
    """Withdraws the token for good; withdrawing it again changes nothing.

    With a node's credential go those that it was renewed from and to, also where one of them has taken its place by
    now: whoever withdraws it may have seen it a moment before. A renewal under way ends before this, or begins after it
    and finds nothing to renew; so does an enrolment. Raises OperationalError where a lock is held for PATIENCE_MS.
    """
    with transaction.atomic(), ledger.last():
        lock_nodes(token.cluster)
        withdraw(token, actor=actor, now=now, reason=reason)
        for one in _line(token, now=now):
            same_line = None if reason else reasons.of("token_same_line", token=token.prefix)
            withdraw(one, actor=actor, now=now, reason=reason, because=same_line)
    token.refresh_from_db()
    return token


def withdraw(
    token: ApiToken, *, actor: str, now: datetime, reason: str = "", because: reasons.Reason | None = None
) -> None:
    """Revokes this one token, inside a transaction; does nothing where it was revoked before.

    ``reason``: a person's own words; ``because``: why the portal does it.
    """
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        act = audit.TokenRevoked(token=token.prefix, kind=token.kind, node=token.node, reason=reason, because=because)
        ledger.record(token.cluster.name if token.cluster else "", act, actor=actor, now=now)


def lock_nodes(cluster: Cluster | None) -> None:
    """Until the transaction ends no other one gives out or withdraws credentials of this cluster's nodes.

    It waits for no lock longer than PATIENCE_MS: what it withdraws is known to all soon after the time that it notes.
    """
    if cluster is not None:
        if connection.vendor == "postgresql":  # SQLite has one lock, and waits for that as long as the settings say
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(PATIENCE_MS)])
        Cluster.objects.select_for_update(no_key=True).values_list("pk").get(pk=cluster.pk)


def of_node(cluster: Cluster | None, node: str, *, now: datetime) -> list[ApiToken]:
    """A node's credentials in force, oldest first."""
    rows = ApiToken.objects.select_related("cluster").filter(kind=ApiToken.Kind.AGENT, cluster=cluster, node=node)
    return list(rows.filter(in_force(now)).order_by("pk"))


def in_force(now: datetime) -> Q:
    """What is neither withdrawn nor expired."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def _line(token: ApiToken, *, now: datetime) -> list[ApiToken]:
    """What is in force of the line of renewals in which a node's credential stands.

    Who made a token is kept as eight characters: lines of one node in which two are alike are taken for one.
    """
    if not token.node:
        return []
    begun: dict[str, int] = {}  # created_by of what was renewed -> the first of its line
    lines: dict[int, int] = {}
    every = ApiToken.objects.filter(cluster=token.cluster, node=token.node).order_by("pk")
    for pk, prefix, made_by in every.values_list("pk", "prefix", "created_by"):
        lines[pk] = begun.get(made_by, pk)
        begun[f"{BY_TOKEN}{prefix}"] = lines[pk]
    return [one for one in of_node(token.cluster, token.node, now=now) if lines[one.pk] == lines[token.pk]]


def digest(secret: str) -> str:
    """The SHA-256 under which a secret is kept and looked up."""
    return hashlib.sha256(secret.encode()).hexdigest()
