"""Drivers, sinks, channels and sources: the rows that are declared with ``settings_rows``."""

import secrets as random
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from kcover.sources import settings as source_settings
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.v1 import settings_rows as bodies
from kcover_portal.audit_stream.services.sinks import SINKS
from kcover_portal.lib.errors import FieldError
from kcover_portal.machines.services.driver_settings import DRIVERS
from kcover_portal.notify.models import Channel, NamespaceRoute, Route
from kcover_portal.notify.services.channels import CHANNELS, make_route
from kcover_portal.notify.services.namespace_routes import delete_namespace_route, make_namespace_route
from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import ordered
from kcover_portal.operate.settings_file.sections import (
    REASON,
    ItemInvalid,
    Run,
    Section,
    acting,
    at,
    cluster_named,
    one_cluster,
)
from kcover_portal.settings_rows import Person, Resource
from kcover_portal.sources.services.source_settings import SOURCES

NOWHERE: Final = "https://enter-again.invalid"  # RFC 2606: no server has this name
ADDRESSES: Final = ("url", "address")
RowItem = TypeVar("RowItem", bound=document.Row)


class Rows(Section[RowItem]):
    """The rows of one declaration."""

    item: type[RowItem]

    def __init__(self, name: str, resource: "Resource[Any]", item: type[RowItem]) -> None:
        self.name, self.noun = name, resource.noun  # type: ignore[misc]
        self.resource, self.item = resource, item
        self.body = bodies.new_body(resource, "Row", "A row of a file.")

    def read(self) -> list[RowItem]:
        return [self._read(row) for row in self.resource.rows().order_by("name")]

    def secrets(self, item: RowItem) -> dict[str, Any]:
        row = self._row(item)
        fields = {column.name: column.field for column in self.resource.columns}
        return {name: getattr(row, fields[name]) for name in item.secrets}

    def make(self, item: RowItem, run: Run) -> None:
        given = self._given(item, run)
        lacking = [name for name in item.secrets if name not in given]
        quiet = _is_held_back(item, run)
        if quiet:
            run.notes.append(f"{self.noun} {item.name}: is disabled, because its cluster acts; see --keep-modes")
        if lacking or quiet:
            given["enabled"] = False
        fixed: dict[str, Any] = {"name": item.name, "kind": item.kind}
        if isinstance(item, document.ClusterRow):
            fixed["cluster"] = one_cluster(item.cluster)
        stand_ins = {name: _stand_ins(name) for name in lacking}
        while True:
            try:
                self.resource.make(self.resource.model(**fixed), given, **run.by)
                break
            except FieldError as error:
                stand_in = next(stand_ins.get(error.field, iter(())), None)
                if stand_in is None:
                    raise at(error, ".settings" if error.field in given else "") from error
                given[error.field] = stand_in
        if lacking:
            run.notes.append(f"{self.noun} {item.name}: is disabled; enter again: {', '.join(lacking)}")

    def change(self, item: RowItem, before: RowItem, run: Run) -> bool:
        given = self._given(item, run)
        row = self._row(item)
        if item.kind != row.kind or getattr(item, "cluster", "") != getattr(before, "cluster", ""):
            raise ItemInvalid("", f"{self.noun} {item.name} is of another kind or cluster here; delete or rename one")
        fields = {column.name: column.field for column in self.resource.columns}
        changes = {name: value for name, value in given.items() if encryption.peek(row, fields[name]) != value}
        if changes.get("enabled") and (lacking := [name for name in item.secrets if name not in given]):
            del changes["enabled"]  # it may have come in without its secrets
            run.notes.append(f"{self.noun} {item.name}: stays disabled; check, then enable it: {', '.join(lacking)}")
        if _is_held_back(item, run):
            changes = self._held_back(row, changes, run)
        if "settings" in changes:  # a key that the file does not have goes
            changes["settings"] = {**dict.fromkeys(row.settings), **changes["settings"]}
        if not changes:
            return False
        try:
            self.resource.change(row, changes, reason=REASON, **run.by)
        except FieldError as error:
            raise at(error, ".settings" if error.field in fields else "") from error
        return True

    def _held_back(self, row: Any, changes: dict[str, Any], run: Run) -> dict[str, Any]:
        """The changes after which the row is off: what is on tells the portal of faults, or acts on machines."""
        kept = {name: value for name, value in changes.items() if name != "enabled" or not value}
        if row.enabled and kept.get("enabled", True):
            kept = {}
        if left := sorted(changes.keys() - kept.keys()):
            told = f"{', '.join(left)} stays, because its cluster acts; see --keep-modes"
            run.notes.append(f"{self.noun} {row.name}: {told}")
        return kept

    def is_own(self, item: RowItem, run: Run) -> bool:
        """The sources of a watch come with their cluster."""
        return item.kind in source_settings.WATCHED and getattr(item, "cluster", "") in run.made

    def _row(self, item: RowItem) -> Any:
        return self.resource.rows().get(name=item.name)

    def _read(self, row: Any) -> RowItem:
        names = self._secret_names(row)
        settings = {
            column.name: _plain(getattr(row, column.field))
            for column in self.resource.columns_of(row.kind)
            if column.name not in names and not self._is_secret(row, column.field)
        }
        of_cluster = {"cluster": row.cluster.name} if self.resource.has_cluster else {}
        return self.item(name=row.name, kind=row.kind, settings=ordered(settings), secrets=names, **of_cluster)

    def _is_secret(self, row: Any, field: str) -> bool:
        return field in self.resource.secrets_of(row)

    def _secret_names(self, row: Any) -> list[str]:
        """The settings of a row that are secret and set, and those whose addresses may have a key in them."""
        return sorted(
            column.name
            for column in self.resource.columns_of(row.kind)
            if (
                encryption.is_set(row, column.field)
                if self._is_secret(row, column.field)
                else masked_addresses.contains_key(_plain(encryption.peek(row, column.field)))
            )
        )

    def _given(self, item: RowItem, run: Run) -> dict[str, Any]:
        """The settings of the file, with its secrets, checked as over REST. Raises ItemInvalid and FieldErrors."""
        known = [column.name for column in self.resource.columns_of(item.kind)]
        if unknown := [name for name in item.settings if name not in known]:
            raise ItemInvalid(f".settings.{unknown[0]}", "is unknown; remove it")
        of_cluster = {"cluster": item.cluster} if isinstance(item, document.ClusterRow) else {}
        secrets = {name: value for name, value in self.given(item, run).items() if name in item.secrets}
        parsed = self.body(data={**item.settings, **secrets, "name": item.name, "kind": item.kind, **of_cluster})
        parsed.is_valid(raise_exception=True)
        given = {name: parsed.validated_data[name] for name in known if name in parsed.validated_data}
        for column in self.resource.columns:
            if isinstance(column, Person) and given.get(column.name):
                given[column.name] = _person(given[column.name], column.name)
        return given


