"""Requests of systems that send their events."""

from collections.abc import Mapping
from datetime import datetime

from kcover import reasons
from kcover.sources import alertmanager, health_events
from kcover.sources.observation import ObservationBatch, Unreadable
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import source_settings
from kcover_portal.sources.services.intake import IntakeResult, take


def receive(
    source: Source, body: object, *, content_type: str, headers: Mapping[str, str], now: datetime
) -> IntakeResult:
    """Takes a request of a pushed source. ``body``: the decoded JSON. ``headers``: by lower-case name.

    Raises FieldError if the request as a whole cannot be read, or the source takes no events.
    """
    if not source.is_pushed:
        raise FieldError("", reasons.of("source_not_pushed", kind=source.kind), conflict=True)
    if not source.enabled:
        raise FieldError("", reasons.of("source_off", source=source.name), conflict=True)
    try:
        batch = _read(source, body, content_type=content_type, headers=headers, now=now)
    except Unreadable as error:
        source_settings.note_error(source, error.reason, now=now)
        raise FieldError(error.path or "body", error.reason) from error
    return take(source, batch, now=now)


def _read(
    source: Source, body: object, *, content_type: str, headers: Mapping[str, str], now: datetime
) -> ObservationBatch:
    if source.kind == Source.Kind.ALERTMANAGER:
        labels = source.settings.get("node_label", alertmanager.NODE_LABELS)
        return alertmanager.read(body, node_labels=labels, now=now)
    types = source.settings.get("maintenance_types", ())
    return health_events.read(body, content_type=content_type, headers=headers, maintenance_types=types, now=now)
