"""A real HTTP server that keeps what it is sent."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Receiver:
    """The calls so far (body, signature), and the status to answer with."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/heads?key=1"
        self.calls: list[tuple[bytes, str]] = []
        self.status = 204


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.calls.append((body, self.headers["X-Kcover-Signature"]))
            self.send_response(made.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Receiver(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
