"""Traces (OpenTelemetry): how long each station took, from the report of a fault to its steps and messages.

One incident is one trace. Its id is computed from the incident's key, not carried by messages: a message may be lost,
and the sweep, another process or a later day continues the work. So nothing is stored for traces either. What a person
requests without an incident is a trace of the rescue.

Attributes are ids, names of clusters and nodes, and codes. Never add free text, error messages, URLs with names of
pods, or secrets.

Without the setting KCOVER_TRACES each function returns at once, and no OpenTelemetry package is imported.
"""

import contextlib
import re
import threading
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from django.conf import settings

from kcover_portal.config import deferred, telemetry_settings

if TYPE_CHECKING:
    from kcover_portal.tracing import otlp
else:
    otlp = deferred.Module("kcover_portal.tracing.otlp")

Value = str | int | bool

_RESOURCES: Final = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+(?=/))?/([^/]+)(/[^/]+)?(/.+)?$")


class Subject(NamedTuple):
    """What a trace is about: ``incident`` or ``rescue``, and its key."""

    kind: str
    pk: int


class Span(Protocol):
    """A piece of work that is under way."""

    def set(self, **attributes: Value) -> None:
        """Adds attributes that are known only later."""


class _Nothing:
    def set(self, **attributes: Value) -> None:
        pass


_OFF: Final[AbstractContextManager[Span]] = contextlib.nullcontext(_Nothing())
_lock = threading.Lock()
_exporter: "otlp.Exporter | None" = None


def incident(pk: int) -> Subject:
    return Subject("incident", pk)


def rescue(pk: int) -> Subject:
    """The trace of a rescue that no incident caused."""
    return Subject("rescue", pk)


def is_on() -> bool:
    """Returns whether traces are sent, so that a caller may read what only they need."""
    return settings.KCOVER_TRACES is not None


def span(subject: Subject | None, name: str, **attributes: Value) -> AbstractContextManager[Span]:
    """A span for the work of the block, in the subject's trace; an error that leaves the block marks it by its type."""
    if subject is None or settings.KCOVER_TRACES is None:
        return _OFF
    return _started(settings.KCOVER_TRACES).span(subject, name, attributes)


def call(method: str, path: str) -> AbstractContextManager[Span]:
    """A span for one call to an API server, within the current span; nothing outside of one."""
    if settings.KCOVER_TRACES is None:
        return _OFF
    template = template_of(path)
    attributes: dict[str, Value] = {"http.request.method": method, "url.template": template}
    return _started(settings.KCOVER_TRACES).child(f"{method} {template.strip('/')}", attributes) or _OFF


def record(subject: Subject, name: str, *, began: datetime, first: bool = False, **attributes: Value) -> None:
    """Adds a span for work that ends now. ``first``: it opened the subject, so that the other spans are below it."""
    if settings.KCOVER_TRACES is not None:
        _started(settings.KCOVER_TRACES).record(subject, name, began=began, first=first, attributes=attributes)


def template_of(path: str) -> str:
    """The path of a call without names of objects, which users choose: ``/nodes/{name}``, ``/pods/{name}/eviction``."""
    found = _RESOURCES.match(path)
    if found is None:
        return "/other"
    resource, name, part = found.groups()
    return f"/{resource}{'/{name}' if name else ''}{part or ''}"


def stop() -> None:
    """Sends what is left, for a few seconds at most, and forgets the settings."""
    global _exporter
    with _lock:
        ended, _exporter = _exporter, None
    if ended is not None:
        ended.stop()


def _started(to: telemetry_settings.Traces) -> "otlp.Exporter":
    global _exporter
    with _lock:
        if _exporter is None:
            _exporter = otlp.Exporter(to, secret=settings.SECRET_KEY)
        return _exporter
