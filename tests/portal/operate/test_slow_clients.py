"""Slow clients against real processes: they cost sockets and bounded buffers, and everybody else is answered."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.asgi import bodies, proxy
from kcover_portal.config import request_limits
from tests import waiting
from tests.portal.operate.raw_http import answer, ended, on_the_way, running, slow, well
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow
CLIENTS = 120
SECRET = {"Authorization": "Bearer kco_none"}
APPLICATIONS = {"web": "kcover_portal.asgi.web", "live": "kcover_portal.asgi"}
LIMITED = "tests.portal.operate.limited:application"
NO_DEADLINE_SECONDS = 3600.0  # who is answered does not wait until slow clients are disconnected


@pytest.fixture(params=APPLICATIONS, scope="module")
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One process of production on a port, with a database without tables: no test here needs any."""
    with limited(request.param, tmp_path_factory.mktemp("slow"), head=NO_DEADLINE_SECONDS) as free:
        yield free


@contextmanager
def limited(kind: str, folder: Path, *, head: float) -> Iterator[int]:
    """The process, with this deadline for the head of a request and twice as much for its body."""
    limits = {"TEST_HEAD_SECONDS": str(head), "TEST_REQUEST_SECONDS": str(2 * head)}
    with running(LIMITED, folder, TEST_APPLICATION=APPLICATIONS[kind], **limits) as free:
        yield free


BODY = "POST /sign-in/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nname="
LARGE = (
    "POST /api/v1/policies/validate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nContent-Length: 4000000\r\n\r\n"
)
ATTACKS = {
    "half heads": "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "half bodies": BODY,
    "half large bodies": LARGE + "x" * 100_000,
    "finished, never closed": "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "silent": "",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_clients_are_answered(port: int, attack: str) -> None:
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            stack.enter_context(closing(slow(port, ATTACKS[attack])))
        assert all(well(port) for _ in range(20))


def test_large_bodies_that_fill_the_buffers_keep_no_small_request_out(port: int) -> None:
    count, rest = divmod(request_limits.MAX_BUFFERED, 3_900_000)
    with ExitStack() as stack:
        for size in (*[3_900_000] * count, rest):  # to the last byte
            stack.enter_context(closing(slow(port, LARGE + "x" * size)))
        waiting.until(lambda: not on_the_way(port), "the server to read the bodies")
        assert answer(port, BODY + "x" * 95)[0] == 403  # without the token of the form
        assert all(well(port) for _ in range(5))


def test_large_heads_that_never_end_have_bounded_room(port: int) -> None:
    size = request_limits.MAX_HEAD - 5_000
    beyond = 5
    with ExitStack() as stack:
        count = request_limits.MAX_HEADS // size + 1 + beyond
        clients = [stack.enter_context(closing(slow(port, ATTACKS["half heads"]))) for _ in range(count)]
        for client in clients:
            with suppress(OSError):  # it is one of those beyond
                client.sendall(b"x" * size)
        waiting.until(lambda: sum(map(ended, clients)) >= beyond, "those beyond to be disconnected")
        assert well(port)
        assert not all(map(ended, clients))


@pytest.mark.parametrize("kind", APPLICATIONS)
def test_slow_clients_are_disconnected(kind: str, tmp_path: Path) -> None:
    with limited(kind, tmp_path, head=2.0) as port, ExitStack() as stack:
        heads = [stack.enter_context(closing(slow(port, ATTACKS["half heads"]))) for _ in range(CLIENTS)]
        dripping = [stack.enter_context(closing(slow(port, ATTACKS["half heads"]))) for _ in range(3)]
        bodies = [stack.enter_context(closing(slow(port, BODY))) for _ in range(CLIENTS)]

        def all_ended() -> bool:
            for client in dripping:
                with suppress(OSError):
                    client.send(b"x")
            return all(map(ended, heads)) and all(map(ended, dripping))

        waiting.until(all_ended, "the slow heads to be disconnected")
        assert well(port)
        waiting.until(lambda: all(map(ended, bodies)), "the slow bodies to be disconnected")


@pytest.mark.parametrize(
    ("credential", "length", "status"),
    [
        ("", request_limits.MAX_ANONYMOUS_BODY + 1, 413),
        ("Authorization: Bearer x\r\n", request_limits.MAX_BODY + 1, 413),
        ("Cookie: a=b\r\n", request_limits.MAX_ANONYMOUS_BODY + 1, 413),
        ("X-Hub-Signature: sha256=0\r\n", request_limits.MAX_SIGNED_BODY + 1, 413),
    ],
)
def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    port: int, credential: str, length: int, status: int
) -> None:
    head = f"POST /api/v1/policies/validate HTTP/1.1\r\nHost: x\r\n{credential}Content-Length: {length}\r\n\r\n"
    assert answer(port, head)[0] == status


