"""CloudEvents 1.0 over HTTP: structured, batch and binary mode."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from kcover import reasons
from kcover.sources import observation
from kcover.sources.observation import Json, Unreadable
from kcover.values import strict_json
from kcover.values.quote import short_repr

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
VERSION = "1.0"
MAX_EVENTS = observation.MAX_ITEMS
MAX_ATTRIBUTE = 1_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """An event: its context attributes, and its data if that is JSON."""

    source: str
    id: str
    type: str
    time: datetime | None
    subject: str
    data: Any

    @property
    def key(self) -> str:
        """The identity of the event: producers make source and id unique together."""
        return f"{self.source}\n{self.id}"


def envelopes(body: object, *, content_type: str, headers: Mapping[str, str]) -> list[tuple[str, object]]:
    """The envelopes of a request, each with its path in the body. Raises Unreadable.

    ``body``: the decoded JSON. ``content_type``: without parameters. ``headers``: by lower-case name. A request with
    ``ce-`` headers is in binary mode: its body is the data.
    """
    if content_type == BATCH or (content_type != STRUCTURED and isinstance(body, list)):
        if not isinstance(body, list):
            raise Unreadable("", reasons.of("source_not_list", value=short_repr(body)))
        if len(body) > MAX_EVENTS:
            raise Unreadable("", reasons.of("source_list_long", count=len(body), most=MAX_EVENTS))
        return [(str(index), event) for index, event in enumerate(body)]
    if content_type != STRUCTURED and "ce-id" in headers:
        event = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}
        return [("", {**event, "data": body})]
    return [("", body)]


def event_of(envelope: object, *, now: datetime) -> CloudEvent:
    """The event in an envelope. Raises Unreadable."""
    if not isinstance(envelope, dict):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(envelope)))
    if envelope.get("specversion") != VERSION:
        raise Unreadable("specversion", reasons.of("cloudevent_version", value=short_repr(envelope.get("specversion"))))
    data = _data(envelope)
    observation.check_encodable({**envelope, "data": data})
    attributes = {name: _attribute(envelope, name) for name in ("source", "id", "type")}
    return CloudEvent(
        **attributes,
        time=observation.moment(envelope, "time", now=now),
        subject=observation.text(envelope, "subject", most=MAX_ATTRIBUTE),
        data=data,
    )


def _attribute(envelope: Json, name: str) -> str:
    value = observation.text(envelope, name, most=MAX_ATTRIBUTE + 1)
    if not value or len(value) > MAX_ATTRIBUTE:
        raise Unreadable(name, reasons.of("cloudevent_attribute", name=name, most=MAX_ATTRIBUTE))
    return value


def _data(envelope: Json) -> Any:
    """The data; JSON that was put into a string is decoded. Raises Unreadable if it is nested too deeply."""
    data = envelope.get("data")
    if not isinstance(data, str):
        return data
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    try:
        strict_json.check_depth(value)
    except reasons.ExplainedError as error:
        raise Unreadable("data", error.reason) from error
    return value
