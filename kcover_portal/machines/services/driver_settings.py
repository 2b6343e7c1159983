"""Create, change and delete machine drivers. Every act is in the audit log; passwords are not."""

from collections.abc import Mapping
from typing import Any, Final

from kcover import audit, reasons
from kcover.machines import machine_drivers
from kcover.values.quote import short_text
from kcover_portal import encryption
from kcover_portal.accounts.models import Verb
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines.models import Driver
from kcover_portal.settings_rows import Flag, Given, Pairs, Resource, Secret, Text

MAX_CREDENTIAL: Final = 200  # characters of a user name, and of a password


class _Drivers(Resource[Driver]):
    """Machine drivers."""

    def check(self, row: Driver, given: Given) -> None:
        """Raises FieldError unless settings and credentials fit the kind of the driver."""
        try:
            row.settings = machine_drivers.read(row.kind, row.settings, url=row.url)
        except machine_drivers.SettingError as error:
            raise FieldError(f"settings/{error.name}" if error.name else "url", error.reason) from error
        for name in ("username", "password"):
            value = given.get(name, "")
            if not value.isprintable() or (name == "username" and ":" in value):
                raise FieldError(name, reasons.of("driver_credential_invalid", most=MAX_CREDENTIAL))
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


DRIVERS: Final = _Drivers(
    model=Driver,
    noun="driver",
    kinds=machine_drivers.KINDS,
    verb=Verb.CONFIGURE,
    columns=(
        Text(name="url", most=1000, option="such as https://{node}-bmc.example; {bmc}: the node's annotation"),
        Text(name="username", most=MAX_CREDENTIAL),
        Secret(name="password", most=MAX_CREDENTIAL),
        Pairs(name="settings", keys=lambda kind: machine_drivers.SETTINGS[kind]),
        Flag(name="enabled"),
    ),
    related=("cluster",),
    has_cluster=True,
    created=audit.DriverCreated,
    changed=audit.DriverChanged,
    deleted=audit.DriverDeleted,
    name_invalid=reasons.of("driver_name_invalid"),
    name_taken=lambda name: reasons.of("driver_exists", driver=name),
)
