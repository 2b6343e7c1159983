"""Permission checks and the one filter of rows, shared by pages, REST, exports and sockets.

A role is a set of verbs. A binding gives a role in one pool, in one cluster, or in all clusters; a person holds the
verbs of all bindings that cover a place. Only a binding without a cluster covers the installation itself (policies,
users, a pause of everything). Only a binding without a pool covers what belongs to a whole cluster (its settings, its
storms, runs over many nodes).
"""

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet, prefetch_related_objects

from kcover import actors
from kcover_portal.accounts.models import VERBS_OF, ApiToken, Role, User, Verb
from kcover_portal.accounts.queries.people import (
    Principal as Principal,
    actor as actor,
    controllers as controllers,
    counted_as as counted_as,
    find_user as find_user,
    has_second_factor as has_second_factor,
    idle_limit as idle_limit,
    invited_users as invited_users,
    live_sessions as live_sessions,
    owner_of as owner_of,
    person as person,
    place_key as place_key,
    revoked_since as revoked_since,
    users_with_second_factor as users_with_second_factor,
)
from kcover_portal.accounts.queries.role_names import role_in as role_in
from kcover_portal.accounts.queries.scopes import Grant as Grant, Row as Row, Scope as Scope
from kcover_portal.fleet.models import Cluster, Node

_FEEDING = (ApiToken.Kind.AGENT, ApiToken.Kind.SOURCE)  # kinds whose tokens report faults
Place = Cluster | Node | None  # None: the whole installation

ROLES: tuple[str, ...] = tuple(Role.values)  # weakest first
READ = Verb.READ.value

# The roles of programs' tokens. Tokens of agents, sources and walls have none: only their own doors accept them.
TOKEN_ROLES = {
    ApiToken.Kind.VIEWER.value: Role.VIEWER.value,
    ApiToken.Kind.OPERATOR.value: Role.OPERATOR.value,
    ApiToken.Kind.DECISION.value: Role.OPERATOR.value,
}


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


def has_lost(actor: str, needed: str, place: Place) -> bool:
    """Returns whether the actor is a person who has no account any more that holds the verb or role there."""
    user = find_user(actors.username(actor)) if actors.is_user(actor) else None
    return user is not None and not may(user, needed, place)


def may_somewhere(who: Principal, needed: str) -> bool:
    """Returns whether the user or token holds the verb or role in any place."""
    grants = _grants(who)
    return any(needs(needed) <= _held(grants, grant.cluster, grant.pool) for grant in grants)


def scope(who: Principal, needed: str = READ) -> Scope:
    """Returns the part of the fleet in which the user or token holds the verb or role."""
    return _scope(_grants(who), needed)


def wall_scope(token: ApiToken) -> Scope:
    """Returns the part of the fleet that the wallboard shows by a token of kind wall: what its owner may see today.

    Such a token has no verb, so that no other check lets it in.
    """
    if token.kind != ApiToken.Kind.WALL:
        return Scope.of()
    return _scope(_within_owner(token, Grant(VERBS_OF[Role.VIEWER], token.cluster_id)), READ)


def _scope(grants: list[Grant], needed: str) -> Scope:
    verbs = needs(needed)
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


def owner_may_issue(token: ApiToken) -> bool:
    """Returns whether the owner of an enrolment token or a source's token still has the right to create it.

    True for all other tokens, and for those of the shell. Credentials of nodes belong to their cluster.
    """
    if token.owner is None or token.node or token.kind not in _FEEDING:
        return True
    return may_issue(token.owner, token.kind, token.cluster)


def may_issue(who: Principal, kind: str, cluster: Cluster | None) -> bool:
    """Returns whether ``who`` may create tokens of the kind; None: for all clusters."""
    return all(may(who, verb, cluster) for verb in verbs_to_issue(kind))


def verbs_to_issue(kind: str) -> tuple[Verb, ...]:
    """The verbs that creating a token needs. Faults that agents and sources report make the portal act on nodes."""
    return (Verb.ADMINISTER, Verb.CONFIGURE) if kind in _FEEDING else (Verb.ADMINISTER,)


def may_do_all_of(who: Principal, other: User) -> bool:
    """Returns whether ``who`` holds everything, everywhere, that the other person holds, or held until disabled."""
    own = _grants(who)
    return all(grant.verbs <= _held(own, grant.cluster, grant.pool) for grant in _given_to(other))


def second_factor_required(user: User) -> bool:
    """Returns whether KCOVER_SECOND_FACTOR, or a cluster in which the user has a role, asks for a second factor."""
    required = settings.KCOVER_SECOND_FACTOR
    if required == "all" or (required == "approvers" and may_somewhere(user, Role.APPROVER)):
        return True
    strict = Cluster.objects.exclude(second_factor=Cluster.SecondFactor.OFF).values_list("pk", "second_factor")
    grants = _grants(user)
    return any(_cluster_asks(grants, cluster, asks) for cluster, asks in strict)


def _cluster_asks(grants: list[Grant], cluster: int, asks: str) -> bool:
    """Returns whether a cluster with this setting asks somebody with these grants for a second factor."""
    pools = [grant.pool for grant in grants if grant.cluster in (None, cluster)]
    needed = needs(Role.APPROVER if asks == Cluster.SecondFactor.APPROVERS else READ)
    return any(needed <= _held(grants, cluster, pool) for pool in pools)


def _grants(who: Principal) -> list[Grant]:
    """Returns what somebody was given.

    A token never has more than its owner has today. Costs one query per user object and none for a token without an
    owner.
    """
    if isinstance(who, ApiToken):
        return _grants_of_token(who)
    return [] if isinstance(who, AnonymousUser) or not who.is_active else _given_to(who)


def _given_to(user: User) -> list[Grant]:
    """Returns what the user was given, even if the account is disabled."""
    if user.is_superuser:
        return [Grant(VERBS_OF[Role.ADMIN], None)]
    prefetch_related_objects([user], "bindings")
    return [Grant(binding.verbs, binding.cluster_id, binding.pool) for binding in user.bindings.all()]


def _grants_of_token(token: ApiToken) -> list[Grant]:
    verbs = verbs_of_kind(token.kind)
    return _within_owner(token, Grant(verbs & frozenset(token.verbs) if token.verbs else verbs, token.cluster_id))


def _within_owner(token: ApiToken, own: Grant) -> list[Grant]:
    if token.owner is None:
        return [own]
    held = _grants(token.owner)
    within = [grant for grant in held if own.cluster is None or grant.cluster == own.cluster]
    places = {(own.cluster, own.pool), *((grant.cluster, grant.pool) for grant in within)}
    return [Grant(own.verbs & _held(held, *place), *place) for place in places if own.verbs & _held(held, *place)]


def _held(grants: list[Grant], cluster: int | None, pool: str = "") -> frozenset[str]:
    """Returns the verbs that the grants give in a place."""
    return frozenset().union(*(grant.verbs for grant in grants if grant.covers(cluster, pool)))
