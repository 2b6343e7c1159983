"""Permission checks and the one filter of rows, shared by pages, REST, exports and sockets.

A role is a set of verbs. A binding gives a role in one pool, in one cluster, or in all clusters; a person holds the
verbs of all bindings that cover a place. Only a binding without a cluster covers the installation itself (policies,
users, a pause of everything). Only a binding without a pool covers what belongs to a whole cluster (its settings, its
storms, runs over many nodes).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.management import get_system_username
from django.contrib.auth.models import AnonymousUser
from django.db.models import Model, Q, QuerySet, prefetch_related_objects

from kcover import audit
from kcover_portal.accounts.models import (
    VERBS_OF,
    ApiToken,
    Invitation,
    Passkey,
    Role,
    Session,
    TotpDevice,
    User,
    Verb,
)
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import queries as ledger

Principal = User | ApiToken | AnonymousUser
Place = Cluster | Node | None  # None: the whole installation
Row = TypeVar("Row", bound=Model)

USER = "user:"  # names of people begin with it
CONTROL_LASTS = timedelta(days=1)
# After these, whoever did them can use the account that they are about.
CONTROL_VERBS = (
    *(audit.PasswordChanged.VERB, audit.FactorsReset.VERB, audit.UserInvited.VERB),
    *(audit.RoleGiven.VERB, audit.RoleTaken.VERB, audit.UserEnabled.VERB),
)

ROLES: tuple[str, ...] = tuple(Role.values)  # weakest first
READ = Verb.READ.value

# The roles of programs' tokens. Agent tokens have no role, because they are accepted only by the agent endpoints.
TOKEN_ROLES = {
    ApiToken.Kind.VIEWER.value: Role.VIEWER.value,
    ApiToken.Kind.OPERATOR.value: Role.OPERATOR.value,
    ApiToken.Kind.DECISION.value: Role.OPERATOR.value,
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Verbs in one pool of a cluster, in a cluster (``pool`` ""), or everywhere (``cluster`` None)."""

    verbs: frozenset[str]
    cluster: int | None
    pool: str = ""

    def covers(self, cluster: int | None, pool: str) -> bool:
        """Returns whether the place is this grant's, or part of it."""
        return self.cluster is None or (self.cluster == cluster and self.pool in ("", pool))


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the fleet in which somebody holds a verb: everything, whole clusters, and pools of others by cluster.

    Rows are filtered here and nowhere else. A row that is not about one node is visible only with its whole cluster.
    """

    wide: bool
    whole: frozenset[int]
    pools: Mapping[int, frozenset[str]]

    def where(self, cluster: str = "cluster", node: str | None = "node") -> Q:
        """The condition on rows. ``cluster``, ``node``: paths from a row to them.

        ``node`` "": the rows are nodes; None: the rows are not about one node.
        """
        if self.wide:
            return Q()
        found = Q(**{f"{cluster}__in": self.whole})
        if node is not None:
            pool = f"{node}__pool__in" if node else "pool__in"
            for pk, names in self.pools.items():
                found |= Q(**{cluster: pk, pool: names})
        return found

    def rows(self, rows: QuerySet[Row], cluster: str = "cluster", node: str | None = "node") -> QuerySet[Row]:
        """The rows inside the scope. See ``where``."""
        return rows if self.wide else rows.filter(self.where(cluster, node))

    def clusters(self) -> QuerySet[Cluster]:
        """The clusters of which at least a pool is inside the scope."""
        return Cluster.objects.all() if self.wide else Cluster.objects.filter(pk__in={*self.whole, *self.pools})

    @property
    def has_clusters(self) -> bool:
        """Returns whether at least one whole cluster is inside the scope."""
        return self.wide or bool(self.whole)

    def __contains__(self, cluster: Cluster) -> bool:
        return self.wide or cluster.pk in self.whole

    @classmethod
    def of(cls, *clusters: Cluster) -> "Scope":
        """These whole clusters, whoever asks."""
        return cls(False, frozenset(cluster.pk for cluster in clusters), {})


def may(who: Principal, needed: str, place: Place) -> bool:
    """Returns whether the user or token holds the verb, or all verbs of the built-in role, in the place.

    ``place``: a node, a whole cluster, or None for the whole installation.
    """
    return needs(needed) <= verbs_in(who, place)


def verbs_in(who: Principal, place: Place) -> frozenset[str]:
    """Returns everything that the user or token may do in the place."""
    if isinstance(place, Node):
        return _held(_grants(who), place.cluster_id, place.pool)
    return verbs_at(who, place)


def verbs_at(who: Principal, cluster: Cluster | None, pool: str = "") -> frozenset[str]:
    """Returns everything that the user or token may do in the cluster, or in one of its pools."""
    return _held(_grants(who), cluster.pk if cluster is not None else None, pool)


def may_somewhere(who: Principal, needed: str) -> bool:
    """Returns whether the user or token holds the verb or role in any place."""
    grants = _grants(who)
    return any(needs(needed) <= _held(grants, grant.cluster, grant.pool) for grant in grants)


def scope(who: Principal, needed: str = READ) -> Scope:
    """Returns the part of the fleet in which the user or token holds the verb or role."""
    grants, verbs = _grants(who), needs(needed)
    places = {(grant.cluster, grant.pool) for grant in grants if verbs <= _held(grants, grant.cluster, grant.pool)}
    if (None, "") in places:
        return Scope(True, frozenset(), {})
    whole = frozenset(cluster for cluster, pool in places if cluster is not None and not pool)
    pools: dict[int, frozenset[str]] = {}
    for cluster, pool in places:
        if cluster is not None and cluster not in whole:
            pools[cluster] = pools.get(cluster, frozenset()) | {pool}
    return Scope(False, whole, pools)


def visible(
    who: Principal, rows: QuerySet[Row], cluster: str = "cluster", node: str | None = "node", needed: str = READ
) -> QuerySet[Row]:
    """Returns the rows that the user or token may see. See ``Scope.where`` for the paths."""
    return scope(who, needed).rows(rows, cluster, node)


def clusters_of(who: Principal, needed: str = READ) -> QuerySet[Cluster]:
    """Returns the clusters that are wholly covered. Use ``scope`` for rows about nodes."""
    return scope(who, needed).rows(Cluster.objects.all(), "pk", None)


def sees_all(who: Principal, needed: str = READ) -> bool:
    """Returns whether the user or token holds the verb or role everywhere, so that rows need no filter."""
    return scope(who, needed).wide


def needs(needed: str) -> frozenset[str]:
    """Returns the verbs of a built-in role, or the verb itself."""
    return VERBS_OF.get(needed) or frozenset((needed,))


def role_with(needed: str) -> str:
    """Returns the weakest built-in role that contains the verb, for messages."""
    return next(role for role in ROLES if needs(needed) <= VERBS_OF[role])


def verbs_of_kind(kind: str) -> frozenset[str]:
    """Returns what tokens of the kind can do at most."""
    return VERBS_OF.get(TOKEN_ROLES.get(kind, ""), frozenset())


def may_override(token: ApiToken, place: Place) -> bool:
    """Returns whether the token may pass over guards: by its scope, and as long as its owner may."""
    return "override" in token.scopes and (token.owner is None or may(token.owner, Verb.OVERRIDE, place))


def may_do_all_of(who: Principal, other: User) -> bool:
    """Returns whether ``who`` holds everything, everywhere, that the other person holds."""
    own = _grants(who)
    return all(grant.verbs <= _held(own, grant.cluster, grant.pool) for grant in _grants(other))


def actor(who: Principal) -> str:
    """Returns the name of the user or token in the audit log: ``user:anna``, ``token:decision kcd_Ab12``."""
    if isinstance(who, ApiToken):
        return f"token:{who.kind} {who.prefix}"
    return f"{USER}{who.get_username()}" if who.is_authenticated else "nobody"


def person(who: Principal) -> str:
    """Returns the name of the person behind a principal; a token without an owner stands for itself."""
    return actor(owner_of(who) or who)


def counted_as(who: Principal, *, at: datetime) -> list[str]:
    """Returns the people who count as the one who acts: the person behind the principal, and ``controllers``."""
    name = person(who)
    return [name, *controllers(name, at=at)]


def controllers(name: str, *, at: datetime) -> list[str]:
    """Returns the people who could have used the account of an actor at that time, besides its owner.

    Within the day before, they set the password or the role of the account, reset its second factors, invited its
    owner or enabled it, or did so with the account of such a person. The shell is left out: whoever has it needs no
    account.
    """
    found, pending = {name}, [(name, at)]
    while pending:
        account, until = pending.pop()
        if not account.startswith(USER):
            continue
        subject = f"user {account.removeprefix(USER)}"
        changes = ledger.about(subject, verbs=CONTROL_VERBS, since=until - CONTROL_LASTS, until=until)
        by_people = changes.filter(actor__startswith=USER).exclude(actor__in=found)
        news = list(by_people.values_list("actor", "at"))
        found.update(by for by, _ in news)
        pending += news
    return sorted(found - {name})


def place_key(who: Principal) -> str:
    """Returns who a request counts for where people have few places: ``user:3``, or ``token:7`` without an owner."""
    if isinstance(who, ApiToken):
        return f"user:{who.owner_id}" if who.owner_id is not None else f"token:{who.pk}"
    return f"user:{who.pk}"


def shell_actor() -> str:
    """Returns the name of the operating system's user in the audit log, for management commands."""
    return f"command:{get_system_username() or 'unknown'}"


