"""An API server that lies, or a proxy in its place: it costs one call, bounded in memory and time."""

import gzip
import json
import socket
import time
from types import SimpleNamespace

import pytest

from kcover_portal.kube import bounds, circuit_breaker, http, live, port
from tests.contract import over_http, scripted
from tests.waiting import HANG_SECONDS

NODE = {"kind": "Node", "metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "5"}, "spec": {}, "status": {}}
DEEP = b"[" * 100_000
READ_SECONDS = 0.3
_never_left = []  # requests whose client was there until the end


@pytest.fixture
def serve(monkeypatch):
    """``serve(answer)`` starts a server and returns a client of it. The bounds on bytes are small."""
    monkeypatch.setattr(bounds, "TOTAL_SLACK_SECONDS", 0.2)
    monkeypatch.setattr(bounds, "MAX_BYTES", 100_000)
    monkeypatch.setattr(bounds, "MAX_LINE", 100_000)
    started = []

    def start(answer, *, read_seconds=HANG_SECONDS):
        context = scripted.serve(answer)
        server = context.__enter__()
        started.append(context)
        connection = http.Connection(over_http.way_in(server.url), read_seconds=read_seconds, quiet_seconds=0)
        return live.LiveCluster(connection)

    yield start
    for context in started:
        context.__exit__(None, None, None)


def _drip(request, piece):
    """Sends a piece again and again until the client leaves. One that never leaves fails the test by waiting here."""
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until:
        request.wfile.write(piece)
        request.wfile.flush()
        time.sleep(0.05)
    _never_left.append(request)


def _dripping_head(request):
    _drip(request, b"H")


def _dripping_headers(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    _drip(request, b"X: y\r\n")


def _endless_continue(request):
    _drip(request, b"HTTP/1.1 100 Continue\r\n\r\n")


def _dripping_body(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    _drip(request, b" ")


def _dripping_body_until_close(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    _drip(request, b" ")
    request.close_connection = True


def _dripping_chunk(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n")
    _drip(request, b" ")


def _endless_trailers(request):
    request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    _drip(request, b"X: y\r\n")


DRIPS = [
    _dripping_head,
    _dripping_headers,
    _endless_continue,
    _dripping_body,
    _dripping_body_until_close,
    _dripping_chunk,
    _endless_trailers,
]


@pytest.mark.parametrize("answer", DRIPS)
def test_a_response_that_drips_ends_in_time(answer, serve):
    cluster = serve(answer, read_seconds=READ_SECONDS)
    with pytest.raises(port.Unavailable) as caught:
        cluster.get_node("gpu-1")
    assert not _never_left
    assert isinstance(caught.value, circuit_breaker.TimedOut), "the next caller does not wait"


@pytest.mark.parametrize("answer", [_dripping_head, _dripping_body])
def test_a_write_whose_answer_drips_may_have_been_done(answer, serve):
    def reply(request):
        request.reply(200, NODE) if request.command == "GET" else answer(request)

    cluster = serve(reply, read_seconds=READ_SECONDS)
    with pytest.raises(port.Unavailable) as caught:
        cluster.apply_node("gpu-1", port.NodeChange(cordon=True))
    assert caught.value.ambiguous
    assert not _never_left


def test_a_watch_that_drips_ends_in_time(serve):
    watch = serve(_dripping_chunk).watch_nodes("1", timeout=-4.9)
    with pytest.raises(port.Unavailable):
        next(watch)
    assert not _never_left


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "gzip, gzip", "br", "zstd"])
def test_a_compressed_response_is_not_unpacked(encoding, serve):
    bomb = gzip.compress(b" " * 5_000_000)
    cluster = serve(lambda request: request.reply(200, bomb, Content_Encoding=encoding))
    with pytest.raises(port.Unavailable, match="encoding"):
        cluster.get_node("gpu-1")


@pytest.mark.parametrize("status", [200, 500])
def test_a_response_without_an_end_is_not_held(status, serve):
    sent = 0

    def answer(request):
        nonlocal sent
        request.send_response(status)
        request.send_header("Connection", "close")
        request.end_headers()
        while sent < 50_000_000:
            sent += request.wfile.write(b" " * 65_536)

    with pytest.raises(bounds.TooLarge):
        serve(answer).get_node("gpu-1")
    assert sent < 50_000_000


def test_a_list_of_pods_has_its_own_bound(serve, monkeypatch):
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [], "padding": "x" * 1_000}).encode()
    monkeypatch.setattr(bounds, "MAX_POD_LIST_BYTES", 500)
    cluster = serve(lambda request: request.reply(200, page))
    assert cluster.workloads(kind="Job") == []
    with pytest.raises(bounds.TooLarge):
        cluster.list_pods()


def test_a_list_of_what_users_may_create_has_its_own_bounds(serve, monkeypatch):
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [], "padding": "x" * 1_000}).encode()
    cluster = serve(lambda request: request.reply(200, page))
    monkeypatch.setattr(bounds, "MAX_BYTES_BY_USERS", 500)
    assert cluster.custom_objects(port.MACHINE) == []
    with pytest.raises(bounds.TooLarge):
        cluster.custom_objects(port.PREFLIGHT_REPORT)


