"""An HTTP server with scripted answers, for answers that no correct API server gives."""

import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Scripted:
    """``answer(request)`` decides; ``requests`` are (method, path, headers, body) as they came."""

    def __init__(self, answer: Callable[["Handler"], None], *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.answer = answer
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.scripted = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{scheme}://{self.address}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        scripted = self.server.scripted
        scripted.requests.append((self.command, self.path, dict(self.headers), body))
        with contextlib.suppress(ConnectionError):
            scripted.answer(self)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve

    def reply(self, status: int, body: Any, **headers: str) -> None:
        """A whole answer; mappings go as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunks(self, *parts: bytes, end: bool = True) -> None:
        """A chunked answer, piece by piece; without ``end`` the connection is cut after the last."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.flush()
        if end:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@contextlib.contextmanager
def serve(answer: Callable[[Handler], None], *, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """The server, for as long as a test needs it."""
    scripted = Scripted(answer, tls=tls)
    try:
        yield scripted
    finally:
        scripted.close()
