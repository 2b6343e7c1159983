"""Another system that webhooks call: a real server on a free port, with answers that the test sets."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from kcover_portal.lib import outgoing


class OtherSystem:
    """``asked``: the documents that came with the right signature. ``statuses`` are answered one after the other, the
    last one for good; ``meanwhile`` runs before each answer."""

    def __init__(self, secret: str) -> None:
        self.statuses = [204]
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.calls = 0
        self.cut = False
        self.meanwhile: Callable[[], object] | None = None
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                other.calls += 1
                other.headers.append(dict(self.headers))
                if not secret or outgoing.signed(secret, body, self.headers.get(outgoing.SIGNATURE, "")):
                    other.asked.append(json.loads(body))
                if other.meanwhile is not None:
                    other.meanwhile()
                if other.cut:
                    self.close_connection = True
                    return
                status = other.statuses.pop(0) if len(other.statuses) > 1 else other.statuses[0]
                self.send_response(status)
                self.send_header("Location", "http://169.254.169.254/")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=hush"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
