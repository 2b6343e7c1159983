"""Creates and revokes tokens. Every change is in the audit log."""

import hashlib
import ipaddress
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from http import HTTPStatus

from django.db import connection, transaction
from django.db.models import Q

from kcover import audit, reasons
from kcover.values.quote import short_repr
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import ApiToken, User, Verb
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import errors

# A prefix per kind, so that secret scanners and people recognize a leaked token.
PREFIXES = {
    "agent": "kce_",
    "node": "kca_",
    "decision": "kcd_",
    "operator": "kco_",
    "viewer": "kcv_",
    "source": "kcs_",
    "wall": "kcw_",
}
SHOWN_CHARACTERS = 8  # characters of a secret that stay readable: the prefix and four more
LOCK_TIMEOUT_MS = 5_000  # for each lock; the agent endpoints poll only for revocations of the last two minutes


class Refused(errors.Refused, ValueError):
    """The request is invalid. The reason says why and what is accepted."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class OwnerWithoutRole(Refused):
    """The owner of an enrolment token or a source's token does not administer its cluster any more."""

    def __init__(self, token: ApiToken) -> None:
        super().__init__(reasons.of("token_owner_role", token=token.prefix))


class RetryLater(Refused):
    """The request is refused for now. It can be repeated after ``retry_after`` seconds."""

    def __init__(self, reason: reasons.Reason, *, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


DEFAULT_LIFETIME = timedelta(days=90)
SCOPES = ("override",)  # override: may name guards to pass over; each use is in the audit log


def make_token(
    kind: str,
    *,
    cluster: Cluster | None = None,
    node: str = "",
    source: str = "",
    name: str = "",
    expires_at: datetime | None = None,
    scopes: Collection[str] = (),
    verbs: Collection[str] = (),
    networks: Collection[str] = (),
    owner: User | None = None,
    created_by: str,
    origin: ApiToken.Origin = ApiToken.Origin.GIVEN,
    parent: ApiToken | None = None,
    secret: str = "",
    now: datetime,
) -> tuple[ApiToken, str]:
    """Creates a token and returns it with its secret, of which only the SHA-256 is stored.

    ``secret``: one with the prefix of its kind and 256 bits that nobody can guess; "": a random one.

    ``expires_at`` None: it does not expire; see ``default_expiry``. ``verbs`` narrows what the kind may do.
    ``networks`` are the addresses or CIDR networks that it may be used from. Empty means all.

    ``owner`` is the person who counts as the requester of the token's acts. An admin must not name another person:
    whoever knows the secret could then ask in that person's name and approve in their own.
    An agent token requires a cluster. With a node it is that node's credential; without one it can only enrol agents.
    A token of kind source can only send events to the source of that name.
    Raises Refused if the arguments do not fit together.
    """
    if kind not in ApiToken.Kind.values:
        raise Refused(reasons.of("kind_unknown", kind=short_repr(kind), known=", ".join(ApiToken.Kind.values)))
    if kind == ApiToken.Kind.AGENT and cluster is None:
        raise Refused(reasons.of("agent_token_without_cluster"))
    if bool(source) != (kind == ApiToken.Kind.SOURCE):
        unfit = reasons.of("token_source_unused", kind=kind) if source else reasons.of("source_token_without_source")
        raise Refused(unfit)
    if node and kind != ApiToken.Kind.AGENT:
        raise Refused(reasons.of("token_node_unused", kind=kind))
    if expires_at is not None and expires_at <= now:
        raise Refused(reasons.of("expiry_in_past"))
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Refused(reasons.of("scope_unknown", scope=short_repr(unknown[0]), known=", ".join(SCOPES)))
    if scopes and kind not in (ApiToken.Kind.DECISION, ApiToken.Kind.OPERATOR):
        raise Refused(reasons.of("token_scopes_unused", kind=kind))
    _check_verbs(kind, verbs)
    networks = _networks(kind, networks)
    secret = secret or PREFIXES["node" if node else kind] + secrets.token_urlsafe(32)
    with transaction.atomic(savepoint=not node):  # no owner's rights refuse the credential of a node below
        token = ApiToken.objects.create(
            kind=kind,
            name=name,
            digest=digest(secret),
            prefix=secret[:SHOWN_CHARACTERS],
            cluster=cluster,
            node=node,
            source=source,
            owner=owner,
            created_by=created_by,
            origin=origin,
            parent=parent,
            created_at=now,
            expires_at=expires_at,
            scopes=sorted(set(scopes)),
            verbs=sorted(set(verbs)),
            networks=networks,
        )
        check_owner(token)
        entry = audit.TokenCreated(
            token=token.prefix,
            kind=kind,
            node=node,
            source=source,
            name=name,
            owner=owner.username if owner else "",
            scopes=tuple(token.scopes),
            may=tuple(token.verbs),
            networks=tuple(token.networks),
            expires_at=expires_at,
        )
        ledger.record(cluster.name if cluster else "", entry, actor=created_by, now=now)
    return token, secret


def default_expiry(kind: str, *, now: datetime) -> datetime | None:
    """Returns when a token expires for which nobody says it. Tokens of agents do not: a fleet must not fall silent."""
    return None if kind == ApiToken.Kind.AGENT else now + DEFAULT_LIFETIME


def _check_verbs(kind: str, verbs: Collection[str]) -> None:
    known = queries.verbs_of_kind(kind)
    for verb in sorted(set(verbs) - known):
        in_order = [one for one in Verb.values if one in known]
        known_verbs = ", ".join(in_order) or reasons.of("none")
        raise Refused(reasons.of("token_verbs_unused", kind=kind, verb=short_repr(verb), known=known_verbs))


def _networks(kind: str, networks: Collection[str]) -> list[str]:
    """Returns the networks in their canonical form. Raises Refused."""
    if networks and kind == ApiToken.Kind.AGENT:
        raise Refused(reasons.of("token_networks_unused"))
    found = []
    for text in networks:
        try:
            found.append(str(ipaddress.ip_network(text.strip(), strict=False)))
        except ValueError as error:
            raise Refused(reasons.of("token_network_invalid", network=short_repr(text))) from error
    return sorted(set(found))


def revoke_token(token: ApiToken, *, actor: str, now: datetime, reason: str = "") -> ApiToken:
    """Revokes the token permanently; revoking it again changes nothing.

    The credentials that it was renewed from and to are revoked too. The token that the caller saw may have been
    replaced a moment ago. Concurrent renewals and enrolments either finish first, or find the token revoked.
    Raises OperationalError if a lock is held for LOCK_TIMEOUT_MS.
    """
    with transaction.atomic(), ledger.last():
        lock_nodes(token.cluster)
        withdraw(token, actor=actor, now=now, reason=reason)
        for other in _renewal_line(token, now=now):
            because = None if reason else reasons.of("token_same_line", token=token.prefix)
            withdraw(other, actor=actor, now=now, reason=reason, because=because)
    token.refresh_from_db()
    return token


def withdraw(
    token: ApiToken, *, actor: str, now: datetime, reason: str = "", because: reasons.Reason | None = None
) -> None:
    """Revokes this token only, inside a transaction. Does nothing if it is already revoked.

    ``reason`` is a person's text; ``because`` is the portal's reason.
    """
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        entry = audit.TokenRevoked(token=token.prefix, kind=token.kind, node=token.node, reason=reason, because=because)
        ledger.record(token.cluster.name if token.cluster else "", entry, actor=actor, now=now)


def check_owner(token: ApiToken) -> None:
    """Raises OwnerWithoutRole for an enrolment token or a source's token of a person who could not create it today."""
    if not queries.owner_may_issue(token):
        raise OwnerWithoutRole(token)


def lock_nodes(cluster: Cluster | None) -> None:
    """Prevents other transactions from creating or revoking credentials of this cluster's nodes until this one ends.

    Waits at most LOCK_TIMEOUT_MS for a lock, so that a revocation is visible to all soon after its timestamp.
    """
    if cluster is not None:
        if connection.vendor == "postgresql":  # SQLite has one lock, with the time-out of the settings
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(LOCK_TIMEOUT_MS)])
        Cluster.objects.select_for_update(no_key=True).values_list("pk").get(pk=cluster.pk)


def of_node(cluster: Cluster | None, node: str, *, now: datetime) -> list[ApiToken]:
    """Returns the valid credentials of a node, oldest first."""
    return of_nodes(cluster, [node], now=now)


def of_nodes(cluster: Cluster | None, nodes: Collection[str], *, now: datetime) -> list[ApiToken]:
    """Returns the valid credentials of nodes, oldest first."""
    rows = ApiToken.objects.select_related("cluster").filter(kind=ApiToken.Kind.AGENT, cluster=cluster)
    of = rows.filter(node=next(iter(nodes))) if len(nodes) == 1 else rows.filter(node__in=set(nodes))
    return list(of.filter(in_force(now)).order_by("pk"))


def in_force(now: datetime) -> Q:
    """Filters tokens that are neither revoked nor expired."""
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def owner_enabled() -> Q:
    """Filters tokens whose owner, if they have one, is not disabled."""
    return Q(owner=None) | Q(owner__is_active=True)


def _renewal_line(token: ApiToken, *, now: datetime) -> list[ApiToken]:
    """Returns the valid credentials that are connected to this one by renewals."""
    if not token.node:
        return []
    lines: dict[int, int] = {}  # id of a credential -> id of the first one of its line
    credentials = ApiToken.objects.filter(cluster=token.cluster, node=token.node).order_by("pk")
    for pk, parent in credentials.values_list("pk", "parent"):
        lines[pk] = lines.get(parent, pk) if parent is not None else pk
    return [other for other in of_node(token.cluster, token.node, now=now) if lines[other.pk] == lines[token.pk]]


def digest(secret: str) -> str:
    """Returns the SHA-256 by which a secret is stored and looked up."""
    return hashlib.sha256(secret.encode()).hexdigest()
