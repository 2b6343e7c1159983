"""Machine drivers: their kinds and settings, and which management controller (BMC) belongs to a node.

Belongs here: what an admin may set, and the rules that choose an address and compare identities. Never here: calls to a
controller, which are in ``kcover_portal.machines``.
"""

import ipaddress
import json
import re
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kcover import reasons
from kcover.actions import attributes
from kcover.reasons import Reason
from kcover.values import setting_values
from kcover.values.quote import short_text
from kcover.wire import fields

KINDS: Final = ("redfish", "ipmi", "webhook", "nvsentinel", "clusterapi", "karpenter")
SIGNED: Final = ("webhook",)  # kinds whose password signs requests, and whose address is one for all nodes
IN_CLUSTER: Final = (
    "nvsentinel",
    "clusterapi",
    "karpenter",
)  # kinds whose objects are in a cluster: without an address
REPLACING: Final = ("clusterapi", "karpenter")  # kinds that replace machines
POWERING: Final = tuple(kind for kind in KINDS if kind not in REPLACING)  # kinds that end a boot
MIN_SECRET: Final = 16  # characters of a password that signs
IPMI_PORT: Final = 623
IPMI_MAX_NAME, IPMI_MAX_PASSWORD = 16, 20  # bytes (IPMI 2.0, 22.28 and 22.30)
ANNOTATION: Final = "kcover.io/bmc"  # of a node: the host that replaces {bmc}
NODE, BMC = "{node}", "{bmc}"
MAX_TEXT, MAX_NAMES, MAX_NODES = 500, 50, 10_000
MACHINE_VERSIONS: Final = ("v1beta2", "v1beta1")  # of Cluster API
MAX_REPLACE_MINUTES: Final = 24 * 60
MAX_CALL_SECONDS: Final = 12  # a step's lease is 30 s, and a call must end within it
IPMI_ADDRESS = re.compile(r"ipmi://([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
HOST = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]{2,45}|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]{1,44}\]"
)

FORMS: Final = MappingProxyType({"redfish": "https://HOST", "ipmi": "ipmi://HOST:PORT"})  # of addresses

Reader = Callable[[object], Any]


class SettingError(reasons.ExplainedError, ValueError):
    """A setting is invalid, or missing. ``name``: of the setting; "" for the address."""

    def __init__(self, name: str, reason: Reason) -> None:
        super().__init__(reason)
        self.name = name