def find_user(name: str) -> User | None:
    return User.objects.filter(username=name).first()


def has_second_factor(user: User) -> bool:
    """Returns whether the user has an authenticator app or a passkey."""
    return TotpDevice.objects.filter(user=user).exists() or user.passkeys.exists()


def users_with_second_factor() -> frozenset[int]:
    """Returns the ids of the users who have a second factor."""
    held = TotpDevice.objects.values_list("user").union(Passkey.objects.order_by().values_list("user"))
    return frozenset(pk for (pk,) in held)


def invited_users() -> frozenset[int]:
    """Returns the ids of the users who were invited and have not chosen a password yet."""
    return frozenset(Invitation.objects.filter(ended_at=None).values_list("user", flat=True))


def second_factor_required(user: User) -> bool:
    """Returns whether KCOVER_SECOND_FACTOR asks this user for a second factor."""
    required = settings.KCOVER_SECOND_FACTOR
    return required == "all" or (required == "approvers" and may_somewhere(user, Role.APPROVER))


def live_sessions(now: datetime) -> QuerySet[Session]:
    """Returns the sessions of signed-in people that have not ended, the last used first."""
    live = Session.objects.filter(user__isnull=False, expire_date__gt=now, seen_at__gt=now - idle_limit())
    return live.order_by("-seen_at")


