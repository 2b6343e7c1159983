"""Kubernetes Events about nodes: KCE's ``XidError``, GKE's ``XIDError``, and what kcover's agents write.

Of a cluster's Events almost none is of consequence; ``is_of_consequence`` tells with a few comparisons. The portal's
own Events are never input. Semantics sections 1.2 and 4.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kcover import reasons
from kcover.faults import xid
from kcover.faults.device import NONE, Device, named
from kcover.faults.weight import Weight, named_xids, of_xids, only
from kcover.sources import observation
from kcover.sources.observation import Observation, Unreadable
from kcover.values.quote import short_repr, short_text
from kcover.wire import fields

OWN_COMPONENT: Final = "kcover-portal"
XID_ERROR: Final = "XidError"
XID_CAUGHT: Final = "XIDError"  # of GKE's device plugin; node-problem-detectors may use the word, too
NORMAL: Final = "Normal"
NEEDS_RECOVERY: Final = "kcover.io/need-recovery"
PREFLIGHT_WORKLOAD: Final = "kcover.io/preflight-workload"
PREFLIGHT_PREFIX: Final = "kcover.io/preflight-"
ORDER_VALID_FOR: Final = timedelta(minutes=3)  # of an Event that asks for recovery
# Events in these namespaces are trusted. Every cluster has them, so that no user can create one of that name.
NAMESPACES: Final = ("default", "kube-system")
# Where KCE and its components write. The chart creates both, so that no user can.
KCE_NAMESPACES: Final = ("kce-rescue-system", "kce-rescuepolicy")
EXAMPLE: Final = "pci:0000:03:00, xid:62, log: Channel 00000001"  # and the same in Chinese
_XID_ERROR: Final = re.compile(
    r"pci ?[:：] ?(?P<pci>[0-9A-Fa-f:.]{5,20}) ?[,，] ?xid ?[:：] ?(?P<xid>[0-9]{1,10})"
    r"(?: ?[,，] ?(?:log|日志) ?[:：] ?(?P<log>.*))?",
    re.IGNORECASE | re.DOTALL,
)
_XID_CAUGHT: Final = re.compile(r"XID error, XID=([0-9]{1,10})\b(?:, GPU UUID=((?:GPU|MIG)-[0-9A-Za-z/-]{1,80}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """A Kubernetes Event as read from a cluster.

    ``component`` is reportingComponent, else source.component. ``last_at`` is the last timestamp, else eventTime, else
    the time of creation.
    """

    namespace: str
    name: str
    uid: str
    reason: str
    type: str
    message: str
    count: int
    involved_kind: str
    involved_name: str
    involved_namespace: str
    annotations: Mapping[str, str]
    component: str
    last_at: datetime | None
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightEvent:
    """The compacted preflight report of a node, and the workload that it belongs to.

    ``at``: when it was written, by the clock of the node; None if the Event has no time. ``key``: its identity within
    the source.
    """

    key: str
    namespace: str
    workload: str
    node: str
    body: Mapping[str, Any]
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOrder:
    """An order to restart the job of a pod. ``key``: its identity within the source."""

    key: str
    namespace: str
    pod: str
    message: str
    at: datetime


Meaning = Observation | PreflightEvent | RecoveryOrder


def is_of_consequence(event: SeenEvent, wanted: Collection[str] = ()) -> bool:
    """Returns whether ``read`` may find something in the Event. ``wanted``: reasons that are faults, too."""
    told = event.reason == XID_ERROR or event.reason in wanted or _caught(event) is not None
    if not told and not event.annotations:
        return False
    if event.component == OWN_COMPONENT:
        return False
    return told or NEEDS_RECOVERY in event.annotations or PREFLIGHT_WORKLOAD in event.annotations


def read(
    event: SeenEvent, *, namespaces: Collection[str] = NAMESPACES, wanted: Collection[str] = (), now: datetime
) -> Meaning | None:
    """What an Event of consequence says; None if it says nothing, or asks for recovery too late.

    Raises Unreadable. ``namespaces``: whose Events about nodes are trusted.
    """
    at = observation.not_ahead(event.last_at or now, "lastTimestamp", now=now)
    is_order = event.annotations.get(NEEDS_RECOVERY) == "true"
    if event.involved_kind == "Pod" and is_order:
        if now - at > ORDER_VALID_FOR:
            return None
        message = observation.text({"message": event.message}, "message")
        return RecoveryOrder(
            key=_key(event, at), namespace=event.namespace, pod=event.involved_name, message=message, at=at
        )
    if event.involved_kind != "Node":
        return None
    if event.namespace not in namespaces:
        raise Unreadable("metadata/namespace", _untrusted(event))
    node = observation.node({"name": event.involved_name}, "name")
    if event.reason == XID_ERROR:
        return _xid_error(event, node, at)
    if event.reason not in wanted and (caught := _caught(event)) is not None:
        return _xid_caught(event, node, at, caught)
    if PREFLIGHT_WORKLOAD in event.annotations:
        return _preflight(event, node, key=_key(event, at))
    if event.reason in wanted or (is_order and now - at <= ORDER_VALID_FOR):
        return _observation(event, node, at, kind="event", code=observation.code(event.reason, "reason"))
    return None


def trusted(event_namespace: str) -> tuple[str, ...]:
    """The namespaces whose Events about nodes count without a setting.

    ``event_namespace``: the cluster's own; if it is one of KCE's, both of KCE's count.
    """
    own = KCE_NAMESPACES if event_namespace in KCE_NAMESPACES else (event_namespace,)
    return *NAMESPACES, *own


def _untrusted(event: SeenEvent) -> reasons.Reason:
    return reasons.of("event_namespace", namespace=short_text(event.namespace), setting="namespaces")


def _key(event: SeenEvent, at: datetime) -> str:
    """A repetition of an Event raises its count or moves its time.

    Two monitors, one for the outage of the other, write Events that differ in their names and uids only.
    """
    if event.last_at is None:
        return "\n".join((event.uid, str(event.count), str(at)))
    about = (event.involved_kind, event.involved_namespace, event.involved_name, event.reason)
    return "\n".join((*about, str(event.count), str(at), event.message))


def _xid_error(event: SeenEvent, node: str, at: datetime) -> Observation:
    match = _XID_ERROR.search(event.message[: observation.MAX_MESSAGE])
    number = int(match["xid"]) if match is not None else -1
    if match is None or not 0 <= number <= xid.MAX_CODE:
        raise Unreadable("message", reasons.of("event_xid", example=EXAMPLE, value=short_repr(event.message)))
    # As the driver prints it, so that a cause and a severity on the line are understood.
    said = f"NVRM: Xid (PCI:{match['pci']}): {number}, {(match['log'] or '').strip()}"
    return _observation(event, node, at, kind="xid", code=number, device=named(pci=match["pci"]), said=said)


def _caught(event: SeenEvent) -> re.Match[str] | None:
    """The Xid in an Event of GKE; None in any other, also in one of another writer that uses the same reason."""
    return _XID_CAUGHT.search(event.message[: observation.MAX_MESSAGE]) if event.reason == XID_CAUGHT else None


def _xid_caught(event: SeenEvent, node: str, at: datetime, caught: re.Match[str]) -> Observation:
    number = int(caught[1])
    if number > xid.MAX_CODE:
        raise Unreadable("message", reasons.of("event_xid", example=EXAMPLE, value=short_repr(event.message)))
    return _observation(event, node, at, kind="xid", code=number, device=named(uuid=caught[2] or ""))


def _observation(
    event: SeenEvent, node: str, at: datetime, *, kind: str, code: int | str, device: Device = NONE, said: str = ""
) -> Observation:
    is_order = event.annotations.get(NEEDS_RECOVERY) == "true"  # its agent asks for it, whatever the Event's type
    is_info = event.type == NORMAL and not is_order and kind == "event"
    # The catalog decides about the Xids that another writer's text names.
    xids = named_xids(event.message[: observation.MAX_MESSAGE]) if kind == "event" else frozenset[int]()
    weight = of_xids(xids, event.message) if xids else Weight.NODE
    return Observation(
        path=f"{event.namespace}/{event.involved_name}",
        key=_key(event, at),
        node=node,
        kind=kind,
        code=code,
        check=str(code),
        device=device,
        message=observation.text({"message": said or event.message}, "message"),
        severity="info" if is_info else "degraded" if is_order or kind == "xid" else "warning",
        weight=Weight.INFO if is_info else weight,
        alias=None if is_info else only(xids),
        seen_at=at,
    )


def _preflight(event: SeenEvent, node: str, *, key: str) -> PreflightEvent | None:
    """The report in the message; None for the Event of a newer kcover, whose report is an object of its own."""
    if not event.message.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(event.message)
    except (ValueError, RecursionError) as error:
        raise Unreadable("message", reasons.of("event_preflight", problem=str(error)[:200])) from error
    if body.get("node_name") != node:
        raise Unreadable("message/node_name", reasons.of("event_preflight_node", node=node))
    workload = event.annotations[PREFLIGHT_WORKLOAD]
    if not workload or len(workload) > 253 or not fields.is_storable(workload):
        raise Unreadable("metadata/annotations", reasons.of("event_preflight_workload"))
    return PreflightEvent(
        key=key, namespace=_workload_namespace(event), workload=workload, node=node, body=body, at=event.last_at
    )


def _workload_namespace(event: SeenEvent) -> str:
    """The first part of the report's identity (``namespace/workload/node/rank/hash``), else the Event's namespace."""
    for name, value in sorted(event.annotations.items()):
        parts = value.split("/")
        if name.startswith(PREFLIGHT_PREFIX) and len(parts) == 5 and fields.NODE.fullmatch(parts[0]):
            return parts[0][:63]
    return event.namespace
