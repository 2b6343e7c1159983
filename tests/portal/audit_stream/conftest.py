"""Real receivers: a syslog server over TCP, and an HTTP server that records requests."""

import json
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from kcover import audit
from kcover_portal.ledger import services as ledger
from tests.portal.notify.receiver import Receiver

SECRET = "a secret of some length"


def tell(cluster: str, *names: str, now: datetime) -> None:
    """Appends an entry for each name."""
    for name in names:
        ledger.record(cluster, audit.PasswordChanged(user=name), actor="user:anna", now=now)


class SyslogServer:
    """Reads octet-counted messages, one connection at a time. ``breaks``: connections to reset after a few bytes."""

    def __init__(self) -> None:
        self.breaks = 0
        self.messages: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._socket.accept()
            except OSError:
                return
            with connected:
                if self.breaks:
                    self.breaks -= 1
                    connected.recv(10)
                    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                    continue  # closing resets the connection
                with connected.makefile("rb") as whole:
                    self._keep(whole.read())

    def _keep(self, data: bytes) -> None:
        while data:
            length, _, rest = data.partition(b" ")
            self.messages.append(rest[: int(length)])
            data = rest[int(length) :]

    def records(self) -> list[dict[str, Any]]:
        """The JSON of the messages so far."""
        return [json.loads(message.split(b"\xef\xbb\xbf", 1)[1]) for message in self.messages]

    def stop(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def syslog(settings) -> Iterator[SyslogServer]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    server = SyslogServer()
    yield server
    server.stop()


@pytest.fixture
def web(settings) -> Iterator[Receiver]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Receiver(SECRET)
    yield made
    made.stop()
