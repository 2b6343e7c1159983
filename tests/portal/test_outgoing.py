"""Calls to other systems end within their time limit, whatever the other side does."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.lib import outgoing

SECONDS = 0.5
SLACK = 60  # a machine that is busy with other things


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], int]]:
    """Starts a server that does this with each connection; returns its port."""
    listening: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(talk: Callable[[socket.socket], None]) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        threads.append(threading.Thread(target=accept, daemon=True))
        threads[-1].start()
        return int(server.getsockname()[1])

    yield start
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
    for thread in threads:
        thread.join(60)


def drip(connection: socket.socket, text: bytes) -> None:
    """A byte now and then, each long before any time-out of one read."""
    for byte in text:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def read(connection: socket.socket) -> None:
    while b"{}" not in connection.recv(4096):
        pass


LONG = 4_000  # bytes, which take three minutes
HEAD = f"HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "talk",
    [
        lambda connection: (read(connection), connection.sendall(HEAD), drip(connection, b"[" * LONG)),
        lambda connection: (read(connection), drip(connection, b"HTTP/1.1 200 OK\r\nX: " + b"y" * LONG)),
        lambda connection: (
            read(connection),
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            drip(connection, b"1\r\n[\r\n" * LONG),
        ),
        lambda connection: (
            read(connection),
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n"),  # no length: its end is the connection's
            drip(connection, b" " * LONG),
        ),
        lambda connection: (read(connection), connection.recv(1)),  # until the other side hangs up
    ],
    ids=["body", "head", "chunks", "until the end", "nothing"],
)
def test_a_dripping_answer_is_silence_in_time(serve, talk: Callable[[socket.socket], None]) -> None:
    began = time.monotonic()
    with pytest.raises(outgoing.NoResponse, match=r"took longer than 0\.5 s") as caught:
        outgoing.post(f"http://127.0.0.1:{serve(talk)}/", {}, secret="", seconds=SECONDS)
    assert time.monotonic() - began < SECONDS + SLACK
    assert caught.value.arrived


def test_a_dripping_handshake_was_never_an_answer(serve) -> None:
    began = time.monotonic()
    port = serve(lambda connection: drip(connection, b"\x16\x03\x03\x40\x00" + b"\x02" * LONG))
    with pytest.raises(outgoing.NoResponse) as caught:
        outgoing.post(f"https://127.0.0.1:{port}/", {}, secret="", seconds=SECONDS)
    assert time.monotonic() - began < SECONDS + SLACK
    assert not caught.value.arrived


def test_a_resolver_that_does_not_answer_is_silence_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    done = threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        done.wait(2 * SLACK)
        return []

    monkeypatch.setattr(outgoing.socket, "getaddrinfo", slow)
    began = time.monotonic()
    with pytest.raises(outgoing.NoResponse, match="the DNS resolver does not answer") as caught:
        outgoing.post("http://somewhere.example/", {}, secret="", seconds=SECONDS)
    done.set()
    assert time.monotonic() - began < SECONDS + SLACK
    assert not caught.value.arrived


def test_a_truncated_answer_counts_as_no_answer(serve) -> None:
    port = serve(lambda connection: (read(connection), connection.sendall(HEAD + b"[]")))
    with pytest.raises(outgoing.NoResponse, match="does not answer"):
        outgoing.post(f"http://127.0.0.1:{port}/", {}, secret="", seconds=5)


def test_a_connection_is_not_cut_after_its_answer_arrived_in_time(serve) -> None:
    port = serve(
        lambda connection: (
            read(connection),
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"actions": []}'),
        )
    )
    answer = outgoing.post(f"http://127.0.0.1:{port}/", {}, secret="", seconds=5)
    assert (answer.status, answer.body) == (200, {"actions": []})
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer) and thread.is_alive()]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_this_machine_is_called_only_where_it_is_listed(host: str, settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = []
    with pytest.raises(outgoing.NoResponse) as refused:
        outgoing.post(f"http://{host}:9/", {}, secret="", seconds=SECONDS)
    assert refused.value.reason.code == "address_blocked"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_certificate_of_its_own_is_accepted_only_on_request(serve, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -keyout {key}"
    subprocess.run([*made.split(), "-out", str(certificate), "-subj", "/CN=gpud"], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(4096)
            secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    url = f"https://127.0.0.1:{serve(talk)}/v1/states"
    with pytest.raises(outgoing.NoResponse):
        outgoing.request("GET", url, seconds=5)
    assert outgoing.request("GET", url, seconds=5, verify=False).data == b"[]"


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://[x]/", "http://x:99999/", "http://x:0/", "http://x:-1/", "ftp://x/"]
)
def test_a_text_that_is_no_address(url: str) -> None:
    with pytest.raises(outgoing.NoResponse) as caught:
        outgoing.request("GET", url, seconds=1)
    assert (caught.value.reason.code, caught.value.arrived) == ("address_not_http", False)
