"""gpud's answers to ``/v1/states`` and ``/v1/events``: faults of kind ``gpud`` whose code is the component.

A state says how a component is now; an event is a moment. The states of a component tell about its faults, and events
tell about each Xid and SXid. Format: ``api/v1/types.go`` of github.com/leptonai/gpud.
"""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from kcover import reasons
from kcover.faults import nvlink5
from kcover.faults.device import Device, named
from kcover.faults.weight import Weight, is_of_monitor, named_xid, named_xids, of_xids, only
from kcover.sources import observation
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.values.quote import short_repr
from kcover.wire import fields

HEALTHY, UNHEALTHY, INITIALIZING = "Healthy", "Unhealthy", "Initializing"
SEVERITIES: Final = {UNHEALTHY: "fatal", "Degraded": "degraded"}  # of states
_WORDS: Final = {word.lower(): word for word in (HEALTHY, INITIALIZING, *SEVERITIES)}
RUNTIMES: Final = ("docker", "containerd", "crio", "cri-o", "podman")  # components about a container runtime
NO_ACTION, OF_PROGRAM = "IGNORE_NO_ACTION_REQUIRED", "CHECK_USER_APP_AND_GPU"  # repair actions
EVENT_SEVERITIES: Final = {"Fatal": "fatal", "Critical": "degraded", "Warning": "warning"}
MAX_COMPONENTS, MAX_EVENTS = 500, 1_000  # of a node
MAX_SHOWN: Final = 500  # states of a node that are compared with the next reading; a node must not fill the position
_NO_DATA: Final = "no data yet"
_PCI: Final = re.compile(r"\b(?:PCI:)?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\b", re.IGNORECASE)
_UUID: Final = re.compile(r"\bGPU-[0-9a-f-]{8,40}\b", re.IGNORECASE)
_XID_COMPONENT: Final = re.compile(r"s?xid", re.IGNORECASE)

Shown = Mapping[str, str]  # component and name of a state that is not healthy -> what matters of it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """What the gpud of one node says, and what the next reading compares with: states, and short digests of all."""

    batch: ObservationBatch
    shown: Shown
    components: str


def read(
    states: object,
    events: object,
    *,
    node: str,
    runtime: str = "",
    shown: Shown,
    components: str = "",
    read_at: datetime | None = None,
    is_booted: bool = False,
    now: datetime,
) -> NodeAnswer:
    """The states and events of a node's gpud. Raises Unreadable if an answer is not one of gpud.

    ``runtime``: the node's container runtime (``containerd``), "" if unknown; a component about another one is no fault
    of the node. A state that is as it was (``shown``) says nothing new. ``read_at``: the time of the answers before; a
    state that is another one now changed after it, if gpud then told about it (``components``: short digests of what it
    told about, apart by spaces): after a start it reads its components one by one. ``is_booted``: the node has
    rebooted since. A state that still stands is reported again, and counts for the new boot if it lasts; an Xid is not.
    ``now`` is the time of the answers.
    """
    rejected: list[Rejected] = []
    found = list(_events(events, rejected, node=node, now=now))
    event_components = {one.code for one in found}
    changed: dict[str, Observation] = {}
    current: dict[str, str] = {}
    known: set[str] = set()
    reported: set[str] = set()
    unread: set[str] = set()
    for path, component, state in _items(states, "states", rejected, most=MAX_COMPONENTS):
        reported.add(component)
        try:
            health, name = _health(state), observation.text(state, "name", most=80)
            if health == INITIALIZING:  # a gpud that has just started does not know yet: nothing has ended
                unread.add(component)
                continue
            known.add(f"{component}\t{name}")
            if health in SEVERITIES:
                seen = _state(state, component, health, path, node=node, runtime=runtime, now=now)
                # Without the text, whose figures change all the time.
                key, value = f"{component}\t{name}", f"{health} {seen.alias} {seen.device.slot or None}"
                if key not in current and len(current) == MAX_SHOWN:
                    raise Unreadable("name", reasons.of("source_list_long", count=MAX_SHOWN + 1, most=MAX_SHOWN))
                is_new = shown.get(key) != value or (is_booted and not _XID_COMPONENT.search(component))
                if key not in current and is_new and component not in event_components:
                    changed[key] = seen
                current[key] = value
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}", error.reason))
            unread.add(component)
    before = frozenset(components.split()) if read_at is not None else frozenset()
    found += [
        replace(one, earliest=read_at if _digest(key) in before else observation.LONG_AGO)
        for key, one in changed.items()
    ]
    broken = unread.union(key.partition("\t")[0] for key in current)
    over = {component for key in shown if (component := key.partition("\t")[0]) in reported - broken}
    found += [_passed(component, node=node, now=now) for component in sorted(over)]
    silent = [item for item in shown.items() if item[0].partition("\t")[0] not in reported - unread]
    kept = {**dict(silent[: MAX_SHOWN - len(current)]), **current}
    batch = ObservationBatch(observations=tuple(found), rejected=tuple(rejected))
    return NodeAnswer(batch=batch, shown=kept, components=" ".join(sorted(map(_digest, known))))


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=3).hexdigest()