def idle_limit() -> timedelta:
    """How long a session lasts without a request of the person."""
    return timedelta(minutes=settings.KCOVER_SESSION_IDLE_MINUTES)


def owner_of(who: Principal) -> User | None:
    """Returns the person who counts as the requester: the user, or the owner of the token; None without one."""
    if isinstance(who, ApiToken):
        return who.owner
    return who if isinstance(who, User) else None


def _grants(who: Principal) -> list[Grant]:
    """Returns what somebody was given.

    A token never has more than its owner has today. Costs one query per user object and none for a token without an
    owner.
    """
    if isinstance(who, ApiToken):
        return _grants_of_token(who)
    if isinstance(who, AnonymousUser) or not who.is_active:
        return []
    if who.is_superuser:
        return [Grant(VERBS_OF[Role.ADMIN], None)]
    prefetch_related_objects([who], "bindings")
    return [Grant(binding.verbs, binding.cluster_id, binding.pool) for binding in who.bindings.all()]


def _grants_of_token(token: ApiToken) -> list[Grant]:
    verbs = verbs_of_kind(token.kind)
    own = Grant(verbs & frozenset(token.verbs) if token.verbs else verbs, token.cluster_id)
    if token.owner is None:
        return [own]
    held = _grants(token.owner)
    within = [grant for grant in held if own.cluster is None or grant.cluster == own.cluster]
    places = {(own.cluster, own.pool), *((grant.cluster, grant.pool) for grant in within)}
    return [Grant(own.verbs & _held(held, *place), *place) for place in places if own.verbs & _held(held, *place)]


def _held(grants: list[Grant], cluster: int | None, pool: str = "") -> frozenset[str]:
    """Returns the verbs that the grants give in a place."""
    return frozenset().union(*(grant.verbs for grant in grants if grant.covers(cluster, pool)))


def revoked_since(moment: datetime) -> list[str]:
    """Returns the digests of the tokens that were revoked at or after ``moment``."""
    return list(ApiToken.objects.filter(revoked_at__gte=moment).order_by().values_list("digest", flat=True))
