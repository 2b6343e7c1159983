"""NVSentinel's health events, as its exporter sends them: CloudEvents of type ``com.nvidia.nvsentinel.health.v1``.

A source's settings may name other types as those of maintenance notices.
"""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.faults.device import NONE
from kcover.faults.weight import Weight, is_of_monitor, named_xids, of_xids, only
from kcover.sources import aws_health, cloudevents, impacted, maintenance_notices, observation
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.values.quote import short_repr

TYPE: Final = "com.nvidia.nvsentinel.health.v1"
# processingStrategy: the producer asks that nobody acts. What is to be analysed comes again as the analyzer's event.
NOT_ACTED_ON: Final = ("STORE_ONLY", "STORE_AND_ANALYSE", 2, 3)
# In the metadata of the analyzer's event: the time of the event that it judges.
SOURCE_TIME: Final = "source_generated_timestamp"
ANALYZER: Final = "health-events-analyzer"  # the agent that judges what has repeated
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
NO_ACTION, UNKNOWN = "NONE", "UNKNOWN"
RESTART_APP: Final = "RESTART_APP"
RESTARTS: Final = ("RESTART_VM", "RESTART_BM", "REPLACE_VM")
LOG_CHECK: Final = re.compile(r"(?<![a-z])s?xid(?![a-z])|XIDError", re.IGNORECASE)  # the check reads the kernel log
MAX_ENTITIES: Final = 64
_SXID_CHECK: Final = re.compile(r"SX[Ii][Dd]|(?<![a-z])sxid")  # SysLogsSXIDError, but not SysLogsXIDError
# The number, and for the Xids of NVLink the unit that reports it (145.RLW_SRC_TRACK).
_XID_CODE: Final = re.compile(r"(?:xid[ _-]?)?([0-9]{1,10})(?:\.[A-Z0-9_]{1,40})?", re.IGNORECASE)


def read(
    body: object,
    *,
    content_type: str,
    headers: Mapping[str, str],
    maintenance_types: Collection[str] = (),
    now: datetime,
) -> ObservationBatch:
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
            if event.type in maintenance_types:
                notice = maintenance_notices.observation_of(event, path, now=now)
                seen = [notice] if notice is not None else []
            else:
                seen = _health_event(event, path, now=now)
        except Unreadable as error:
            rejected.append(Rejected("/".join(part for part in (path, error.path) if part), error.reason))
            continue
        found += seen
        if not seen:
            ignored.append(event.key)
    return ObservationBatch(observations=tuple(found), rejected=tuple(rejected), ignored=tuple(ignored))


def _health_event(event: cloudevents.CloudEvent, path: str, *, now: datetime) -> list[Observation]:
    """One observation for each device of an event; none if its producer asks that nobody acts on it."""
    data = event.data
    if not isinstance(data, Mapping):
        raise Unreadable("data", reasons.of("source_not_object", value=short_repr(data)))
    at, health = "data", data
    if "healthEvent" in data:
        at, health = "data/healthEvent", observation.mapping(data, "healthEvent")
    try:
        return _observations(health, event, path, now=now)
    except Unreadable as error:
        raise Unreadable(f"{at}/{error.path}", error.reason) from error


def _observations(health: Json, event: cloudevents.CloudEvent, path: str, *, now: datetime) -> list[Observation]:
    check = observation.text(health, "checkName", most=200)
    if not check:
        raise Unreadable("checkName", reasons.of("source_code_missing"))
    node = observation.node(health, "nodeName")
    codes = [str(code) for code in observation.listed(health, "errorCode", most=MAX_ENTITIES) if code not in (None, "")]
    xids = _xids(check, codes)
    detail = codes[:1] if len(xids) < 2 else []  # of several Xids none is the fault's name
    code = observation.code("/".join([check, *detail]), "errorCode" if codes else "checkName")
    healthy = observation.boolean(health, "isHealthy")
    fatal = observation.boolean(health, "isFatal")
    if health.get("processingStrategy") in NOT_ACTED_ON and not healthy:
        return []
    message, advice = observation.text(health, "message") or code, _advice(health)
    named = _named(check, xids, message)
    if fatal and _is_of_history(health, advice) and of_xids(named, message) is Weight.PROGRAM:
        named = ()  # a program causes it once; what stays with one GPU is the GPU's
    is_to_skip = observation.boolean(observation.mapping(health, "quarantineOverrides"), "skip")
    weight = Weight.INFO if is_to_skip else _weight(check, message, xids=named, fatal=fatal, advice=advice)
    devices = impacted.devices(_entities(health))
    if LOG_CHECK.search(check):
        # A kernel line is a fault of the whole device, whatever part of it the line names.
        devices = list(dict.fromkeys(device.whole for device in devices))
    generated_at = _generated_at(health, now=now)
    # The exporter gives an event another id when it sends it again, so the id counts only where there is no time.
    content = "\n".join((node, check, *codes, f"healthy={healthy}", str(generated_at)))
    identity = content if generated_at is not None else event.key
    return [
        Observation(
            path=path,
            key=f"{identity}\n{device.key}",
            node=node,
            kind="health",
            code=code,
            check=check,
            device=device,
            message=message,
            severity="info" if weight in (Weight.INFO, Weight.MONITOR) else "fatal" if fatal else "warning",
            weight=weight,
            healthy=healthy,
            alias=None if healthy else only(named),
            advice=advice,
            seen_at=_happened_at(health, generated_at, now=now) or event.time,
        )
        for device in devices or [NONE]
    ]