def test_a_list_that_never_ends_is_given_up_and_expiring_does_not_prolong_it(serve, monkeypatch):
    """Each page is quick and names another one; every tenth is expired."""
    asked = 0

    def answer(request):
        nonlocal asked
        asked += 1
        time.sleep(0.01)
        if asked % 10 == 0:
            request.reply(410, b"{}")
        else:
            request.reply(200, json.dumps({"metadata": {"continue": str(asked)}, "items": []}).encode())

    monkeypatch.setattr(bounds, "SECONDS_BY_USERS", 0.3)
    with pytest.raises(port.Unavailable):
        serve(answer).custom_objects(port.POLICY_KINDS[0])
    assert asked < 100


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_deadline_ends_the_socket_within_a_wrapper(wrapped):
    """urllib3 wraps the socket of a connection through an https:// proxy."""
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(10)
        deadline = bounds.SocketDeadline(SimpleNamespace(socket=one) if wrapped else one, 0)
        assert (other.recv(1), deadline.expired) == (b"", True)


def test_a_line_of_a_watch_without_an_end_is_not_held(serve):
    cluster = serve(lambda request: request.chunks(*[b"x" * 10_000] * 20, end=False))
    with pytest.raises(bounds.TooLarge):
        next(cluster.watch_nodes("1", timeout=5))


@pytest.mark.parametrize(
    "body", [DEEP, b'{"metadata": ' + DEEP, b'{"unknown": ' + DEEP, b'{"metadata": {"uid": 1e400}}']
)
def test_a_body_that_breaks_the_decoder(body, serve):
    with pytest.raises(port.Unavailable):
        serve(lambda request: request.reply(200, body)).get_node("gpu-1")
    with pytest.raises(port.Unavailable):
        serve(lambda request: request.reply(500, body)).get_node("gpu-1")
    line = b'{"type": "ADDED", "object": ' + body + b"}\n"
    with pytest.raises(port.Unavailable):
        next(serve(lambda request: request.chunks(line)).watch_nodes("1", timeout=5))


def test_a_list_of_large_objects_is_read_in_small_pages(serve):
    large = {"metadata": {"name": "gpu-1", "annotations": {"note": "x" * 3_000}}}

    def answer(request):
        size = 500 if "limit=500" in request.path else 20
        more = "" if "continue=" in request.path else "more"
        request.reply(200, {"metadata": {"resourceVersion": "5", "continue": more}, "items": [large] * size})

    assert len(serve(answer).list_nodes().items) == 40


def test_a_list_without_an_end_is_given_up(serve, monkeypatch):
    monkeypatch.setattr(bounds, "LIST_SECONDS", 0.3)
    pages = iter(range(10_000))

    def answer(request):
        request.reply(200, {"metadata": {"continue": f"page-{next(pages)}"}, "items": []})

    with pytest.raises(port.Unavailable, match="too long"):
        serve(answer).list_nodes()
    with pytest.raises(port.Unavailable, match="same page"):
        serve(lambda request: request.reply(200, {"metadata": {"continue": "page"}, "items": []})).list_nodes()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"later", {"Retry_After": "9" * 400}),
        (json.dumps({"details": {"retryAfterSeconds": 2**62}}).encode(), {}),
        (json.dumps({"details": {"retryAfterSeconds": -(2**62)}}).encode(), {}),
    ],
)
def test_a_server_that_asks_for_years_of_patience(body, headers, serve):
    with pytest.raises(port.Unavailable) as caught:
        serve(lambda request: request.reply(429, body, **headers)).get_node("gpu-1")
    assert 0 <= caught.value.retry_after <= http.MAX_RETRY_SECONDS
