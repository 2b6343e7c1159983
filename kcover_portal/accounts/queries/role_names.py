"""The name of the role by which somebody may do something."""

from kcover_portal.accounts.models import ApiToken, Role, User
from kcover_portal.accounts.queries.people import Principal
from kcover_portal.fleet.models import Node

OF_TOKENS = {ApiToken.Kind.VIEWER: Role.VIEWER, ApiToken.Kind.OPERATOR: Role.OPERATOR}


def role_in(who: Principal, verb: str, node: Node) -> str:
    """Returns the role that gives the verb at the node, by the narrowest binding; "" if none does.

    A custom role has its own name. A token has the role of its kind.
    """
    if isinstance(who, ApiToken):
        return str(OF_TOKENS.get(ApiToken.Kind(who.kind), ""))
    if not isinstance(who, User):
        return ""
    if who.is_superuser:
        return Role.ADMIN.value
    covering = [
        one
        for one in who.bindings.all()
        if verb in one.verbs
        and (one.cluster_id is None or (one.cluster_id == node.cluster_id and one.pool in ("", node.pool)))
    ]
    covering.sort(key=lambda one: (not one.pool, one.cluster_id is None, one.pk))
    return covering[0].role if covering else ""
