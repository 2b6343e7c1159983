"""Custom roles, and the roles of people. Every change is in the audit log.

Nobody gives what they do not hold: neither in a custom role nor to a person. The shell (``giver`` None) holds
everything.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import ProtectedError

from kcover import audit, reasons
from kcover.values.quote import short_repr
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import CustomRole, Role, RoleBinding, User, Verb
from kcover_portal.accounts.services.tokens import Refused
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger

Source = RoleBinding.Source


@dataclass(frozen=True, slots=True)
class Binding:
    """A role and where it holds: in a pool, in a cluster (``pool`` ""), or everywhere (``cluster`` None)."""

    role: str
    cluster: Cluster | None = None
    pool: str = ""


def make_role(
    name: str, verbs: Collection[str], *, giver: queries.Principal | None, actor: str, now: datetime
) -> CustomRole:
    """Creates a custom role. Raises Refused for a bad name, unknown verbs, or more than its maker holds."""
    if name in Role.values or CustomRole.objects.filter(name=name).exists():
        raise Refused(reasons.of("role_taken", role=short_repr(name)))
    role = CustomRole(name=name, verbs=_checked(verbs, giver), created_by=actor, created_at=now)
    try:
        role.clean_fields()
    except ValidationError as error:
        raise Refused(reasons.of("role_name_invalid", role=short_repr(name))) from error
    with transaction.atomic():
        role.save()
        ledger.record("", audit.RoleMade(role=name, contains=tuple(role.verbs)), actor=actor, now=now)
    return role


def change_role(
    role: CustomRole, verbs: Collection[str], *, giver: queries.Principal | None, actor: str, now: datetime
) -> CustomRole:
    """Changes what a custom role contains, at once for everybody who has it.

    Raises Refused like ``make_role``, and if the role contained more than its changer holds.
    """
    after = _checked(verbs, giver)
    with transaction.atomic():
        row = CustomRole.objects.select_for_update().get(pk=role.pk)
        _check_held(row.verbs, giver)
        before, row.verbs = row.verbs, after
        if before != after:
            row.save(update_fields=["verbs"])
            act = audit.RoleChanged(role=row.name, before=tuple(before), contains=tuple(after))
            ledger.record("", act, actor=actor, now=now)
    return row


def delete_role(role: CustomRole, *, actor: str, now: datetime) -> None:
    """Deletes a custom role. Raises Refused while somebody has it."""
    try:
        with transaction.atomic():
            ledger.record("", audit.RoleDeleted(role=role.name, contains=tuple(role.verbs)), actor=actor, now=now)
            role.delete()
    except ProtectedError as error:
        raise Refused(reasons.of("role_in_use", role=role.name, people=len(error.protected_objects))) from error


def bind(
    user: User,
    role: str,
    *,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    actor: str,
    now: datetime,
) -> RoleBinding:
    """Gives the user this role by hand; it replaces the one that they had there by hand.

    Raises Refused for an unknown role, a pool without a cluster, or a role with more than the giver holds there. That
    also applies to the role that is replaced.
    """
    check_giver(giver, role, cluster, pool)
    defaults = {"role": role, "custom": custom_of(role)}
    with transaction.atomic():
        for replaced in RoleBinding.objects.filter(user=user, cluster=cluster, pool=pool, source=Source.HAND):
            check_giver(giver, replaced.role, cluster, pool)
        rows = RoleBinding.objects.select_related(None)  # PostgreSQL locks no row of an outer join
        binding, _ = rows.update_or_create(user=user, cluster=cluster, pool=pool, source=Source.HAND, defaults=defaults)
        _record(audit.RoleGiven, user, Binding(role, cluster, pool), Source.HAND, actor=actor, now=now)
    return binding


def unbind(
    user: User,
    *,
    cluster: Cluster | None = None,
    pool: str = "",
    giver: queries.Principal | None = None,
    actor: str,
    now: datetime,
) -> None:
    """Removes the role that the user has by hand in the pool, the cluster, or all clusters.

    Raises Refused for a role with more than the giver holds there.
    """
    with transaction.atomic():
        for binding in RoleBinding.objects.filter(user=user, cluster=cluster, pool=pool, source=Source.HAND):
            check_giver(giver, binding.role, cluster, pool)
            binding.delete()
            given = Binding(binding.role, cluster, pool)
            _record(audit.RoleTaken, user, given, Source.HAND, actor=actor, now=now)


def replace_bindings(user: User, *, source: str, bindings: Iterable[Binding], actor: str, now: datetime) -> None:
    """Makes these the user's only bindings of the source; those of other sources stay.

    Only differences are written and recorded, so it can be called at each sign-in. Raises Refused for an unknown role
    or a pool without a cluster; then nothing is changed.
    """
    wanted = set(bindings)
    for binding in wanted:
        custom_of(binding.role)
        if binding.pool and binding.cluster is None:
            raise Refused(reasons.of("pool_without_cluster"))
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).values_list("pk").get(pk=user.pk)  # one sign-in at a time
        rows = RoleBinding.objects.filter(user=user, source=source).select_related("cluster")
        held = {Binding(row.role, row.cluster, row.pool): row for row in rows}
        for gone in held.keys() - wanted:
            held[gone].delete()
            _record(audit.RoleTaken, user, gone, source, actor=actor, now=now)
        for new in sorted(wanted - held.keys(), key=lambda one: (one.role, str(one.cluster), one.pool)):
            RoleBinding.objects.create(
                user=user, role=new.role, custom=custom_of(new.role), cluster=new.cluster, pool=new.pool, source=source
            )
            _record(audit.RoleGiven, user, new, source, actor=actor, now=now)


def check_may_change(changer: queries.Principal, user: User) -> None:
    """Raises Refused unless ``changer`` holds everything that the user holds.

    Whoever sets a password, ends an account or reads its secrets could otherwise act with the rights of the account.
    """
    if not queries.may_do_all_of(changer, user):
        raise Refused(reasons.of("user_stronger", user=user.username))


def known_roles() -> list[str]:
    """Returns the names of all roles, the built-in ones first."""
    return [*Role.values, *CustomRole.objects.values_list("name", flat=True)]


def custom_of(role: str) -> CustomRole | None:
    """Returns the custom role of this name, None for a built-in one. Raises Refused."""
    if role in Role.values:
        return None
    found = CustomRole.objects.filter(name=role).first()
    if found is None:
        raise Refused(reasons.of("role_unknown", role=short_repr(role), known=", ".join(known_roles())))
    return found


def _checked(verbs: Collection[str], giver: queries.Principal | None) -> list[str]:
    """Returns the verbs in their fixed order. Raises Refused."""
    if unknown := sorted(set(verbs) - set(Verb.values)):
        raise Refused(reasons.of("verb_unknown", verb=short_repr(unknown[0]), known=", ".join(Verb.values)))
    if Verb.READ not in verbs:
        raise Refused(reasons.of("verb_missing", verb=Verb.READ.value))
    _check_held(verbs, giver)
    return [verb for verb in Verb.values if verb in verbs]


def _check_held(verbs: Collection[str], giver: queries.Principal | None) -> None:
    """Raises Refused unless the giver holds the verbs everywhere."""
    if giver is not None and (more := sorted(set(verbs) - queries.verbs_in(giver, None))):
        raise Refused(reasons.of("verbs_beyond_own", verbs=", ".join(more)))


def check_giver(giver: queries.Principal | None, role: str, cluster: Cluster | None, pool: str) -> None:
    """Raises Refused for a pool without a cluster, an unknown role, or one with more than the giver holds there."""
    if pool and cluster is None:
        raise Refused(reasons.of("pool_without_cluster"))
    custom = custom_of(role)
    verbs = frozenset(custom.verbs) if custom is not None else queries.needs(role)
    if giver is not None and (more := sorted(verbs - queries.verbs_at(giver, cluster, pool))):
        raise Refused(reasons.of("verbs_beyond_own", verbs=", ".join(more)))


def _record(
    act: type[audit.RoleGiven] | type[audit.RoleTaken],
    user: User,
    binding: Binding,
    source: str,
    *,
    actor: str,
    now: datetime,
) -> None:
    entry = act(
        user=user.username, role=binding.role, pool=binding.pool, source="" if source == Source.HAND else source
    )
    ledger.record(binding.cluster.name if binding.cluster else "", entry, actor=actor, now=now)
