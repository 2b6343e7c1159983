"""A real HTTP server on a free port that receives messages and gives the answers that the test sets."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kcover_portal.lib import outgoing


class Receiver:
    """``bodies`` are the bodies that came, ``asked`` the same as JSON, ``signed`` whether each carried the right
    signature of ``secret``.

    ``statuses`` are answered one after the other, the last for good, with ``answer`` as the body, after ``seconds``;
    ``more_headers`` go with it; ``meanwhile`` runs once a message has arrived and before it is answered; ``cut``
    answers nothing at all.
    """

    def __init__(self, secret: str = "") -> None:
        self.statuses, self.answer, self.seconds, self.cut = [200], "ok", 0.0, False
        self.more_headers: dict[str, str] = {}
        self.meanwhile: Callable[[], object] | None = None
        self.bodies: list[bytes] = []
        self.asked: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.signed: list[bool] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(body)
                receiver.asked.append(json.loads(body))
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.signed.append(outgoing.signed(secret, body, self.headers.get(outgoing.SIGNATURE, "")))
                if receiver.meanwhile is not None:
                    receiver.meanwhile()
                time.sleep(receiver.seconds)
                if receiver.cut:
                    self.close_connection = True
                    return
                answer = receiver.answer.encode()
                status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
                self.send_response(status)
                self.send_header("Location", f"{receiver.url}/elsewhere")
                self.send_header("Content-Length", str(len(answer)))
                for name, value in receiver.more_headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/hush"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
