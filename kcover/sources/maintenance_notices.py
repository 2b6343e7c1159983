"""Notices of a cloud about maintenance of a node: CloudEvents of the types that the source's settings name.

No cloud sends this form by itself; a rule of the cloud's event bus writes it. ``aws_health`` reads AWS's own form.
``subject`` is the node. The data is an object with ``start`` and ``end`` of the maintenance, a ``message``, and
``over`` once it has ended or was cancelled.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.sources import observation
from kcover.sources.cloudevents import CloudEvent
from kcover.sources.observation import Json, Observation, Unreadable
from kcover.values.quote import short_repr

KIND: Final = "other"
CODE: Final = "maintenance"


def observation_of(event: CloudEvent, path: str, *, now: datetime) -> Observation | None:
    """The observation of a notice; None if the maintenance ended before ``now``. Raises Unreadable."""
    data = event.data
    if not isinstance(data, Mapping):
        raise Unreadable("data", reasons.of("source_not_object", value=short_repr(data)))
    node = observation.node({"subject": event.subject}, "subject")
    try:
        over, end = observation.boolean(data, "over"), observation.planned_moment(data, "end")
        message = _message(data, end)
    except Unreadable as error:
        raise Unreadable(f"data/{error.path}", error.reason) from error
    if end is not None and end <= now and not over:
        return None
    return Observation(
        path=path,
        key=event.key,
        node=node,
        kind=KIND,
        code=CODE,
        check=CODE,
        message=message,
        healthy=over,
        seen_at=event.time,
    )


def _message(data: Json, end: datetime | None) -> str:
    """The window, as far as it is known, and the notice's own text."""
    return window(observation.planned_moment(data, "start"), end, observation.text(data, "message"))


def window(start: datetime | None, end: datetime | None, text: str) -> str:
    """The message of a notice: the window, as far as it is known, and the cloud's own text."""
    span = " - ".join(reasons.moment(at) if at else "?" for at in (start, end)) if start or end else ""
    return ": ".join(part for part in (span, text) if part)[: observation.MAX_MESSAGE] or CODE
