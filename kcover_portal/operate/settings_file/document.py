"""The form of the file: sections of named objects as JSON. Everything that is not of this form is refused."""

import json
import math
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kcover_portal.config import version
from kcover_portal.operate.settings_file import sealed

VERSION: Final = 1
KIND: Final = "kcover-portal settings"
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_DEPTH: Final = 40
Secrets = dict[str, dict[str, dict[str, Any]]]  # values by section, object and field


class FileInvalid(ValueError):
    """The file cannot be used. The message names the place: a line, or a path such as $.clusters[0].mode."""


class Item(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An object of a section."""

    @property
    def key(self) -> str:
        """Its name within its section."""
        return str(getattr(self, "name", ""))


class Setup(Item):
    """The portal as a whole."""

    mode: str

    @property
    def key(self) -> str:
        return "installation"


class CustomRole(Item):
    """A role that people made."""

    name: str
    verbs: list[str]


class Cluster(Item):
    """A cluster. ``settings``: what ``cluster set`` takes. ``secrets``: the names of those that are set."""

    name: str
    in_cluster: bool
    context: str
    settings: dict[str, Any]
    guards: dict[str, Any]
    secrets: list[str]


class Given(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A role that a person has by hand. ``cluster`` "": in all clusters; ``pool`` "": in all pools."""

    role: str
    cluster: str
    pool: str


class Identity(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A person at a provider of single sign-on."""

    issuer: str
    subject: str


class View(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A saved view of a list."""

    listing: str
    name: str
    query: str
    shared: bool
    opens_first: bool


class Person(Item):
    """An account."""

    name: str
    enabled: bool
    first_name: str
    last_name: str
    email: str
    language: str
    zone: str
    home: str
    roles: list[Given]
    identities: list[Identity]
    views: list[View]
    secrets: list[str]


class Group(Item):
    """The role of a group of the identity provider."""

    group: str
    role: str
    cluster: str
    pool: str

    @property
    def key(self) -> str:
        return _key(self.group, cluster=self.cluster, pool=self.pool)


class Profile(Item):
    """A validation profile that was changed."""

    name: str
    document: dict[str, Any]


class Vendor(Item):
    """The days that a vendor has."""

    name: str
    accept_days: int | None
    return_days: int | None


class Row(Item):
    """A driver, sink, channel or source: its settings are those of its ``settings_rows``."""

    name: str
    kind: str
    settings: dict[str, Any]
    secrets: list[str]


class ClusterRow(Row):
    """A row of one cluster."""

    cluster: str


class Policy(Item):
    """The active revision of a policy."""

    name: str
    kind: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"


class Route(Item):
    """The events that go to a channel."""

    channel: str
    kinds: list[str]
    cluster: str
    least: str

    @property
    def key(self) -> str:
        return _key(self.channel, *self.kinds, cluster=self.cluster, least=self.least)


class NamespaceRoute(Item):
    """The channel of the jobs of some namespaces."""

    cluster: str
    namespace: str
    channel: str

    @property
    def key(self) -> str:
        return f"{self.cluster} {self.namespace}"


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The sections, in the order in which they are imported. One that is left out changes nothing."""

    installation: list[Setup] = []
    roles: list[CustomRole] = []
    clusters: list[Cluster] = []
    people: list[Person] = []
    groups: list[Group] = []
    profiles: list[Profile] = []
    vendors: list[Vendor] = []
    drivers: list[ClusterRow] = []
    sinks: list[Row] = []
    channels: list[Row] = []
    sources: list[ClusterRow] = []
    policies: list[Policy] = []
    routes: list[Route] = []
    namespace_routes: list[NamespaceRoute] = []


class File(Settings):
    """A whole file. ``secrets``: the encrypted secrets, which belong to exactly these sections."""

    kind: str
    version: int
    portal: str
    secrets: dict[str, Any] | None = None


def write(settings: Settings, secrets: Secrets, passphrase: str | None) -> str:
    """The text of a file; with a passphrase, the secrets are in it."""
    plain = _plain(settings)
    whole: dict[str, Any] = {"kind": KIND, "version": VERSION, "portal": version.installed() or "source"}
    if passphrase is not None:
        whole["secrets"] = sealed.seal(_canonical(secrets), passphrase, of=_canonical(plain))
    return f"{json.dumps({**whole, **plain}, indent=2, ensure_ascii=False)}\n"


def read(content: bytes) -> File:
    """The file of these bytes. Raises FileInvalid."""
    found = _json(content)
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise FileInvalid(f'$: this is no file of settings; one begins with "kind": "{KIND}"')
    if found.get("version") != VERSION or isinstance(found["version"], bool):
        raise FileInvalid(
            f"$.version: this portal reads version {VERSION}, not {str(found.get('version'))[:20]}; export with a"
            f" portal that writes version {VERSION}, or import with the portal that wrote the file:"
            f" {str(found.get('portal'))[:40]}"
        )
    _check_texts(found, "$")
    try:
        file = msgspec.convert(found, File)
    except (msgspec.ValidationError, OverflowError) as error:
        what, _at, place = str(error).partition(" - at ")
        raise FileInvalid(f"{place.strip('`') or '$'}: {what}") from error
    for name in Settings.__struct_fields__:
        _check_keys(name, getattr(file, name))
    return file


def secrets_of(file: File, passphrase: str) -> Secrets:
    """The secrets of a file. Raises FileInvalid for another passphrase, or if the sections were changed."""
    try:
        plain = sealed.unseal(file.secrets or {}, passphrase, of=_canonical(_plain(file)))
        return msgspec.json.decode(plain, type=Secrets)
    except (sealed.SealBroken, msgspec.MsgspecError) as error:
        raise FileInvalid(f"$.secrets: {error}") from error


def differences(before: Item, wanted: Item) -> list[str]:
    """The names of the settings that differ. Of ``settings`` and ``guards``, only those that are wanted count."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(wanted)
    found = []
    for name, value in new.items():
        if name in ("settings", "guards"):
            found += [key for key in value if value[key] != old[name].get(key)]
        elif value != old[name] and name != "secrets":
            found.append(name)
    return found


def ordered(value: Any) -> Any:
    """A JSON value whose keys are in order, as PostgreSQL keeps none."""
    if isinstance(value, Mapping):
        return {key: ordered(value[key]) for key in sorted(value)}
    return [ordered(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(settings: Settings) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(settings, name)) for name in Settings.__struct_fields__}


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _json(content: bytes) -> Any:
    if len(content) > MAX_BYTES:
        raise FileInvalid(f"the file is larger than {MAX_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise FileInvalid(f"line {line}: this is no UTF-8") from error
    try:
        return json.loads(text, object_pairs_hook=_without_twins, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise FileInvalid(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise FileInvalid("the file is nested too deeply") from error
    except FileInvalid:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise FileInvalid(f"a number is too long: {error}") from error


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _value in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise FileInvalid(f"an object has {twin[:60]!r} twice; remove one")
    return found


def _no_number(text: str) -> Any:
    raise FileInvalid(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FileInvalid(f"the number {text[:40]} is too large")
    return value


def _check_texts(value: Any, path: str, depth: int = 0) -> None:
    """Raises FileInvalid for a text that no database stores, NUL or half of a surrogate pair, and for deep nesting."""
    if depth > MAX_DEPTH:
        raise FileInvalid(f"{path[:200]}: is nested too deeply")
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= one <= "\udfff" for one in value):
            raise FileInvalid(f"{path[:200]}: the text has a character that cannot be stored")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            _check_texts(one, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for name, one in value.items():
            _check_texts(name, path, depth)
            _check_texts(one, f"{path}.{name}", depth + 1)


def _key(*names: str, **within: str) -> str:
    """A key that no other item can have: names with a space are quoted, and empty parts are left out."""
    return shlex.join([*names, *(f"{label}={value}" for label, value in within.items() if value)])


def _check_keys(section: str, items: list[Item]) -> None:
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        if item.key in seen:
            raise FileInvalid(f"$.{section}[{index}]: {item.key[:100]!r} is already at [{seen[item.key]}]; remove one")
        seen[item.key] = index
