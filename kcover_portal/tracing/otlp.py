"""Sends spans to an OpenTelemetry collector. The only module that imports OpenTelemetry, and only if traces are on."""

import atexit
import contextlib
import hashlib
import hmac
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from kcover_portal import tracing
from kcover_portal.config import telemetry_settings

CALL_SECONDS: Final = 2.0  # of one call to the collector, with its repetitions
STOP_SECONDS: Final = 2.0  # in which the calls of a process that ends may begin
QUIET_SECONDS: Final = 60.0  # between two log lines about a collector that does not take spans
# Attributes that OpenTelemetry's conventions name; the others begin with "kcover.".
_NAMES: Final = {"cluster": "k8s.cluster.name", "node": "k8s.node.name"}
_KINDS: Final = {"report": SpanKind.SERVER, "notify": SpanKind.CLIENT}


class _Ids(RandomIdGenerator):
    """Random ids, except for the first span of a subject, whose ids are computed."""

    def __init__(self) -> None:
        self.computed: ContextVar[tuple[int, int] | None] = ContextVar("ids of a first span", default=None)

    def generate_trace_id(self) -> int:
        ids = self.computed.get()
        return ids[0] if ids is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        ids = self.computed.get()
        return ids[1] if ids is not None else super().generate_span_id()


class _Ending(SpanExporter):
    """An exporter that drops its spans once the process may not wait for it any longer."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.until = float("inf")  # by the monotonic clock

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if time.monotonic() >= self.until:
            return SpanExportResult.FAILURE
        return self._exporter.export(spans)

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Rarely(logging.Filter):
    """Passes one line in QUIET_SECONDS: a collector that is away would cause one every few seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + QUIET_SECONDS
        return True


_rarely = _Rarely()
logging.getLogger(OTLPSpanExporter.__module__).addFilter(_rarely)


class Exporter:
    """The spans of this process on their way to the collector, in batches and in a thread of their own.

    ``secret``: makes the ids of this portal differ from those of another one at the same collector.
    """

    def __init__(self, to: telemetry_settings.Traces, *, secret: str) -> None:
        self._secret = secret.encode()
        self._share = TraceIdRatioBased(to.percent / 100)
        self._ids = _Ids()
        self._ending = _Ending(
            OTLPSpanExporter(endpoint=to.url, headers=to.headers, timeout=CALL_SECONDS, compression=Compression.Gzip)
        )
        self._provider = TracerProvider(
            sampler=ParentBased(self._share),
            resource=Resource.create(
                {"service.name": "kcover-portal", "service.version": telemetry_settings.release()}
            ),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._ending))
        self._tracer = self._provider.get_tracer("kcover_portal")
        atexit.register(self.stop)

    def stop(self) -> None:
        """Sends what is left, for a few seconds at most."""
        atexit.unregister(self.stop)
        self._ending.until = time.monotonic() + STOP_SECONDS
        self._provider.shutdown()

    @contextlib.contextmanager
    def span(
        self, subject: tracing.Subject, name: str, attributes: Mapping[str, tracing.Value]
    ) -> Iterator[tracing.Span]:
        """See ``tracing.span``."""
        with self._current(name, _named(attributes, subject), within=self._below(subject)) as span:
            yield span

    def child(self, name: str, attributes: Mapping[str, tracing.Value]) -> AbstractContextManager[tracing.Span] | None:
        """See ``tracing.call``; None outside of a span."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        return self._current(name, attributes, kind=SpanKind.CLIENT)

    def record(
        self,
        subject: tracing.Subject,
        name: str,
        *,
        began: datetime,
        first: bool,
        attributes: Mapping[str, tracing.Value],
    ) -> None:
        """See ``tracing.record``."""
        start = int(began.timestamp() * 1_000_000) * 1_000
        computed = self._ids.computed.set(self._ids_of(subject) if first else None)
        try:
            span = self._tracer.start_span(
                name,
                context=Context() if first else self._below(subject),
                kind=_KINDS.get(name, SpanKind.INTERNAL),
                attributes=_named(attributes, subject),
                start_time=start,
            )
        finally:
            self._ids.computed.reset(computed)
        span.end(max(start, int(datetime.now(UTC).timestamp() * 1_000_000) * 1_000))

    @contextlib.contextmanager
    def _current(
        self,
        name: str,
        attributes: Mapping[str, tracing.Value],
        *,
        within: Context | None = None,
        kind: SpanKind | None = None,
    ) -> Iterator[tracing.Span]:
        made = self._tracer.start_as_current_span(
            name,
            context=within,
            kind=kind or _KINDS.get(name, SpanKind.INTERNAL),
            attributes=attributes,
            # A message may repeat what a cluster or a person wrote, and a traceback the values of variables.
            record_exception=False,
            set_status_on_exception=False,
        )
        with made as span:
            try:
                yield _Span(span)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR))
                raise

    def _ids_of(self, subject: tracing.Subject) -> tuple[int, int]:
        """The id of the subject's trace, and that of its first span."""
        text = f"kcover trace {subject.kind} {subject.pk}".encode()
        made = hmac.digest(self._secret, text, hashlib.sha256)
        return int.from_bytes(made[:16]), int.from_bytes(made[16:24])

    def _below(self, subject: tracing.Subject) -> Context:
        """The context of the subject's first span, which another process may have made."""
        trace_id, span_id = self._ids_of(subject)
        answer = self._share.should_sample(None, trace_id, "").decision
        flags = TraceFlags(TraceFlags.SAMPLED if answer is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        first = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
        return trace.set_span_in_context(first, Context())


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, **attributes: tracing.Value) -> None:
        self._span.set_attributes(_named(attributes))


def _named(attributes: Mapping[str, tracing.Value], subject: tracing.Subject | None = None) -> dict[str, tracing.Value]:
    named = {_NAMES.get(name, f"kcover.{name}"): value for name, value in attributes.items()}
    return named if subject is None else {f"kcover.{subject.kind}": subject.pk, **named}
