"""The scope of a maintenance window as a person may see it."""

from dataclasses import replace

from django.db.models import Q

from kcover.nodes import scopes
from kcover_portal.accounts import queries as accounts
from kcover_portal.fleet.models import Maintenance, Node


def seen_by(who: accounts.Principal, window: Maintenance) -> scopes.Scope:
    """Returns the scope without names of nodes that the user or token may not see. See ``within``."""
    return within(accounts.scope(who), window)


def within(seen: accounts.Scope, window: Maintenance) -> scopes.Scope:
    """Returns the scope without names of nodes and pools outside of the part of the fleet that somebody sees.

    A window of all clusters is visible to everybody. A window of a cluster requires a role for the whole cluster.
    """
    scope = window.scope
    if not (scope.nodes or scope.pools) or window.cluster_id is not None or seen.wide:
        return scope
    rows = seen.rows(Node.objects.filter(Q(name__in=scope.nodes) | Q(pool__in=scope.pools)), "cluster", "")
    names, pools = set[str](), set[str]()
    for name, pool in rows.values_list("name", "pool").distinct():
        names.add(name)
        pools.add(pool)
    return replace(
        scope,
        nodes=tuple(name for name in scope.nodes if name in names),
        pools=tuple(pool for pool in scope.pools if pool in pools),
    )
