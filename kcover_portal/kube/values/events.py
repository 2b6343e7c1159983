"""Kubernetes Events."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

COMPONENT: Final = "kcover-portal"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDraft:
    """A Kubernetes Event to write. ``name`` makes it idempotent; ``type`` is Normal or Warning."""

    name: str
    namespace: str
    reason: str
    message: str
    type: str
    involved_kind: str
    involved_name: str
    involved_uid: str
    at: datetime
    component: str = COMPONENT


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
class EventList:
    """All Events at one time; a watch continues from ``resource_version``."""

    items: tuple[SeenEvent, ...]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEvent:
    """Like ``NodeEvent``, for a Kubernetes Event."""

    kind: str
    event: SeenEvent | None
    resource_version: str