def _items(body: object, key: str, rejected: list[Rejected], *, most: int) -> Iterator[tuple[str, str, Json]]:
    """The path, component and content of each state or event."""
    if not isinstance(body, list):
        raise Unreadable(key, reasons.of("source_not_list", value=short_repr(body)))
    if len(body) > most:
        raise Unreadable(key, reasons.of("source_list_long", count=len(body), most=most))
    left = MAX_EVENTS
    for index, entry in enumerate(body):
        path = f"{key}/{index}"
        try:
            if not isinstance(entry, Mapping):
                raise Unreadable("", reasons.of("source_not_object", value=short_repr(entry)))
            component = observation.text(entry, "component", most=200)
            if not component:
                raise Unreadable("component", reasons.of("source_code_missing"))
            observation.code(component, "component")
            items = observation.listed(entry, key, most=left)
            left -= len(items)
            for number, item in enumerate(items):
                if isinstance(item, Mapping):
                    yield f"{path}/{key}/{number}", component, item
                else:
                    wrong = reasons.of("source_not_object", value=short_repr(item))
                    rejected.append(Rejected(f"{path}/{key}/{number}", wrong))
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))


def _health(state: Json) -> str:
    """The health of a state. An older gpud tells ``healthy: false`` in its place.

    Raises Unreadable without both, and for a word that gpud does not have.
    """
    if health := observation.text(state, "health", most=80):
        if health.lower() not in _WORDS:
            known = ", ".join(_WORDS.values())
            raise Unreadable("health", reasons.of("value_not_one_of", value=short_repr(health), known=known))
        # A component that has not looked yet since gpud's start says that it is healthy.
        is_new = _WORDS[health.lower()] == HEALTHY and _NO_DATA in observation.text(state, "reason").lower()
        return INITIALIZING if is_new else _WORDS[health.lower()]
    if not isinstance(state.get("healthy"), bool):
        raise Unreadable("health", reasons.of("gpud_health_missing", value=short_repr(state.get("healthy"))))
    return HEALTHY if state["healthy"] else UNHEALTHY


def _state(
    state: Json, component: str, health: str, path: str, *, node: str, runtime: str, now: datetime
) -> Observation:
    said = " ".join(text for key in ("reason", "error") if (text := observation.text(state, key)))
    actions = observation.mapping(state, "suggested_actions")
    return _observation(
        said or f"{component} is {health}",
        component,
        path,
        key="\n".join(("state", node, component, health, said, now.isoformat())),
        node=node,
        severity=SEVERITIES[health],
        advice=_advice(actions),
        is_unused=_is_unused(component, runtime),
        at=now,
    )


