"""The strongest role that a user or token has in a place, by what it may do there."""

from kcover_portal.accounts import queries
from kcover_portal.accounts.queries import ROLES
from kcover_portal.fleet.models import Cluster


def role_in(who: queries.Principal, cluster: Cluster | None) -> str | None:
    return max((role for role in ROLES if queries.may(who, role, cluster)), key=ROLES.index, default=None)
