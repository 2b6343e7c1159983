"""Custom roles, accounts with their roles, and the roles of groups."""

from collections.abc import Iterable
from typing import Any, Final

from django.contrib.auth.hashers import identify_hasher

from kcover_portal.accounts.models import CustomRole, GroupMapping, Role, RoleBinding, User
from kcover_portal.accounts.services import moved_accounts, oidc, people, roles, saved_views
from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import ordered
from kcover_portal.operate.settings_file.sections import REASON, ItemInvalid, Run, Section, cluster_named

PASSWORD: Final = "password"
FIELDS: Final = moved_accounts.FIELDS
# The most that checking a hash may cost: anybody can ask for it, by a wrong password. None of it is 0. Memory in KiB.
COSTS: Final = {"memory_cost": 128 * 1024, "time_cost": 10, "parallelism": 8, "iterations": 3_000_000}


class Roles(Section[document.CustomRole]):
    """Custom roles."""

    name, noun = "roles", "role"

    def read(self) -> list[document.CustomRole]:
        return [document.CustomRole(name=row.name, verbs=list(row.verbs)) for row in CustomRole.objects.all()]

    def make(self, item: document.CustomRole, run: Run) -> None:
        roles.make_role(item.name, item.verbs, giver=None, **run.by)

    def change(self, item: document.CustomRole, before: document.CustomRole, run: Run) -> bool:
        roles.change_role(CustomRole.objects.get(name=item.name), item.verbs, giver=None, **run.by)
        return True


class People(Section[document.Person]):
    """Accounts. Without its secrets, a new one can only be signed in to after an invitation, or by single sign-on."""

    name, noun = "people", "user"

    def read(self) -> list[document.Person]:
        rows = User.objects.prefetch_related("bindings__cluster", "identities", "views", "passkeys", "recovery_codes")
        return [_read(row) for row in rows.select_related("totp").order_by("username")]

    def secrets(self, item: document.Person) -> dict[str, Any]:
        row = User.objects.get(username=item.name)
        found = {PASSWORD: row.password, **moved_accounts.factors_of(row)}
        return {name: ordered(found[name]) for name in item.secrets}

    def make(self, item: document.Person, run: Run) -> None:
        row = moved_accounts.make(item.name, _fields(item))
        self._give(row, item, (), run)
        self._unlock(row, item, run)
        if not row.has_usable_password() and PASSWORD in item.secrets:
            run.notes.append(f"user {item.name}: has no password and no second factor; user invite {item.name}")
        if not item.enabled:
            run.last.append(lambda: people.disable(row, reason=REASON, **run.by))

    def change(self, item: document.Person, before: document.Person, run: Run) -> bool:
        row = User.objects.get(username=item.name)
        moved_accounts.change(row, _fields(item))
        self._give(row, item, before.roles, run)
        self._unlock(row, item, run)
        if item.enabled and not before.enabled:
            people.enable(row, reason=REASON, **run.by)
        elif before.enabled and not item.enabled:
            people.disable(row, reason=REASON, **run.by)
        return True

    def _give(self, row: User, item: document.Person, held: Iterable[document.Given], run: Run) -> None:
        """Gives the roles, identities and views of the file. Roles that it does not have are taken."""
        wanted = {(one.cluster, one.pool): one.role for one in item.roles}
        if len(wanted) < len(item.roles):
            raise ItemInvalid(".roles", "two roles are for the same place; remove one")
        had = {(one.cluster, one.pool): one.role for one in held}
        for index, ((cluster, pool), role) in enumerate(wanted.items()):
            if had.get((cluster, pool)) != role:
                roles.bind(row, role, cluster=cluster_named(cluster, f".roles[{index}].cluster"), pool=pool, **run.by)
        for cluster, pool in had.keys() - wanted.keys():
            roles.unbind(row, cluster=cluster_named(cluster), pool=pool, **run.by)
        linked = set(row.identities.values_list("issuer", "subject"))
        for one in item.identities:
            if (one.issuer, one.subject) not in linked:
                oidc.link(row, issuer=one.issuer, subject=one.subject, reason=REASON, **run.by)
        for view in item.views:
            if not row.views.filter(listing=view.listing, name=view.name).exists():
                self._save_view(row, view, run)

    def _save_view(self, row: User, view: document.View, run: Run) -> None:
        query = saved_views.checked_query(row, view.listing, view.query)
        saved_views.save(
            row,
            listing=view.listing,
            name=view.name,
            query=query,
            shared=view.shared,
            opens_first=view.opens_first,
            now=run.now,
        )

    def _unlock(self, row: User, item: document.Person, run: Run) -> None:
        secrets = {name: value for name, value in self.given(item, run).items() if name in item.secrets}
        if PASSWORD in secrets:
            _check_hash(secrets[PASSWORD])
        if secrets:
            try:
                moved_accounts.unlock(row, secrets.pop(PASSWORD, ""), secrets, **run.by)
            except (KeyError, TypeError, ValueError) as error:
                raise ItemInvalid(".secrets", "are not those of a person; export again") from error


class Groups(Section[document.Group]):
    """The roles of groups."""

    name, noun = "groups", "group"

    def read(self) -> list[document.Group]:
        return [
            document.Group(
                group=row.group, role=row.role, cluster=row.cluster.name if row.cluster else "", pool=row.pool
            )
            for row in GroupMapping.objects.select_related("cluster").order_by("group", "cluster__name", "pool")
        ]

    def make(self, item: document.Group, run: Run) -> None:
        cluster = cluster_named(item.cluster)
        oidc.map_group(item.group, item.role, cluster=cluster, pool=item.pool, reason=REASON, **run.by)

    def change(self, item: document.Group, before: document.Group, run: Run) -> bool:
        self.make(item, run)
        return True


def administrators() -> int:
    """How many people can act as admins everywhere."""
    held = RoleBinding.objects.filter(role=Role.ADMIN, cluster=None, user__is_active=True)
    return held.values("user").distinct().count()


def _read(row: User) -> document.Person:
    secrets = [PASSWORD] if row.has_usable_password() else []
    bindings = [one for one in row.bindings.all() if one.source == RoleBinding.Source.HAND]
    given = [
        document.Given(role=one.role, cluster=one.cluster.name if one.cluster else "", pool=one.pool)
        for one in bindings
    ]
    views = [
        document.View(
            listing=one.listing, name=one.name, query=one.query, shared=one.shared, opens_first=one.opens_first
        )
        for one in row.views.all()
    ]
    return document.Person(
        name=row.username,
        enabled=row.is_active,
        roles=sorted(given, key=lambda one: (one.cluster, one.pool)),
        identities=sorted(
            (document.Identity(issuer=one.issuer, subject=one.subject) for one in row.identities.all()),
            key=lambda one: (one.issuer, one.subject),
        ),
        views=sorted(views, key=lambda one: (one.listing, one.name)),
        secrets=sorted((*secrets, *moved_accounts.names_of_factors(row))),
        **{name: getattr(row, name) for name in FIELDS},
    )


def _fields(item: document.Person) -> dict[str, str]:
    return {name: getattr(item, name) for name in FIELDS}


def _check_hash(value: Any) -> None:
    try:
        found = identify_hasher(value).decode(value)
    except (TypeError, ValueError, AttributeError) as error:
        raise ItemInvalid(".secrets.password", "is no hash of a password that this portal knows") from error
    for name, most in COSTS.items():
        if not 0 < found.get(name, 1) <= most:
            raise ItemInvalid(".secrets.password", f"cannot be checked; {name} must be 1 to {most}")
    if not found["salt"]:
        raise ItemInvalid(".secrets.password", "is a hash without a salt")
