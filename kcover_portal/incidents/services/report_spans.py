"""The spans of reports: from the arrival of a report until its faults are durable, in the trace of each incident."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Final

from django.db import transaction

from kcover_portal import tracing
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident

_received: Final[ContextVar[datetime | None]] = ContextVar("when the report arrived", default=None)


@contextlib.contextmanager
def received(at: datetime) -> Iterator[None]:
    """Sets when the report that the block stores arrived."""
    token = _received.set(at)
    try:
        yield
    finally:
        _received.reset(token)


def add(node: Node, incident: Incident, *, opened: bool, now: datetime) -> None:
    """Adds the span after commit. ``opened``: whether the report opened the incident."""
    if not tracing.is_on():
        return
    made = partial(
        tracing.record,
        tracing.incident(incident.pk),
        "report",
        began=_received.get() or now,
        first=opened,
        cluster=node.cluster.name,
        node=node.name,
        fault=f"{incident.kind} {incident.code}",
    )
    transaction.on_commit(made, robust=True)
