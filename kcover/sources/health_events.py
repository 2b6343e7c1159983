"""NVSentinel's health events, as its exporter sends them: CloudEvents of type ``com.nvidia.nvsentinel.health.v1``.

A source's settings may name other types as those of maintenance notices.
"""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.quote import short_repr
from kcover.sources import aws_health, cloudevents, maintenance_notices, observation
from kcover.sources.observation import Json, Observation, Reading, Rejected, Unreadable

TYPE: Final = "com.nvidia.nvsentinel.health.v1"
STORE_ONLY: Final = "STORE_ONLY"  # processingStrategy: the producer asks that nobody acts
# The numbers of the exporter; other producers write the names. From RecommendedAction of github.com/NVIDIA/NVSentinel,
# data-models/protobufs/health_event.proto; 39 is in some of its versions only.
ACTIONS: Final = {
    0: "NONE",
    2: "COMPONENT_RESET",
    5: "CONTACT_SUPPORT",
    6: "RUN_FIELDDIAG",
    15: "RESTART_VM",
    24: "RESTART_BM",
    25: "REPLACE_VM",
    26: "RUN_DCGMEUD",
    27: "CUSTOM",
    28: "REMEDIATE",
    39: "RESTART_APP",
    99: "UNKNOWN",
}
UUID_ENTITIES: Final = ("GPU_UUID", "GPU-UUID", "UUID")
PCI_ENTITIES: Final = ("PCI", "PCI_BUS_ID", "NVSWITCH")
MAX_ENTITIES: Final = 64
_SXID_CHECK: Final = re.compile(r"SX[Ii][Dd]|(?<![a-z])sxid")  # SysLogsSXIDError, but not SysLogsXIDError
_XID_CODE: Final = re.compile(r"(?:xid[ _-]?)?([0-9]{1,10})", re.IGNORECASE)


def read(
    body: object,
    *,
    content_type: str,
    headers: Mapping[str, str],
    maintenance_types: Collection[str] = (),
    now: datetime,
) -> Reading:
    """The health events and maintenance notices of a request, or one event of AWS Health.

    ``maintenance_types``: the types of the notices. Raises Unreadable if the request as a whole is not one of
    CloudEvents.
    """
    if aws_health.is_event(body):
        return aws_health.read(body, now=now)
    found: list[Observation] = []
    rejected: list[Rejected] = []
    ignored: list[str] = []
    for path, envelope in cloudevents.envelopes(body, content_type=content_type, headers=headers):
        try:
            event = cloudevents.event_of(envelope, now=now)
            observe = maintenance_notices.observation_of if event.type in maintenance_types else _health_event
            seen = observe(event, path, now=now)
        except Unreadable as error:
            rejected.append(Rejected("/".join(part for part in (path, error.path) if part), error.reason))
            continue
        if seen is None:
            ignored.append(event.key)
        else:
            found.append(seen)
    return Reading(observations=tuple(found), rejected=tuple(rejected), ignored=tuple(ignored))


def _health_event(event: cloudevents.CloudEvent, path: str, *, now: datetime) -> Observation | None:
    """The observation of an event; None if its producer asks that nobody acts on it."""
    data = event.data
    if not isinstance(data, Mapping):
        raise Unreadable("data", reasons.of("source_not_object", value=short_repr(data)))
    at, health = "data", data
    if "healthEvent" in data:
        at, health = "data/healthEvent", observation.mapping(data, "healthEvent")
    try:
        return _observation(health, event, path, now=now)
    except Unreadable as error:
        raise Unreadable(f"{at}/{error.path}", error.reason) from error


def _observation(health: Json, event: cloudevents.CloudEvent, path: str, *, now: datetime) -> Observation | None:
    check = observation.text(health, "checkName", most=200)
    if not check:
        raise Unreadable("checkName", reasons.of("source_code_missing"))
    node = observation.node(health, "nodeName")
    codes = [str(code) for code in observation.listed(health, "errorCode", most=MAX_ENTITIES) if code not in (None, "")]
    code = observation.code("/".join([check, *codes[:1]]), "errorCode" if codes else "checkName")
    healthy = observation.boolean(health, "isHealthy")
    fatal = observation.boolean(health, "isFatal")
    if health.get("processingStrategy") in (STORE_ONLY, 2) and not healthy:
        return None
    entities = _entities(health)
    pci = next((slot for kind, name in entities if kind in PCI_ENTITIES and (slot := observation.pci(name))), None)
    uuid = next((name for kind, name in entities if kind in UUID_ENTITIES or name.startswith("GPU-")), None)
    return Observation(
        path=path,
        key=event.key,
        node=node,
        kind="health",
        code=code,
        check=check,
        pci=pci,
        gpu_uuid=uuid,
        devices=frozenset(device for device in (pci, uuid) if device),
        message=observation.text(health, "message") or code,
        severity="fatal" if fatal else "warning",
        healthy=healthy,
        alias=None if healthy else _alias(check, codes),
        advice=_advice(health),
        seen_at=observation.moment(health, "generatedTimestamp", now=now) or event.time,
    )


def _entities(health: Json) -> list[tuple[str, str]]:
    """The impacted entities as pairs of type and value. Raises Unreadable."""
    found = []
    for index, entity in enumerate(observation.listed(health, "entitiesImpacted", most=MAX_ENTITIES)):
        if not isinstance(entity, Mapping):
            raise Unreadable(f"entitiesImpacted/{index}", reasons.of("source_not_object", value=short_repr(entity)))
        kind = observation.text(entity, "entityType", most=96)
        found.append((kind.upper(), observation.text(entity, "entityValue", most=96)))
    return found


def _alias(check: str, codes: list[str]) -> int | None:
    """The Xid that the event is about, if its check reads Xids and its code is a number."""
    match = _XID_CODE.fullmatch(codes[0]) if codes else None
    is_xid = match is not None and ("xid" in check.lower() or codes[0].lower().startswith("xid"))
    return int(match[1]) if match is not None and is_xid and not _SXID_CHECK.search(check) else None


def _advice(health: Json) -> str:
    """The recommended action; of CUSTOM also the name that the producer gives it."""
    action = health.get("recommendedAction")
    if isinstance(action, int) and not isinstance(action, bool):
        name = ACTIONS.get(action, str(action)[:20])
    else:
        name = observation.text(health, "recommendedAction", most=100)
    custom = observation.text(health, "customRecommendedAction", most=80)
    return f"{name}: {custom}" if name == "CUSTOM" and custom else name
