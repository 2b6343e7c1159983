"""Kubernetes Events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover.sources.kube_events import OWN_COMPONENT, SeenEvent as SeenEvent

COMPONENT: Final = OWN_COMPONENT


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
