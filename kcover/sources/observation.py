"""An observation: a source's report about a node, independent of the source's format."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kcover import reasons
from kcover.faults import fault, xid
from kcover.faults.device import NONE, Device
from kcover.faults.weight import Weight
from kcover.sources import hosts
from kcover.values import strict_json
from kcover.values.quote import short_repr
from kcover.wire import fields

MAX_MESSAGE = 1024  # characters
MAX_AHEAD = timedelta(minutes=10)  # how far a source's clock may be ahead of the portal's
MAX_ITEMS = 1_000  # in one request
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET_FREE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]{1,9})?")

Json = Mapping[str, Any]


class Unreadable(reasons.ExplainedError, ValueError):
    """An item, or a whole request, says nothing that can be stored. ``path``: of the field (``labels/node``)."""

    def __init__(self, path: str, reason: reasons.Reason) -> None:
        super().__init__(reason)
        self.path = path


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that was left out: its path (``alerts/3/labels/node``) and why."""

    path: str
    reason: reasons.Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One statement of a source about one node.

    ``path``: its place in the request. ``machine``: in place of ``node``, the last part of the node's provider ID;
    other machines of the cloud have no consequence. ``key``: its identity within the source, by which a repetition is
    recognized. ``healthy``: it ends the faults of ``kind`` and ``check`` of ``device`` (without one: of the node) that
    the same source opened. ``series``: what fires and ends, such as an alert with its labels; several may tell about
    one device. ``check``: the part of the code that names the check, ``code`` itself for most kinds.
    ``alias``: the Xid that the code stands for, so that other sources of the same fault join its incident.
    ``advice``: what the source recommends; it is shown and never followed. ``seen_at``: by the source's clock.
    ``earliest``: of what has no time of its own, when it was read before and was no fault; LONG_AGO if it was not read.
    ``uptime``: of a line of the kernel, for how long its kernel had run; None if the line does not say.
    ``unheard``: of a state that stands since before a boot, and that nobody has stated in it yet.
    """

    path: str
    key: str
    node: str
    machine: str = ""
    kind: str
    code: int | str
    check: str = ""
    series: str = ""
    device: Device = NONE
    message: str = ""
    severity: str = "warning"
    weight: Weight = Weight.NODE
    healthy: bool = False
    alias: int | None = None
    advice: str = ""
    seen_at: datetime | None = None
    earliest: datetime | None = None
    uptime: timedelta | None = None
    unheard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationBatch:
    """The content of a request or an answer: observations in order, rejected items, and items without consequence."""

    observations: tuple[Observation, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    ignored: tuple[str, ...] = ()


def text(item: Json, key: str, *, most: int = MAX_MESSAGE) -> str:
    """Free text, cut at ``most`` characters; "" when absent. Raises Unreadable."""
    value = item.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Unreadable(key, reasons.of("source_not_text", value=short_repr(value)))
    if not fields.is_storable(value):
        raise Unreadable(key, reasons.of("source_not_storable"))
    return value[:most]


def check_encodable(item: object) -> None:
    """Raises Unreadable if a text or a key in the item has a lone surrogate, with the path of the first one."""
    if strict_json.is_encodable(item):
        return
    path = []
    while inner := _unencodable(item):
        path.append(inner[0])
        item = inner[1]
    raise Unreadable("/".join(path), reasons.of("source_not_storable"))


def _unencodable(item: object) -> tuple[str, object] | None:
    """The first key or index whose value has a lone surrogate; None: the item itself has it, or one of its keys."""
    pairs = item.items() if isinstance(item, Mapping) else enumerate(item) if isinstance(item, list) else ()
    found = ((str(key), value) for key, value in pairs if not strict_json.is_encodable(value))
    return next((pair for pair in found if strict_json.is_encodable(pair[0])), None)


def node(item: Json, key: str) -> str:
    """The host that a node is named by: its name or an address. Raises Unreadable if it is missing or cannot be one."""
    value = text(item, key, most=300)
    if not value:
        raise Unreadable(key, reasons.of("source_node_missing"))
    name = hosts.host(value)
    if not hosts.ip(name) and (len(name) > 253 or not fields.NODE.fullmatch(name)):
        raise Unreadable(key, reasons.of("source_node_invalid", value=short_repr(value)))
    return name


def code(value: str, path: str) -> str:
    """A code in the alphabet of codes. Raises Unreadable."""
    if not fault.CODE_PHRASE.fullmatch(value):
        raise Unreadable(path, reasons.of("source_code_invalid", value=short_repr(value)))
    return value


def is_of_check(code: str, check: str) -> bool:
    """Returns whether a fault's code belongs to a check: it is the check, or the check, a slash and a detail."""
    return code == check or code.startswith(f"{check}/")


def pci(value: str) -> str | None:
    """The slot of a PCI address (``0000:4e:00``); None if the text is no address."""
    return xid.slot(value.strip().lower().removeprefix("pci:"))


def moment(item: Json, key: str, *, now: datetime) -> datetime | None:
    """A time in RFC 3339, None when absent. Raises Unreadable, also for one more than MAX_AHEAD in the future."""
    found = planned_moment(item, key)
    return not_ahead(found, key, now=now) if found is not None else None


def planned_moment(item: Json, key: str) -> datetime | None:
    """A time in RFC 3339 that may be in the future, None when absent. Raises Unreadable."""
    value = item.get(key)
    if value in (None, ""):
        return None
    try:
        return fields.required_moment({key: value}, key)
    except fields.WireError:
        if not isinstance(value, str) or not OFFSET_FREE.fullmatch(value):
            raise Unreadable(key, reasons.of("source_time_invalid", value=short_repr(value))) from None
        return planned_moment({key: f"{value}Z"}, key)


def not_ahead(found: datetime, key: str, *, now: datetime) -> datetime:
    """The time itself. Raises Unreadable if it is more than MAX_AHEAD in the future."""
    if found > now + MAX_AHEAD:
        ahead = reasons.span(found - now)
        raise Unreadable(key, reasons.of("source_clock_ahead", at=reasons.moment(found), ahead=ahead))
    return found


def boolean(item: Json, key: str) -> bool:
    """true or false, false when absent. Raises Unreadable."""
    value = item.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise Unreadable(key, reasons.of("source_not_boolean", value=short_repr(value)))
    return value


def mapping(item: Json, key: str) -> Json:
    """An object, {} when absent. Raises Unreadable."""
    value = item.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(key, reasons.of("source_not_object", value=short_repr(value)))
    return value


def listed(item: Json, key: str, *, most: int = MAX_ITEMS) -> list[Any]:
    """A list of at most ``most`` items, [] when absent. Raises Unreadable."""
    value = item.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable(key, reasons.of("source_not_list", value=short_repr(value)))
    if len(value) > most:
        raise Unreadable(key, reasons.of("source_list_long", count=len(value), most=most))
    return value


def query_result(body: object, kind: str, *, code: str, most: int) -> list[Any]:
    """The items of an answer of Prometheus or Loki whose ``resultType`` is ``kind``.

    Raises Unreadable, with the sentence ``code`` for another type.
    """
    if not isinstance(body, Mapping):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(body)))
    data = mapping(body, "data")
    if data.get("resultType") != kind:
        raise Unreadable("data/resultType", reasons.of(code, value=short_repr(data.get("resultType"))))
    return listed(data, "result", most=most)
