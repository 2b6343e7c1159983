"""The roles of groups: which role the members of a group of the identity provider have, and where."""

from collections.abc import Iterable
from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import GroupMapping, RoleBinding, User
from kcover_portal.accounts.services import roles
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger

MAX_NAME = 255


def map_group(
    group: str,
    role: str,
    *,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    actor: str,
    now: datetime,
    reason: str = "",
) -> GroupMapping:
    """Gives the members of a group a role in a pool, a cluster or everywhere; it replaces the group's role there.

    People who already have a role from this group and place have the new one at once, others from their next sign-in.
    Raises Refused, also if the new role or the replaced one has more than the giver holds there; ``giver`` None: the
    shell.
    """
    if not 0 < len(group) <= MAX_NAME or not group.isprintable():
        raise Refused(reasons.of("group_invalid", most=MAX_NAME))
    roles.check_giver(giver, role, cluster, pool)
    with transaction.atomic(), ledger.last():
        for replaced in GroupMapping.objects.filter(group=group, cluster=cluster, pool=pool):
            roles.check_giver(giver, replaced.role, cluster, pool)
        mapping, _ = GroupMapping.objects.update_or_create(
            group=group, cluster=cluster, pool=pool, defaults={"role": role, "custom": roles.custom_of(role)}
        )
        for user in mapping.members.order_by("pk"):
            replace_roles(user, actor=actor, now=now)
        act = audit.GroupMapped(group=group, role=role, pool=pool, reason=reason)
        ledger.record(cluster.name if cluster else "", act, actor=actor, now=now)
    return mapping


def unmap_group(
    group: str,
    *,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    actor: str,
    now: datetime,
    reason: str = "",
) -> None:
    """Removes the role of a group; its members lose it at once.

    Raises Refused if the group has none there, or one with more than the giver holds.
    """
    with transaction.atomic(), ledger.last():
        rows = GroupMapping.objects.select_for_update(of=("self",))
        mapping = rows.filter(group=group, cluster=cluster, pool=pool).first()
        if mapping is None:
            raise Refused(reasons.of("group_not_mapped", group=group))
        roles.check_giver(giver, mapping.role, cluster, pool)
        members = list(mapping.members.order_by("pk"))
        mapping.delete()
        for user in members:
            replace_roles(user, actor=actor, now=now)
        act = audit.GroupUnmapped(group=group, role=mapping.role, pool=pool, reason=reason)
        ledger.record(cluster.name if cluster else "", act, actor=actor, now=now)


def join(user: User, groups: Iterable[str], *, actor: str, now: datetime) -> None:
    """Makes these the user's only groups: gives their roles and takes those of others. Roles given by hand stay."""
    with transaction.atomic():
        # Locked, so that a mapping that is removed meanwhile gives nothing.
        rows = GroupMapping.objects.select_for_update(no_key=True, of=("self",)).filter(group__in=groups).order_by("pk")
        user.mappings.set(list(rows))
        replace_roles(user, actor=actor, now=now)


def replace_roles(user: User, *, actor: str, now: datetime) -> None:
    """Gives the user the roles of their groups, and takes those that came from a group before."""
    wanted = [roles.Binding(row.role, row.cluster, row.pool) for row in user.mappings.select_related("cluster")]
    roles.replace_bindings(user, source=RoleBinding.Source.OIDC, bindings=wanted, actor=actor, now=now)
