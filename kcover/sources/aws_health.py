"""AWS Health events about EC2 instances, as Amazon EventBridge delivers them to an API destination.

The node is found by its instance, the last part of its provider ID. A scheduled change becomes the fault that
``maintenance_notices`` describes, an issue one whose code is the type of the event. Format:
https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeGuard

from kcover import reasons
from kcover.sources import maintenance_notices, observation
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.values.quote import short_repr

SOURCE: Final = "aws.health"
SERVICE: Final = "EC2"
CHANGE, ISSUE = "scheduledChange", "issue"  # categories; the others announce nothing about a machine
CLOSED, WELL = "closed", ("RESOLVED", "UNIMPAIRED")  # of the event, and of one instance
SUCCESS: Final = "_SUCCESS"  # the end of codes of what AWS has repaired (AWS_EC2_INSTANCE_AUTO_RECOVERY_SUCCESS)
MAX_ID: Final = 200
MAX_INSTANCES: Final = observation.MAX_ITEMS
_INSTANCE: Final = re.compile(r"(?:arn:[^/]*/)?(i-[0-9a-f]{8,17})")


def is_event(body: object) -> TypeGuard[Json]:
    """Returns whether the body of a request is an event of AWS Health."""
    return isinstance(body, Mapping) and body.get("source") == SOURCE and "detail-type" in body


def read(body: Json, *, now: datetime) -> ObservationBatch:
    """One observation for each affected instance. Raises Unreadable if the event as a whole cannot be read.

    A communication also goes to a backup region, with an ``id`` of its own:
    https://docs.aws.amazon.com/health/latest/ug/aws-health-events-eventbridge-schema.html.
    Events about other services, and windows that are past, are ignored.
    """
    event = observation.text(body, "id", most=MAX_ID)
    at = observation.moment(body, "time", now=now)
    if not event:
        raise Unreadable("id", reasons.of("cloudevent_attribute", name="id", most=MAX_ID))
    detail = observation.mapping(body, "detail")
    try:
        said = observation.text(detail, "communicationId", most=MAX_ID), observation.text(detail, "statusCode", most=40)
        return _read(detail, "\n".join((SOURCE, *(said if said[0] else (event,)))), at=at, now=now)
    except Unreadable as error:
        raise Unreadable(f"detail/{error.path}", error.reason) from error


def _read(detail: Json, key: str, *, at: datetime | None, now: datetime) -> ObservationBatch:
    category = observation.text(detail, "eventTypeCategory", most=40)
    start, end = _moment(detail, "startTime"), _moment(detail, "endTime")
    is_over = observation.text(detail, "statusCode", most=40) == CLOSED
    is_past = category == CHANGE and end is not None and end <= now and not is_over
    if observation.text(detail, "service", most=40) != SERVICE or category not in (CHANGE, ISSUE) or is_past:
        return ObservationBatch(ignored=(key,))
    kind = observation.code(observation.text(detail, "eventTypeCode", most=200), "eventTypeCode")
    if kind.endswith(SUCCESS):
        return ObservationBatch(ignored=(key,))
    code = maintenance_notices.CODE if category == CHANGE else kind
    message = maintenance_notices.window(start, end, f"{kind}: {_description(detail)}".removesuffix(": "))
    page = observation.text(detail, "page", most=20)
    found: list[Observation] = []
    rejected: list[Rejected] = []
    for index, entity in enumerate(observation.listed(detail, "affectedEntities", most=MAX_INSTANCES)):
        path = f"detail/affectedEntities/{index}"
        try:
            value, status = _entity(entity)
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))
            continue
        if match := _INSTANCE.fullmatch(value):
            seen = Observation(
                path=path,
                key=f"{key}\n{page}\n{match[1]}\n{status}",
                node="",
                machine=match[1],
                kind=maintenance_notices.KIND,
                code=code,
                check=code,
                message=message,
                healthy=is_over or status in WELL,
                seen_at=at,
            )
            found.append(seen)
    return ObservationBatch(
        observations=tuple(found), rejected=tuple(rejected), ignored=() if found or rejected else (key,)
    )


def _entity(entity: object) -> tuple[str, str]:
    if not isinstance(entity, Mapping):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(entity)))
    return observation.text(entity, "entityValue", most=300), observation.text(entity, "status", most=40)


def _description(detail: Json) -> str:
    """The first text of the event; AWS writes English first."""
    texts = observation.listed(detail, "eventDescription", most=100)
    return observation.text(texts[0], "latestDescription") if texts and isinstance(texts[0], Mapping) else ""


def _moment(detail: Json, key: str) -> datetime | None:
    """A time as AWS Health writes it (``Sat, 05 Nov 2022 15:30:00 GMT``), or in RFC 3339. Raises Unreadable."""
    written = observation.text(detail, key, most=100)
    try:
        found = parsedate_to_datetime(written)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: a year beyond those of Python
        return observation.planned_moment(detail, key)
