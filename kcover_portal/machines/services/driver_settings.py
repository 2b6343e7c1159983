"""Create, change and delete machine drivers. Every act is in the audit log; passwords are not."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover.machines import machine_drivers
from kcover.values import masked_addresses
from kcover.values.quote import short_text
from kcover_portal import encryption
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines.models import Driver

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
MAX_NAME, MAX_PASSWORD = 200, 200  # characters
CHANGEABLE: Final = ("url", "username", "password", "settings", "enabled")


def make_driver(
    name: str,
    kind: str,
    cluster: Cluster,
    *,
    url: str = "",
    username: str = "",
    password: str = "",
    given: Mapping[str, Any],
    actor: str,
    now: datetime,
) -> Driver:
    """Creates a driver. ``given``: its settings. Raises FieldError."""
    if not NAME.fullmatch(name):
        raise FieldError("name", reasons.of("driver_name_invalid"))
    if kind not in machine_drivers.KINDS:
        known = ", ".join(machine_drivers.KINDS)
        raise FieldError("kind", reasons.of("kind_unknown", kind=repr(kind[:60]), known=known))
    row = Driver(name=name, kind=kind, cluster=cluster, created_by=actor, created_at=now)
    _set(row, {"url": url, "username": username, "password": password, "settings": dict(given)})
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            act = audit.DriverCreated(driver=name, kind=kind, settings=_shown(row))
            ledger.record(cluster.name, act, actor=actor, now=now)
    except IntegrityError as error:
        raise FieldError("name", reasons.of("driver_exists", driver=name)) from error
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error
    return row


def change_driver(driver: Driver, given: Mapping[str, Any], *, actor: str, now: datetime) -> Driver:
    """Changes the named columns, all or none. Settings that are not named stay; None removes one. Raises FieldError.

    Whoever changes where the password is sent must give the password again.
    """
    with transaction.atomic():
        row = Driver.objects.select_related("cluster").select_for_update(of=("self",)).get(pk=driver.pk)
        before, receivers = {name: encryption.peek(row, name) for name in CHANGEABLE}, row.receivers
        merged = dict(given)
        if "settings" in given:
            merged["settings"] = {**row.settings, **given["settings"]}
        _set(row, merged)
        moved = row.receivers != receivers
        if moved and "password" not in given and encryption.is_set(row, "password"):
            raise FieldError("password", reasons.of("secret_again"))
        changed = {name for name in given if before[name] != encryption.peek(row, name)}
        if moved and "password" in given:
            changed.add("password")  # it is encrypted for its receivers
        if not changed:
            return row
        try:
            row.save(update_fields=changed)
        except encryption.KeysUnusable as error:
            raise FieldError("", error.reason, conflict=True) from error
        changes = {
            name: audit.SECRET_CHANGED if name == "password" else _change(before[name], getattr(row, name))
            for name in sorted(changed)
        }
        act = audit.DriverChanged(driver=row.name, changed=changes)
        ledger.record(row.cluster.name, act, actor=actor, now=now)
    return row


def delete_driver(driver: Driver, *, actor: str, now: datetime) -> None:
    """Deletes a driver. A power cycle that is under way then waits for a person."""
    with transaction.atomic():
        act = audit.DriverDeleted(driver=driver.name, kind=driver.kind)
        ledger.record(driver.cluster.name, act, actor=actor, now=now)
        driver.delete()


def _set(row: Driver, given: Mapping[str, Any]) -> None:
    """Sets the given columns and checks the whole row. Raises FieldError."""
    for name, value in given.items():
        setattr(row, name, value)
    try:
        row.settings = machine_drivers.read(row.kind, row.settings, url=row.url)
    except machine_drivers.SettingError as error:
        raise FieldError(f"settings/{error.name}" if error.name else "url", error.reason) from error
    for name, most in (("username", MAX_NAME), ("password", MAX_PASSWORD)):
        value = given.get(name, "")
        if len(value) > most or not value.isprintable() or (name == "username" and ":" in value):
            raise FieldError(name, reasons.of("driver_credential_invalid", most=most))
    if row.kind == Driver.Kind.IPMI:
        _check_ipmi(given)
    if row.kind in machine_drivers.SIGNED:
        _check_signing(row, given)
    if row.kind in machine_drivers.IN_CLUSTER:
        _check_in_cluster(row)


def _check_in_cluster(row: Driver) -> None:
    """Raises FieldError for a credential, which such a driver does not use, and for an unknown cluster."""
    if row.username or encryption.is_set(row, "password"):
        raise FieldError(
            "username" if row.username else "password", reasons.of("driver_credential_unused", kind=row.kind)
        )
    named = row.setting("cluster")
    if named and not Cluster.objects.filter(name=named).exists():
        raise FieldError("settings/cluster", reasons.of("driver_cluster_unknown", cluster=short_text(named)))


def _check_ipmi(given: Mapping[str, Any]) -> None:
    """Raises FieldError for a credential that IPMI cannot carry. A controller would cut it off or refuse it."""
    limits = (("username", machine_drivers.IPMI_MAX_NAME), ("password", machine_drivers.IPMI_MAX_PASSWORD))
    for name, most in limits:
        if len(given.get(name, "").encode()) > most:
            raise FieldError(name, reasons.of("driver_ipmi_credential", most=most))


def _check_signing(row: Driver, given: Mapping[str, Any]) -> None:
    if row.username:
        raise FieldError("username", reasons.of("driver_username_unused", kind=row.kind))
    if not encryption.is_set(row, "password") or len(given.get("password") or "x" * 99) < machine_drivers.MIN_SECRET:
        raise FieldError("password", reasons.of("driver_secret_short", least=machine_drivers.MIN_SECRET))


def _change(before: object, after: object) -> audit.Change:
    return audit.Change(before=masked_addresses.mask(before), after=masked_addresses.mask(after))


def _shown(row: Driver) -> dict[str, Any]:
    """The columns as the audit log may show them, without the password."""
    return {
        "cluster": row.cluster.name,
        "url": row.shown_url,
        "username": row.username,
        "settings": masked_addresses.mask(row.settings),
        "enabled": row.enabled,
    }
