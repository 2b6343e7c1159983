"""A hanging API server delays one caller, not all of them; calls resume when it answers."""

import contextlib
import threading
from datetime import UTC, datetime

import pytest

from kcover import reasons
from kcover_portal.kube import circuit_breaker, http, live, port
from tests import waiting
from tests.contract import over_http, scripted

NODE = {"kind": "Node", "metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "5"}, "spec": {}, "status": {}}


READ_SECONDS = 0.2  # until the client takes a server that hangs for dead


class Clock:
    """Monotonic time that stands still until it is told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_after_a_time_out_one_caller_retries_and_the_others_fail_at_once():
    clock = Clock()
    made = circuit_breaker.CircuitBreaker(clock=clock)
    with pytest.raises(circuit_breaker.TimedOut), made.call("GET a"):
        raise circuit_breaker.TimedOut("too late")
    with pytest.raises(port.Unavailable) as caught, made.call("GET b"):
        pytest.fail("it was sent")
    assert caught.value.why == reasons.of("api_server_silent", call="GET b")
    assert (caught.value.retry_after, caught.value.ambiguous) == (circuit_breaker.OPEN_SECONDS, False)
    clock.now += circuit_breaker.OPEN_SECONDS
    with made.call("GET c"), pytest.raises(port.Unavailable, match="GET d was not sent"), made.call("GET d"):
        pytest.fail("two try at once")
    with made.call("GET e"), made.call("GET f"):
        pass  # c was answered: all may call again


def test_a_failed_call_that_was_answered_does_not_open_the_circuit():
    clock = Clock()
    made = circuit_breaker.CircuitBreaker(clock=clock)
    with pytest.raises(port.Conflict), made.call("PATCH a"):
        raise port.Conflict("changed")
    with made.call("GET b"):
        pass
    with pytest.raises(circuit_breaker.TimedOut), made.call("GET c"):
        raise circuit_breaker.TimedOut("too late")
    clock.now += circuit_breaker.OPEN_SECONDS
    with pytest.raises(port.NotFound), made.call("GET d"):
        raise port.NotFound("gone")
    with made.call("GET e"):
        pass


def test_a_write_that_hangs_does_not_open_the_circuit():
    with hanging(lambda request: request.command == "PATCH") as server:
        cluster = live.LiveCluster(http.Connection(over_http.way_in(server.url), read_seconds=READ_SECONDS))
        with pytest.raises(port.Unavailable) as caught:
            cluster.apply_node("gpu-1", port.NodeChange(cordon=True))
        assert caught.value.ambiguous
        assert_sent(server, cluster)


def test_a_log_that_hangs_does_not_open_the_circuit():
    """The API server waits for a kubelet. The other callers of the API server must not be cut off for that."""

    with hanging(lambda request: "/log?" in request.path) as server:
        cluster = live.LiveCluster(http.Connection(over_http.way_in(server.url), read_seconds=READ_SECONDS))
        with pytest.raises(port.Unavailable):
            cluster.pod_log("ns", "p", container="c", since=datetime(2026, 11, 21, tzinfo=UTC), most=10)
        assert_sent(server, cluster)


def test_a_server_that_hangs_and_comes_back():
    clock, hangs = Clock(), True
    with hanging(lambda request: hangs) as server:
        connection = http.Connection(over_http.way_in(server.url), read_seconds=READ_SECONDS, clock=clock)
        cluster = live.LiveCluster(connection)
        with pytest.raises(port.Unavailable):
            cluster.get_node("gpu-1")
        for _ in range(50):
            with pytest.raises(port.Unavailable, match="not sent"):
                cluster.get_node("gpu-1")
        assert len(server.requests) == 1
        hangs = False
        waiting.until(lambda: answered(cluster, clock), "an answer")
        assert cluster.get_node("gpu-1").name == "gpu-1"


@contextlib.contextmanager
def hanging(hangs):
    """A server that does not answer a request for which ``hangs`` is true, until the end of the test."""
    over = threading.Event()

    def answer(request):
        if hangs(request):
            over.wait(waiting.HANG_SECONDS)
        request.reply(200, NODE)

    with scripted.serve(answer) as server:
        try:
            yield server
        finally:
            over.set()


def assert_sent(server, cluster):
    """A read is sent. On a stalled core its answer may be late, which is another matter."""
    before = len(server.requests)
    with contextlib.suppress(circuit_breaker.TimedOut):
        assert cluster.get_node("gpu-1").name == "gpu-1"
    waiting.until(lambda: len(server.requests) > before, "the request to arrive")


def answered(cluster, clock):
    """Returns whether the next probe of the server is answered."""
    clock.now += circuit_breaker.OPEN_SECONDS
    try:
        return cluster.get_node("gpu-1").name == "gpu-1"
    except port.Unavailable:
        return False
