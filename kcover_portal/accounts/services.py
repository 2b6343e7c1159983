"""Making and withdrawing users' roles and programs' tokens; every act is in the ledger."""

import hashlib
import math
import secrets
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from kcover_portal.accounts.models import ApiToken, Role, RoleBinding, User
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Cluster
from kcover_portal.ledger import services as ledger

# The kind can be read off a token, so that secret scanners and people know what leaked.
PREFIXES = {"agent": "kce_", "node": "kca_", "decision": "kcd_", "operator": "kco_", "viewer": "kcv_"}
SHOWN = 8  # characters of a secret that stay readable: its prefix and four more
USE_NOTED_EVERY = timedelta(minutes=1)
AGENTS_USE_NOTED_EVERY = timedelta(hours=1)  # there are many, and their heartbeats say more
RENEWAL = timedelta(days=2)  # an agent asks for its next credential a day before the old one runs out
ENROLLED_BY = "token:"  # how created_by of a credential from an enrolment begins; the rest is the enrolment token


class Refused(ValueError):
    """What was asked for cannot be; the message says why and what is accepted."""


class InUse(Refused):
    """The node's credential was used a moment ago; it may be asked again after ``retry_after`` seconds."""

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
        raise Refused(f"unknown kind {kind!r}: use one of {', '.join(ApiToken.Kind.values)}")
    if kind == ApiToken.Kind.AGENT and cluster is None:
        raise Refused("an agent's token needs the cluster that its nodes belong to")
    if node and kind != ApiToken.Kind.AGENT:
        raise Refused(f"only an agent's token is bound to a node, not one of kind {kind}")
    if expires_at is not None and expires_at <= now:
        raise Refused("the token would have expired already")
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise Refused(f"unknown scope {unknown[0]!r}: there is {', '.join(SCOPES)}")
    if scopes and kind not in (ApiToken.Kind.DECISION, ApiToken.Kind.OPERATOR):
        raise Refused(f"a token of kind {kind} has no scopes: those of decision systems and operators have")
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
        ledger.write(
            cluster.name if cluster else "",
            actor=created_by,
            verb="token.created",
            subject=f"token {token.prefix}",
            node=node,
            now=now,
            data={
                "kind": kind,
                "name": name,
                "scopes": sorted(set(scopes)),
                "expires_at": expires_at.isoformat() if expires_at else None,
            },
        )
    return token, secret


def enrol(token: ApiToken, node: str, *, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """The node's own credential for an enrolment token: one node, one live credential from enrolling.

    Who holds an enrolment token may claim any node of its cluster, so a node that is heard of is left its credential:
    InUse is raised while one was used within AGENT_SILENT_AFTER, unless it runs out within RENEWAL. An agent that lost
    its disk is silent and so comes back; what it was enrolled with before is revoked, and the ledger says so. What an
    administrator bound to the node is left alone. Raises Refused for an enrolment token no longer in force.
    """
    with transaction.atomic():
        # Two enrolments of one node at once: the second waits here and finds the first one's credential.
        cluster = Cluster.objects.select_for_update(no_key=True).get(tokens=token)
        if not ApiToken.objects.filter(_in_force(now), pk=token.pk).exists():
            raise Refused("the enrolment token is expired or revoked: make one with manage.py token create")
        before = _credentials_of(cluster, node, now=now)
        for one in before:
            _refuse_if_in_use(one, now=now)
        return _replace(before, cluster, node, by=token.prefix, expires_at=expires_at, now=now)


def enrol_proven(cluster: Cluster, node: str, *, by: str, expires_at: datetime, now: datetime) -> tuple[ApiToken, str]:
    """The node's own credential for somebody whom the cluster itself puts on that node (``by``, for the ledger).

    Nobody else can be meant, so a credential in use is replaced at once; otherwise as ``enrol``.
    """
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        before = _credentials_of(cluster, node, now=now)
        return _replace(before, cluster, node, by=by, expires_at=expires_at, now=now)


def _credentials_of(cluster: Cluster, node: str, *, now: datetime) -> list[ApiToken]:
    return list(ApiToken.objects.filter(_in_force(now), kind=ApiToken.Kind.AGENT, cluster=cluster, node=node))


def _replace(
    before: Iterable[ApiToken], cluster: Cluster, node: str, *, by: str, expires_at: datetime, now: datetime
) -> tuple[ApiToken, str]:
    """A new credential from enrolling; those that the node had from enrolling are revoked."""
    made, secret = make_token(
        ApiToken.Kind.AGENT,
        cluster=cluster,
        node=node,
        name=f"enrolled by {by}",
        expires_at=expires_at,
        created_by=f"{ENROLLED_BY}{by}",
        now=now,
    )
    for one in before:
        if one.created_by.startswith(ENROLLED_BY):
            revoke_token(one, actor=made.created_by, now=now, reason=f"the node enrolled again: {made.prefix}")
    return made, secret


def _refuse_if_in_use(credential: ApiToken, *, now: datetime) -> None:
    used_at = _used_at(credential)
    if used_at is None or (credential.expires_at and credential.expires_at <= now + RENEWAL):
        return
    wait = used_at + fleet.AGENT_SILENT_AFTER - now
    if wait > timedelta():
        raise InUse(
            f"node {credential.node} speaks with its credential {credential.prefix}: it enrols again once that is"
            f" revoked or was silent for {fleet.AGENT_SILENT_AFTER.total_seconds():.0f} s",
            retry_after=math.ceil(wait.total_seconds()),
        )


def _used_at(credential: ApiToken) -> datetime | None:
    """When a node's credential was last used: as was noted, or since then by the node's last report."""
    if credential.last_used_at is None:
        return None
    heard = Agent.objects.filter(node__cluster=credential.cluster_id, node__name=credential.node)
    return max([credential.last_used_at, *heard.values_list("seen_at", flat=True)])


def find_token(secret: str, *, now: datetime) -> ApiToken | None:
    """The token that is in force under this secret, or None; its last use is noted at most once a minute."""
    token = ApiToken.objects.select_related("cluster").filter(_in_force(now), digest=digest(secret)).first()
    if token is not None and (token.last_used_at is None or token.last_used_at <= now - USE_NOTED_EVERY):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
        token.last_used_at = now
    return token


def find_tokens(digests: Collection[str], *, now: datetime) -> dict[str, ApiToken]:
    """The tokens in force under these digests, by digest, for many agents at once; ``find_token`` says more."""
    rows = ApiToken.objects.prefetch_related("cluster").filter(_in_force(now), digest__in=digests)
    found = {token.digest: token for token in rows}
    unnoted = Q(last_used_at=None) | Q(last_used_at__lte=now - AGENTS_USE_NOTED_EVERY)
    ids = sorted(token.pk for token in found.values())
    ApiToken.objects.filter(unnoted, pk__in=ids).update(last_used_at=now)
    return found


def _in_force(now: datetime) -> Q:
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


def revoke_token(token: ApiToken, *, actor: str, now: datetime, reason: str = "") -> ApiToken:
    """Withdraws the token for good; withdrawing it again changes nothing."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
            ledger.write(
                token.cluster.name if token.cluster else "",
                actor=actor,
                verb="token.revoked",
                subject=f"token {token.prefix}",
                node=token.node,
                now=now,
                data={"kind": token.kind, "reason": reason},
            )
    token.refresh_from_db()
    return token


def make_user(
    name: str, *, password: str, role: str, cluster: Cluster | None = None, created_by: str, now: datetime
) -> User:
    """A person who may sign in, with a role in one cluster or, without one, everywhere.

    Raises Refused for a name that is taken or malformed, an unknown role or a weak password.
    """
    user = User(username=name)
    try:
        password_validation.validate_password(password, user)
        user.set_password(password)
        user.full_clean()
    except ValidationError as error:
        raise Refused(" ".join(error.messages)) from error
    with transaction.atomic():
        user.save()
        bind(user, role, cluster=cluster, actor=created_by, now=now)
    return user


def bind(user: User, role: str, *, cluster: Cluster | None = None, actor: str, now: datetime) -> RoleBinding:
    """Gives the user this role, instead of the one they had there; raises Refused for an unknown role."""
    if role not in Role.values:
        raise Refused(f"unknown role {role!r}: use one of {', '.join(Role.values)}")
    with transaction.atomic():
        binding, _ = RoleBinding.objects.update_or_create(user=user, cluster=cluster, defaults={"role": role})
        _note(user, cluster, verb="role.given", role=role, actor=actor, now=now)
    return binding


def unbind(user: User, *, cluster: Cluster | None = None, actor: str, now: datetime) -> None:
    """Takes the user's role there away."""
    with transaction.atomic():
        for binding in RoleBinding.objects.filter(user=user, cluster=cluster):
            binding.delete()
            _note(user, cluster, verb="role.taken", role=binding.role, actor=actor, now=now)


def set_password(user: User, password: str, *, actor: str, now: datetime) -> None:
    """Changes a password, which ends the user's sessions; raises Refused for a weak one."""
    try:
        password_validation.validate_password(password, user)
    except ValidationError as error:
        raise Refused(" ".join(error.messages)) from error
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        ledger.write("", actor=actor, verb="password.changed", subject=f"user {user.username}", now=now)


def digest(secret: str) -> str:
    """The SHA-256 under which a secret is kept and looked up."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _note(user: User, cluster: Cluster | None, *, verb: str, role: str, actor: str, now: datetime) -> None:
    ledger.write(
        cluster.name if cluster else "",
        actor=actor,
        verb=verb,
        subject=f"user {user.username}",
        now=now,
        data={"role": role},
    )
