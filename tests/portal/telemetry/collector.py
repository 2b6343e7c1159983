"""Servers on free ports that receive what the portal sends: OTLP over HTTP, and Sentry's envelopes."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """``bodies``: what came, decompressed; ``status``: its answer."""

    def __init__(self) -> None:
        self.status = 200
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def spans(self) -> list[Span]:
        """The spans that came, in the order of their start."""
        found: list[Span] = []
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events of Sentry's envelopes."""
        for body in self.bodies:
            _, *items = body.split(b"\n")
            for header, payload in zip(items[::2], items[1::2], strict=False):
                if json.loads(header)["type"] == "event":
                    yield json.loads(payload)


def attributes(span: Span) -> dict[str, Any]:
    """The attributes of a span by name."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
