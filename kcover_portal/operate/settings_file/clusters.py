"""Clusters, and the portal as a whole."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from django.db import models

from kcover.decisions import guards
from kcover.policy import modes
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings, pending_changes, registry
from kcover_portal.operate.settings_file import document
from kcover_portal.operate.settings_file.document import ordered
from kcover_portal.operate.settings_file.sections import REASON, ItemInvalid, Run, Section, acting
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Mode

ACCESS: Final = registry.SECRETS
# Where the portal acts, others wait for a person: whom it believes, what it runs on nodes, which tests it asks for.
MAY_CHANGE: Final = (*pending_changes.JUDGED, "gpu_hour_price")
# The JSON type of a setting by its column; a boolean is no number here.
TYPES: Final[Sequence[tuple["type[models.Field[Any, Any]]", type, str]]] = (
    (models.BooleanField, bool, "true or false"),
    (models.IntegerField, int, "a whole number"),
    (models.JSONField, dict, "an object"),
    (models.DecimalField, str, "a text"),
    (models.CharField, str, "a text"),
    (models.TextField, str, "a text"),
)


class Installation(Section[document.Setup]):
    """The mode of the portal as a whole. An import never makes it less strict, unless modes are kept."""

    name, noun = "installation", "mode of"

    def read(self) -> list[document.Setup]:
        return [document.Setup(mode=runtime.installation().mode)]

    def change(self, item: document.Setup, before: document.Setup, run: Run) -> bool:
        if item.mode not in Mode.values:
            raise ItemInvalid(".mode", f"must be one of {', '.join(Mode.values)}")
        if not run.keep_modes and modes.strictest(item.mode, before.mode) != item.mode:
            run.notes.append(f"installation: stays in mode {before.mode}; --keep-modes makes it {item.mode}")
            return False
        services.resume(cluster=None, reason=REASON, mode=item.mode, **run.by)
        return True


class Clusters(Section[document.Cluster]):
    """Clusters with their settings, guards and access."""

    name, noun = "clusters", "cluster"

    def read(self) -> list[document.Cluster]:
        return [_read(row) for row in Cluster.objects.order_by("name")]

    def secrets(self, item: document.Cluster) -> dict[str, Any]:
        row = Cluster.objects.get(name=item.name)
        return {name: getattr(row, name) for name in _secrets(row)}

    def make(self, item: document.Cluster, run: Run) -> None:
        secrets = self.given(item, run)
        settings = _typed(item, secrets)
        mode = str(settings.pop("mode", Mode.SHADOW))
        first = mode if run.keep_modes else modes.strictest(mode, Mode.SHADOW)
        if first != mode:
            run.notes.append(f"cluster {item.name}: comes in mode {first}, not {mode}; see --keep-modes")
        access: dict[str, Any] = {"in_cluster": item.in_cluster, "context": item.context}
        access |= {name: _text(secrets, name) for name in ACCESS if name in secrets}
        row = registry.add(item.name, **access, mode=first, **run.by)
        run.made.add(item.name)
        self._set(row, settings, run)
        self._guard(row, item, run)
        why = _not_ready(item, access)
        if why and first != Mode.PAUSED and not (item.in_cluster and run.keep_modes):
            services.pause(cluster=row, reason=why, **run.by)
            run.notes.append(f"cluster {item.name}: comes in paused: {why}, then resume it")

    def change(self, item: document.Cluster, before: document.Cluster, run: Run) -> bool:
        secrets = self.given(item, run)
        row = Cluster.objects.get(name=item.name)
        wanted = _typed(item, secrets)
        changes = {name: value for name, value in wanted.items() if encryption.peek(row, name) != _stored(name, value)}
        access: dict[str, Any] = {"in_cluster": item.in_cluster, "context": item.context}
        access |= {name: _text(secrets, name) for name in ACCESS if name in secrets}
        access = {name: value for name, value in access.items() if encryption.peek(row, name) != value}
        if access and not (run.keep_modes or _has_none(row)):
            run.notes.append(f"cluster {row.name}: keeps its access, not {', '.join(sorted(access))}; see --keep-modes")
            access = {}
        if access:
            row = registry.add(item.name, replace=True, **access, **run.by)
        changes = {name: value for name, value in changes.items() if self._may(row, name, value, run)}
        self._set(row, changes, run)
        return self._guard(row, item, run, loosens=run.keep_modes) or bool(access or changes)

    def _may(self, row: Cluster, name: str, value: Any, run: Run) -> bool:
        """Returns whether the setting of a cluster that was there may be changed: not if it may loosen a limit."""
        resumes = name == "mode" and row.mode == Mode.PAUSED
        if resumes and not (row.in_cluster or encryption.is_set(row, "kubeconfig")):
            run.notes.append(f"cluster {row.name}: stays paused until it has a kubeconfig")
            return False
        if run.keep_modes:
            return True
        if name not in MAY_CHANGE and row.name in acting(run):
            run.notes.append(f"cluster {row.name}: {name} stays, because the portal acts there; see --keep-modes")
            return False
        if not (resumes or pending_changes.loosens_settings(row, {name: value})):
            return True
        run.notes.append(f"cluster {row.name}: {name} stays, because the other value loosens a limit; see --keep-modes")
        return False

    def _set(self, row: Cluster, settings: dict[str, Any], run: Run) -> None:
        if settings:
            cluster_settings.set_cluster(row, settings, reason=REASON, **run.by)

    def _guard(self, row: Cluster, item: document.Cluster, run: Run, *, loosens: bool = True) -> bool:
        before = queries.guards_of(row)
        try:
            if guards.merge(before, item.guards) == before:
                return False
            if not loosens and pending_changes.loosens_guards(row, item.guards):
                run.notes.append(
                    f"cluster {row.name}: the guards stay, because the others are looser; see --keep-modes"
                )
                return False
            cluster_settings.set_guards(row, item.guards, reason=REASON, **run.by)
        except guards.SettingError as error:
            raise ItemInvalid(".guards", str(error)) from error
        return True


def _read(row: Cluster) -> document.Cluster:
    secrets = _secrets(row)
    settings = {name: getattr(row, name) for name in cluster_settings.SETTINGS if name not in secrets}
    settings = {name: settings[name] for name in settings if name not in cluster_settings.SECRET}
    price = settings.get("gpu_hour_price")
    return document.Cluster(
        name=row.name,
        in_cluster=row.in_cluster,
        context=row.context,
        settings=ordered({**settings, "gpu_hour_price": None if price is None else str(price)}),
        guards=ordered(guards.to_json(queries.guards_of(row))),
        secrets=secrets,
    )


def _secrets(row: Cluster) -> list[str]:
    """The names of what is set and secret; an address counts if it may have a key in it."""
    names = [name for name in (*ACCESS, *cluster_settings.SECRET) if encryption.is_set(row, name)]
    keys = [name for name in ("decision_url",) if masked_addresses.contains_key(getattr(row, name))]
    return sorted((*names, *keys))


def _typed(item: document.Cluster, secrets: dict[str, Any]) -> dict[str, Any]:
    """The settings, with those that are secret. Raises ItemInvalid."""
    found = item.settings | {name: secrets[name] for name in item.secrets if name in secrets and name not in ACCESS}
    for name, value in found.items():
        if name not in cluster_settings.SETTINGS:
            raise ItemInvalid(f".settings.{name}", "is unknown; remove it")
        column: models.Field[Any, Any] = next(one for one in Cluster._meta.fields if one.name == name)
        wanted, words = next(
            ((kind, words) for field, kind, words in TYPES if isinstance(column, field)), (str, "a text")
        )
        if not (type(value) is wanted or (value is None and column.null)):
            raise ItemInvalid(f".settings.{name}", f"must be {words}")
        known = [key for key, _label in column.choices or ()]
        if known and value not in known:
            raise ItemInvalid(f".settings.{name}", f"must be one of {', '.join(known)}")
    return found


def _stored(name: str, value: Any) -> Any:
    """A setting as its column has it."""
    if name == "gpu_hour_price" and value is not None:
        try:
            return Decimal(value)
        except ArithmeticError:
            return value  # the service says why it is wrong
    return value


def _text(secrets: dict[str, Any], name: str) -> str:
    value = secrets[name]
    if not isinstance(value, str):
        raise ItemInvalid(f".secrets.{name}", "must be a text")
    return value


def _has_none(row: Cluster) -> bool:
    """Returns whether the cluster waits for its first access. Another access would lead to another cluster."""
    return row.mode == Mode.PAUSED and not (row.in_cluster or encryption.is_set(row, "kubeconfig"))


def _not_ready(item: document.Cluster, access: dict[str, Any]) -> str:
    """Why a new cluster must not be used yet; "": it may be."""
    if item.in_cluster:
        return "check that this portal runs in the same cluster as the old one"
    return "" if access.get("kubeconfig") else f"enter its kubeconfig (cluster add {item.name} --replace)"