class NoAddress(reasons.ExplainedError):
    """The driver knows no controller for the node."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise SettingError("", reasons.of("source_setting_text", most=MAX_TEXT))
    return value


def _names(value: object) -> list[str]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not 0 < len(names) <= MAX_NAMES:
        raise SettingError("", reasons.of("source_setting_list", most=MAX_NAMES))
    return [_text(name) for name in names]


def _table(value: object, *, kind: str) -> dict[str, str]:
    """The address of each node: a JSON object, or the lines ``node address``."""
    if isinstance(value, str):
        value = _decoded(value)
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_NODES:
        raise SettingError("", reasons.of("driver_table", most=MAX_NODES))
    for node, address in value.items():
        if not isinstance(address, str) or _refusal(kind, address) is not None:
            raise SettingError("", reasons.of("driver_table_row", node=short_text(str(node)), form=FORMS[kind]))
    return dict(value)


def _decoded(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    rows = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return dict(rows) if all(len(row) == 2 for row in rows) and len({row[0] for row in rows}) == len(rows) else None


def _version(value: object) -> str:
    if value not in MACHINE_VERSIONS:
        raise SettingError("", reasons.of("driver_version", known=", ".join(MACHINE_VERSIONS)))
    return str(value)


_COMMON: Final[Mapping[str, Reader]] = {
    "pools": _names,
    "hosts": _names,
    "timeout": setting_values.number(1, MAX_CALL_SECONDS),
    "check_uuid": setting_values.boolean,
    "off_seconds": setting_values.number(0, 600),
}
SETTINGS: Final[Mapping[str, Mapping[str, Reader]]] = MappingProxyType(
    {
        "redfish": {
            **_COMMON,
            "table": partial(_table, kind="redfish"),
            "system": _text,
            "insecure": setting_values.boolean,
        },
        "ipmi": {**_COMMON, "table": partial(_table, kind="ipmi")},
        "webhook": {"pools": _names, "timeout": setting_values.number(1, MAX_CALL_SECONDS)},
        "nvsentinel": {"pools": _names},
        "clusterapi": {
            "pools": _names,
            "version": _version,
            "cluster": _text,
            "check_uuid": setting_values.boolean,
            "within": setting_values.number(1, MAX_REPLACE_MINUTES),
        },
        "karpenter": {"pools": _names, "within": setting_values.number(1, MAX_REPLACE_MINUTES)},
    }
)
DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {"pools": [], "table": {}, "hosts": [], "timeout": 10, "check_uuid": True, "off_seconds": 10}
    | {"system": "", "insecure": False, "version": "v1beta2", "cluster": "", "within": 60}
)


def read(kind: str, given: Mapping[str, Any], *, url: str) -> dict[str, Any]:
    """The settings in their canonical form. Raises SettingError. A value of None removes the setting.

    ``url``: the driver's address, with the places {node} or {bmc}; "" if the table has every node.
    """
    readers, found = SETTINGS[kind], {}
    for name, value in given.items():
        if name not in readers:
            known = ", ".join(sorted(readers))
            raise SettingError(
                name, reasons.of("driver_setting_unknown", kind=kind, name=short_text(name), known=known)
            )
        try:
            if value is not None:
                found[name] = readers[name](value)
        except (SettingError, setting_values.ValueInvalid) as error:
            raise SettingError(name, error.reason) from error
    if kind in IN_CLUSTER:
        if url:
            raise SettingError("", reasons.of("driver_address_unused", kind=kind))
    elif kind in SIGNED:
        _check_receiver(url)
    else:
        _check_address(kind, url, found)
    return found


def _check_receiver(url: str) -> None:
    if not url:
        raise SettingError("", reasons.of("driver_receiver_missing"))
    if refusal := attributes.url(url):
        raise SettingError("", refusal)


def _check_address(kind: str, url: str, found: Mapping[str, Any]) -> None:
    if not url and not found.get("table"):
        raise SettingError("", reasons.of("driver_address_missing", place=NODE))
    refusal = _refusal(kind, url.replace(NODE, "node").replace(BMC, "bmc")) if url else None
    if refusal is not None:
        raise SettingError("", refusal)
    if BMC in url and not found.get("hosts"):
        raise SettingError("hosts", reasons.of("driver_hosts_missing", annotation=ANNOTATION))
    addresses = [url, *found.get("table", {}).values()]
    if not found.get("insecure") and any(address.startswith("http:") for address in addresses):
        raise SettingError("", reasons.of("driver_address_plain"))


def _refusal(kind: str, address: str) -> Reason | None:
    if kind == "ipmi":
        port = address.rpartition(":")[2]
        fits = IPMI_ADDRESS.fullmatch(address) and (not port.isdecimal() or 0 < int(port) < 65536)
        return None if fits else reasons.of("driver_address_ipmi")
    refusal = attributes.url(address)
    if refusal is None and ("?" in address or "#" in address):
        return reasons.of("driver_address_query")
    return refusal


def setting(settings: Mapping[str, Any], name: str) -> Any:
    """The value of a setting, or its default."""
    return settings.get(name, DEFAULTS[name])


def address_of(url: str, settings: Mapping[str, Any], *, node: str, bmc: str) -> str:
    """The base address of the node's controller. Raises NoAddress.

    The table counts before the address. ``bmc``: the node's annotation. Whoever may change the node sets it, so it must
    be one of the ``hosts`` that an admin allows. The name of the node comes from the cluster: what is no name could
    lead the credentials of the controllers elsewhere.
    """
    listed = setting(settings, "table").get(node)
    if listed is not None:
        return str(listed).rstrip("/")
    if not url:
        raise NoAddress(reasons.of("driver_node_unlisted", node=node))
    if not fields.NODE.fullmatch(node):
        raise NoAddress(reasons.of("driver_node_invalid", node=short_text(node)))
    if BMC in url:
        if not bmc:
            raise NoAddress(reasons.of("driver_annotation_missing", node=node, annotation=ANNOTATION))
        if not HOST.fullmatch(bmc) or not any(_covers(allowed, bmc) for allowed in setting(settings, "hosts")):
            raise NoAddress(reasons.of("driver_host_refused", node=node, host=short_text(bmc)))
        bmc = f"[{bmc}]" if ":" in bmc and not bmc.startswith("[") else bmc
    return url.replace(NODE, node).replace(BMC, bmc).rstrip("/")


def _covers(allowed: str, host: str) -> bool:
    """``allowed``: a network (``10.8.0.0/16``), a domain (``.bmc.example``) or one host."""
    try:
        return ipaddress.ip_address(host.strip("[]")) in ipaddress.ip_network(allowed)
    except ValueError:
        name = host.lower()
        return name.endswith(allowed.lower()) if allowed.startswith(".") else name == allowed.lower()


def same_machine(one: str, other: str) -> bool | None:
    """Returns whether two SMBIOS UUIDs name one machine; None if one of them is missing or malformed.

    Firmware may give the first three fields in the other byte order (SMBIOS 2.6, 7.2.1). A controller may send all 16
    bytes in the other order (IPMI 2.0, 20.8).
    """
    try:
        left, right = uuid.UUID(one), uuid.UUID(other)
    except ValueError:
        return None
    if not left.int or not right.int or left.int == 2**128 - 1 or right.int == 2**128 - 1:
        return None  # "not present" and "not set"
    orders = (right.bytes, right.bytes_le)
    return left.bytes in (*orders, *(order[::-1] for order in orders))


def same_name(by: str, one: str, other: str) -> bool:
    """Returns whether two values of a node's ``system_uuid`` or ``provider_id`` (``by``) are the same name."""
    return one == other or (by == "system_uuid" and same_machine(one, other) is True)


def instance(provider_id: str) -> str:
    """What a receiver takes a ``providerID`` for: its last part, in lower case; "" if it has none."""
    return next(reversed(_parts(provider_id)), "")


def same_instance(one: str, other: str) -> bool:
    """Returns whether a receiver could take two ``providerID`` for one: the last part of one is in the other.

    A node states its own. Case, and what stands behind the instance, must not tell it from its neighbour's.
    """
    left, right = _parts(one), _parts(other)
    return bool(left and right) and (left[-1] in right or right[-1] in left)


def _parts(provider_id: str) -> list[str]:
    return [part for part in re.split(r"[^a-z0-9._-]+", provider_id.casefold()) if part]