def _events(body: object, rejected: list[Rejected], *, node: str, now: datetime) -> Iterator[Observation]:
    """The events about Xids and SXids. The states tell about all others."""
    for path, component, event in _items(body, "events", rejected, most=MAX_COMPONENTS):
        try:
            kind = observation.text(event, "type", most=40)
            if kind in EVENT_SEVERITIES and _XID_COMPONENT.search(component):
                at = observation.moment(event, "time", now=now)
                said = observation.text(event, "message") or observation.text(event, "name") or component
                extra = observation.mapping(event, "extra_info")
                told = (observation.text(extra, name, most=300) for name in ("xid", "data"))
                number = next(filter(None, told), "")  # some versions tell an Xid here alone
                if re.fullmatch("[0-9]{1,10}", number) and named_xid(said) is None:
                    said = f"{said}: XID {number}"
                yield _observation(
                    " ".join((said, *(observation.text(extra, name, most=300) for name in sorted(extra)))).strip(),
                    component,
                    path,
                    key="\n".join(("event", node, component, kind, said, str(at))),
                    node=node,
                    title=said,
                    severity=EVENT_SEVERITIES[kind],
                    advice=_advice(observation.mapping(event, "suggested_actions")),
                    at=at,
                )
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}", error.reason))


def _is_unused(component: str, runtime: str) -> bool:
    """Return whether the component is about a container runtime that the node does not use.

    Kubernetes itself has not run containers with Docker since 1.24, so that an unknown runtime is not Docker.
    """
    if component not in RUNTIMES:
        return False
    return component.replace("-", "") != runtime.replace("-", "") if runtime else component in ("docker", "podman")


def _observation(
    said: str,
    component: str,
    path: str,
    *,
    key: str,
    node: str,
    severity: str,
    advice: str,
    is_unused: bool = False,
    title: str = "",
    at: datetime | None,
) -> Observation:
    tells_xids = _XID_COMPONENT.search(component) and "sxid" not in component.lower()
    # The details may name others: gpud adds the titles of NVIDIA's pages (Xid 119, 120: GSP RPC Timeout).
    xids = named_xids(title) or named_xids(said) if tells_xids else frozenset[int]()
    weight = _weight(component, said, xids=xids, severity=severity, advice=advice, is_unused=is_unused)
    return Observation(
        path=path,
        key=key,
        node=node,
        kind="gpud",
        code=component,
        check=component,
        device=_device(said),
        message=said[: observation.MAX_MESSAGE],
        severity="info" if weight in (Weight.INFO, Weight.MONITOR) else severity,
        weight=weight,
        alias=only(xids),
        advice=advice,
        seen_at=at,
    )


def _weight(component: str, said: str, *, xids: Collection[int], severity: str, advice: str, is_unused: bool) -> Weight:
    """The catalog decides about Xids, else gpud's own advice.

    Of an NVLink event the number alone does not tell whether it was fatal; gpud has read the whole line.
    """
    if xids:
        is_mild = severity == "warning" or advice in (NO_ACTION, OF_PROGRAM)
        is_not_fatal = is_mild and all(xid in nvlink5.CODES for xid in xids)
        return Weight.PROGRAM if is_not_fatal else of_xids(xids, said)
    is_own = component in (*RUNTIMES, "kubelet")  # the node does not work without it
    if is_unused or (not is_own and advice in ("", NO_ACTION, OF_PROGRAM) and is_of_monitor("", said)):
        return Weight.MONITOR
    if advice == NO_ACTION:
        return Weight.INFO
    return Weight.PROGRAM if advice == OF_PROGRAM else Weight.NODE


def _device(said: str) -> Device:
    """The device that a text names, if it names one only: gpud joins what several GPUs have into one sentence."""
    slots = {slot for match in _PCI.finditer(said) if (slot := observation.pci(match[1]))}
    uuids = {uuid.lower() for uuid in _UUID.findall(said)}
    if len(slots) > 1 or len(uuids) > 1:
        return named()
    return named(pci=next(iter(slots), ""), uuid=next(iter(uuids), ""))


def _passed(component: str, *, node: str, now: datetime) -> Observation:
    return Observation(
        path="states",
        key="\n".join(("healthy", node, component, now.isoformat())),
        node=node,
        kind="gpud",
        code=component,
        check=component,
        message=component,
        healthy=True,
        seen_at=now,
    )


def _advice(actions: Json) -> str:
    names: list[Any] = observation.listed(actions, "repair_actions", most=20)
    return ", ".join(name[:60] for name in names if isinstance(name, str) and fields.is_storable(name))