@pytest.mark.parametrize("target", ["*", "x", "//", "/%", "/%00", "http://other/healthz", "healthz", "/a b", "?", "#"])
@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_no_raw_target_is_an_internal_error(port: int, target: str, method: str) -> None:
    status, _ = answer(port, f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert status != 500 or target == "//"  # the sign-in page of "/" needs tables


@pytest.mark.parametrize(
    "head",
    [
        "\r\n\r\n",
        "GET / HTTP/1.1\nHost: x\n\n\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 50\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nX: " + "x" * 100_000,
    ],
)
def test_an_ambiguous_head_occupies_no_thread(port: int, head: str) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS)))
            with suppress(OSError):  # refused before its end
                client.sendall(head.encode())
        assert well(port)


def test_a_request_in_pieces_and_several_on_one_connection_are_answered(port: int) -> None:
    with closing(slow(port, "")) as client:
        for _ in range(3):
            for byte in "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
                client.sendall(byte.encode())
            response = http.client.HTTPResponse(client)
            response.begin()
            assert (response.status, response.read()) == (200, b"ok\n")
        client.sendall(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345")
        response = http.client.HTTPResponse(client)
        response.begin()
        response.read()
        assert response.status in (403, 405)


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    one = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with closing(slow(port, one * 3 + last)) as client:
        assert everything(client).count(b"HTTP/1.1 200") == 4
    assert well(port)


def everything(client: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    found = b""
    with suppress(ConnectionError):
        while piece := client.recv(65536):
            found += piece
    return found


def test_requests_far_ahead_of_their_answers_end_the_connection(port: int) -> None:
    with closing(slow(port, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 3_000)) as client:
        assert everything(client).count(b"HTTP/1.1 200") < 3_000
    assert well(port)


@pytest.mark.parametrize(
    "endless",
    ["1;x=", "5\r\n12345\r\n0\r\nX-A: ", "0\r\n" + "X-A: a\r\n" * 100],
    ids=["extension", "trailer", "trailers"],
)
def test_an_endless_chunk_header_is_disconnected(endless: str, tmp_path: Path) -> None:
    head = "POST /sign-in/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with limited("live", tmp_path, head=NO_DEADLINE_SECONDS) as port, closing(slow(port, head + endless)) as client:

        def is_over() -> bool:
            with suppress(OSError):
                client.sendall(b"X-A: a\r\n" * 500 if "\n" in endless[-1] else b"x" * 5_000)
            return ended(client)

        waiting.until(is_over, "the connection to end")
        assert well(port)


def test_a_refusal_never_gets_into_the_answer_of_an_earlier_request(port: int) -> None:
    with closing(slow(port, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n")) as client:
        found = everything(client)
    assert found.count(b"HTTP/1.1") <= 1 or b"ok\nHTTP/1.1 400" in found
    assert b"400" not in found or b"200" in found


def test_a_query_that_is_not_ascii_is_refused(port: int) -> None:
    with closing(slow(port, "")) as client:
        client.sendall("GET /healthz?a=é HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert everything(client).startswith(b"HTTP/1.1 400")


def test_a_client_that_waits_for_100_continue_may_send_its_body(port: int) -> None:
    head = "POST /healthz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    with closing(slow(port, head)) as client:
        assert b"100 Continue" in client.recv(1000)
        client.sendall(b"12345")
        assert b"HTTP/1.1 4" in client.recv(1000) + client.recv(1000)


def test_a_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    with running("tests.portal.operate.endless:application", tmp_path) as port, ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(closing(slow(port, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")))
        assert well(port)  # two threads: eight clients have had their time one after the other


async def test_a_target_that_is_not_a_path_is_not_forwarded() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "*", "raw_path": b"*", "query_string": b"", "headers": []}
    await bodies.BodyBuffer(proxy.Proxy("http://127.0.0.1:1"))(scope, receive, send)
    assert sent[0]["status"] == 400
    assert json.loads(sent[1]["body"])["code"] == "target_invalid"
