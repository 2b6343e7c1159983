"""Who may do what, where: the one check behind pages, REST and sockets.

A person's rights are the strongest of their bindings that cover a cluster; a binding without a cluster covers them all,
and only such a binding covers the installation itself (policies, users, a pause of everything).
"""

from datetime import datetime

from django.contrib.auth.management import get_system_username
from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet, prefetch_related_objects

from kcover_portal.accounts.models import ApiToken, Role, User
from kcover_portal.fleet.models import Cluster

Principal = User | ApiToken | AnonymousUser

ROLES: tuple[str, ...] = tuple(Role.values)  # weakest first

# What a program's token may do. An agent's token has no role: its one door is the agent's ingest.
TOKEN_ROLES = {
    ApiToken.Kind.VIEWER.value: Role.VIEWER.value,
    ApiToken.Kind.OPERATOR.value: Role.OPERATOR.value,
    ApiToken.Kind.DECISION.value: Role.OPERATOR.value,
}


def may(who: Principal, role: str, cluster: Cluster | None) -> bool:
    """Whether the person or token has at least this role in the cluster; no cluster means the whole installation."""
    return _reaches(role, [held for held, where in _grants(who) if where is None or _is(where, cluster)])


def may_somewhere(who: Principal, role: str) -> bool:
    """Whether the person or token has at least this role in the installation or in any one cluster."""
    return _reaches(role, [held for held, _ in _grants(who)])


def role_in(who: Principal, cluster: Cluster | None) -> str | None:
    """The strongest role held in the cluster (in the whole installation without one), or None."""
    held = [role for role, where in _grants(who) if where is None or _is(where, cluster)]
    return max(held, key=ROLES.index, default=None)


def clusters_of(who: Principal, role: str = Role.VIEWER.value) -> QuerySet[Cluster]:
    """The clusters in which the person or token has at least this role."""
    wide, named = _covered(who, role)
    return Cluster.objects.all() if wide else Cluster.objects.filter(pk__in=named)


def sees_all(who: Principal, role: str = Role.VIEWER.value) -> bool:
    """Whether nothing needs to be filtered by cluster for this person or token."""
    return _covered(who, role)[0]


def actor(who: Principal) -> str:
    """How the ledger names the person or token: ``user:anna``, ``token:decision kcd_Ab12``."""
    if isinstance(who, ApiToken):
        return f"token:{who.kind} {who.prefix}"
    return f"user:{who.get_username()}" if who.is_authenticated else "nobody"


def shell_actor() -> str:
    """How the ledger names who runs a management command."""
    return f"command:{get_system_username() or 'unknown'}"


def find_user(name: str) -> User | None:
    """The user with this name, or None."""
    return User.objects.filter(username=name).first()


def _grants(who: Principal) -> list[tuple[str, int | None]]:
    """Every (role, cluster id or None for everywhere) that is held; one query a person object, none a token."""
    if isinstance(who, ApiToken):
        role = TOKEN_ROLES.get(who.kind)
        return [(role, who.cluster_id)] if role else []
    if isinstance(who, AnonymousUser) or not who.is_active:
        return []
    if who.is_superuser:
        return [(Role.ADMIN.value, None)]
    prefetch_related_objects([who], "bindings")
    return [(binding.role, binding.cluster_id) for binding in who.bindings.all()]


def _covered(who: Principal, role: str) -> tuple[bool, list[int]]:
    held = [where for held, where in _grants(who) if _reaches(role, [held])]
    return None in held, [where for where in held if where is not None]


def _reaches(role: str, held: list[str]) -> bool:
    needed = ROLES.index(role)
    return any(ROLES.index(one) >= needed for one in held)


def _is(where: int, cluster: Cluster | None) -> bool:
    return cluster is not None and cluster.pk == where


def revoked_since(moment: datetime) -> list[str]:
    """The digests of the tokens that were revoked at or after a moment."""
    return list(ApiToken.objects.filter(revoked_at__gte=moment).order_by().values_list("digest", flat=True))