def _generated_at(health: Json, *, now: datetime) -> datetime | None:
    """When the event was made; None where the producer left the time out, which protobuf writes as the epoch."""
    at = observation.moment(health, "generatedTimestamp", now=now)
    return None if at is not None and at.timestamp() == 0 else at


def _happened_at(health: Json, generated_at: datetime | None, *, now: datetime) -> datetime | None:
    """When it happened: the analyzer may make its event long after the one that it judges, in another boot."""
    at = observation.moment(observation.mapping(health, "metadata"), SOURCE_TIME, now=now)
    return min((one for one in (at, generated_at) if one is not None), default=None)


def _weight(check: str, message: str, *, xids: Collection[int], fatal: bool, advice: str) -> Weight:
    """The catalog decides about Xids. Else the producer: not fatal and no action is information."""
    if xids and (told := of_xids(xids, message)) is not Weight.NODE:
        return told
    is_mild = not fatal and advice in ("", NO_ACTION, UNKNOWN)
    if is_of_monitor(check, message if is_mild else "") and not advice.startswith(RESTARTS):
        return Weight.MONITOR
    if advice == RESTART_APP:
        return Weight.PROGRAM
    return Weight.INFO if not fatal and advice in ("", NO_ACTION) else Weight.NODE


def _entities(health: Json) -> list[tuple[str, str]]:
    """The impacted entities as pairs of type and value. Raises Unreadable."""
    found = []
    for index, entity in enumerate(observation.listed(health, "entitiesImpacted", most=MAX_ENTITIES)):
        if not isinstance(entity, Mapping):
            raise Unreadable(f"entitiesImpacted/{index}", reasons.of("source_not_object", value=short_repr(entity)))
        kind = observation.text(entity, "entityType", most=96)
        found.append((kind.upper(), observation.text(entity, "entityValue", most=96)))
    return found


def _xids(check: str, codes: list[str]) -> set[int]:
    """The Xids in the codes of an event, if its check reads Xids or the codes say that they are some."""
    if _SXID_CHECK.search(check):
        return set()
    told = [(code, match) for code in codes if (match := _XID_CODE.fullmatch(code)) is not None]
    return {int(match[1]) for code, match in told if "xid" in check.lower() or code.lower().startswith("xid")}


def _is_of_history(health: Json, advice: str) -> bool:
    """Return whether NVSentinel has judged what has repeated, and asks for a repair of the node."""
    return health.get("agent") == ANALYZER and advice not in ("", NO_ACTION, UNKNOWN, RESTART_APP)


def _named(check: str, xids: set[int], message: str) -> Collection[int]:
    """The Xids that the event is about: its codes, else those that its message names."""
    return () if _SXID_CHECK.search(check) else xids or named_xids(message)


def _advice(health: Json) -> str:
    """The recommended action; of CUSTOM also the name that the producer gives it."""
    action = health.get("recommendedAction")
    if isinstance(action, int) and not isinstance(action, bool):
        name = ACTIONS.get(action, str(action)[:20])
    else:
        name = observation.text(health, "recommendedAction", most=100)
    custom = observation.text(health, "customRecommendedAction", most=80)
    return f"{name}: {custom}" if name == "CUSTOM" and custom else name