class Routes(Section[document.Route]):
    """The events that go to channels."""

    name, noun = "routes", "route"

    def read(self) -> list[document.Route]:
        found = [
            document.Route(
                channel=row.channel.name,
                kinds=list(row.kinds),
                cluster=row.cluster.name if row.cluster else "",
                least=row.least,
            )
            for row in Route.objects.select_related("channel", "cluster")
        ]
        return sorted({one.key: one for one in found}.values(), key=lambda one: one.key)

    def make(self, item: document.Route, run: Run) -> None:
        channel = _channel(item.channel)
        make_route(channel, kinds=item.kinds, cluster=cluster_named(item.cluster), least=item.least, **run.by)


class NamespaceRoutes(Section[document.NamespaceRoute]):
    """The channels of the jobs of some namespaces."""

    name, noun = "namespace_routes", "route of the namespace"

    def read(self) -> list[document.NamespaceRoute]:
        rows = NamespaceRoute.objects.select_related("channel", "cluster").order_by("cluster__name", "namespace")
        return [
            document.NamespaceRoute(cluster=row.cluster.name, namespace=row.namespace, channel=row.channel.name)
            for row in rows
        ]

    def make(self, item: document.NamespaceRoute, run: Run) -> None:
        make_namespace_route(
            _channel(item.channel), cluster=one_cluster(item.cluster), namespace=item.namespace, **run.by
        )

    def change(self, item: document.NamespaceRoute, before: document.NamespaceRoute, run: Run) -> bool:
        row = NamespaceRoute.objects.get(cluster__name=item.cluster, namespace=item.namespace)
        delete_namespace_route(row, reason=REASON, **run.by)
        self.make(item, run)
        return True


def _is_held_back(item: document.Row, run: Run) -> bool:
    """Returns whether the row is of a cluster in which the portal acts, and the import must start nothing there."""
    return isinstance(item, document.ClusterRow) and not run.keep_modes and item.cluster in acting(run)


def _channel(name: str) -> Channel:
    found = Channel.objects.filter(name=name).first()
    if found is None:
        raise ItemInvalid(".channel", f"there is no channel {name[:100]!r}, and the file has none either")
    return found


def _person(name: str, field: str) -> Any:
    found = accounts.find_user(name)
    if found is None:
        raise ItemInvalid(f".settings.{field}", f"there is no user {name[:100]!r}, and the file has none either")
    return found


def _stand_ins(name: str) -> Iterator[str]:
    """Values in place of a secret that the file does not have: an address that leads nowhere, a key nobody knows."""
    key = random.token_hex(16)
    yield from (NOWHERE, f"{NOWHERE}/{key}") if name in ADDRESSES else (key, f"{key}:{key}")


def _plain(value: Any) -> Any:
    """A setting as JSON; a person by their name."""
    return value.username if hasattr(value, "username") else value


DRIVER_ROWS: Final = Rows("drivers", DRIVERS, document.ClusterRow)
SINK_ROWS: Final = Rows("sinks", SINKS, document.Row)
CHANNEL_ROWS: Final = Rows("channels", CHANNELS, document.Row)
SOURCE_ROWS: Final = Rows("sources", SOURCES, document.ClusterRow)
