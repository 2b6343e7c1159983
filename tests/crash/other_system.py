"""The system that webhooks and channels call: it accepts each order once and calls back, accepts each message once,
power-cycles a machine once for each request, and fails at a node's first call if this is planned.

As in the simulator, a call that fails «before» has no effect, and neither has a call whose caller is gone.
"""

import contextlib
import json
import select
import socket
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kcover_portal.lib import outgoing
from tests.story.product import call

ORDERS, MESSAGES, EVENTS, POWER = "/orders", "/messages", "/events", "/power"
TRIED_AGAIN = 0.5  # seconds between tries to call back
GIVEN_UP = 240.0  # seconds after which nobody is called back any more


@dataclass(slots=True, kw_only=True, eq=False)
class _Fault:
    """What befalls a node's first call. ``status``: as the simulator's API faults name it."""

    status: int | str
    after: bool
    seconds: float
    since: float = 0.0  # since when the call hangs
    let_go: threading.Event = field(default_factory=threading.Event)


class OtherSystem:
    """``url`` takes orders, ``messages`` takes messages to people, ``events`` takes deliveries of any events.

    ``power`` is the cloud that ``cycle``s a machine.

    What is not signed with ``secret`` it refuses.
    """

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.taken: Counter[str] = Counter()  # orders that it took up, by node
        self.commanded: Counter[str] = Counter()  # messages that it heard, by node
        self.arrivals: Counter[str] = Counter()  # at ``events``, by delivery: one that comes again counts again
        self.heard: dict[str, list[dict[str, Any]]] = {}  # the events of each of these deliveries
        self.cycle: Callable[[str], object] = lambda node: None
        self._known: set[str] = set()  # deliveries: one that comes again is no second one
        self._faults: dict[str, _Fault] = {}
        self._hanging: dict[str, _Fault] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        address = f"http://127.0.0.1:{self._server.server_port}"
        self.url, self.messages = address + ORDERS, address + MESSAGES
        self.events, self.power = address + EVENTS, address + POWER
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it, and lets go of every call."""
        self._stopped.set()
        for fault in list(self._hanging.values()):
            fault.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def plan(self, node: str, *, status: int | str, after: bool, seconds: float) -> None:
        """The node's next call is answered by a status, or met with ``timeout``, ``cut`` or ``hold``."""
        self._faults[node] = _Fault(status=status, after=after, seconds=seconds)

    def pending(self) -> set[str]:
        """The nodes whose fault has not come about."""
        return set(self._faults)

    def hanging(self) -> dict[str, float]:
        """The nodes whose call is held, and for how many seconds it has been."""
        now = time.monotonic()
        return {node: now - fault.since for node, fault in list(self._hanging.items()) if fault.status == "hold"}

    def let_go(self, node: str) -> None:
        """Lets a held call go on, and forgets a fault that has not come about."""
        self._faults.pop(node, None)
        if node in self._hanging:
            self._hanging[node].let_go.set()

    def answer(self, path: str, document: dict[str, Any], connection: socket.socket) -> int | None:
        """The status with which a call is answered; None: with nothing, the connection is cut."""
        if path == ORDERS:
            return self._answer(document["node"], connection, effect=lambda: self._take(document))
        if path == EVENTS:
            with self._lock:
                self.arrivals[document["delivery"]] += 1
                self.heard[document["delivery"]] = document["events"]
            return 204
        if path == POWER:
            return self._answer(document["node"], connection, effect=lambda: self._cycle(document))
        (node,) = {event["node"] for event in document["events"]}
        return self._answer(node, connection, effect=lambda: self._hear(node, document))

    def _answer(self, node: str, connection: socket.socket, *, effect: Callable[[], None]) -> int | None:
        fault = self._faults.pop(node, None)
        if fault is None:
            effect()
            return 204
        if fault.after:
            effect()
        if fault.status in ("hold", "timeout"):
            self._hang(node, fault)
        if fault.status == "hold":
            if not fault.after and not _gone(connection):
                effect()
            return 204
        return fault.status if isinstance(fault.status, int) else None

    def _hang(self, node: str, fault: _Fault) -> None:
        fault.since = time.monotonic()
        self._hanging[node] = fault
        fault.let_go.wait(fault.seconds)
        del self._hanging[node]

    def _take(self, order: dict[str, Any]) -> None:
        """The one effect of an order; the word that it is done follows, and once more where it is ordered again: it was
        not heard."""
        if self._is_new(order["delivery"]):
            self.taken[order["node"]] += 1
        threading.Thread(target=self._call_back, args=(order,), daemon=True).start()

    def _hear(self, node: str, message: dict[str, Any]) -> None:
        """The one effect of a message."""
        if self._is_new(message["delivery"]):
            self.commanded[node] += 1

    def _cycle(self, request: dict[str, Any]) -> None:
        """The one effect of a request to a cloud."""
        if self._is_new(request["delivery"]):
            self.cycle(request["node"])

    def _is_new(self, delivery: str) -> bool:
        with self._lock:
            new = delivery not in self._known
            self._known.add(delivery)
            return new

    def _call_back(self, order: dict[str, Any]) -> None:
        """Until somebody hears it: what calls may itself be down."""
        word = {"outcome": "done", "message": "looked at", "delivery": order["delivery"]}
        body = json.dumps(word).encode()
        signature = outgoing.signature(self.secret, f"{order['rescue']}\n".encode() + body)
        until = time.monotonic() + GIVEN_UP
        while not self._stopped.wait(TRIED_AGAIN) and time.monotonic() < until:
            with contextlib.suppress(urllib.error.URLError, OSError):
                status, _ = call("POST", order["callback"], body, headers={outgoing.SIGNATURE: signature})
                if status < 500 and status != 429:  # kept, or not wanted any more
                    return


def _gone(connection: socket.socket) -> bool:
    """Returns whether the caller has left."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _handler(other: OtherSystem) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = urlsplit(self.path).path
            if path not in (ORDERS, MESSAGES, EVENTS, POWER):
                return self._say(404)
            if not outgoing.signed(other.secret, body, self.headers.get(outgoing.SIGNATURE, "")):
                return self._say(403)
            return self._say(other.answer(path, json.loads(body), self.connection))

        def _say(self, status: int | None) -> None:
            self.close_connection = True
            if status is None:
                return
            with contextlib.suppress(OSError):  # nobody there to hear it
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler
