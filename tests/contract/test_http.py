"""Sending of requests and handling of answers, including odd ones that the official client would mishandle or hide."""

import json
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kcover_portal.kube import bounds, http, live, port
from kcover_portal.kube.verbs import list_watch
from tests import servers
from tests.contract import over_http, scripted

NODE = {"kind": "Node", "metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "5"}, "spec": {}, "status": {}}
CORDON = port.NodeChange(cordon=True)


@pytest.fixture
def script():
    """``script(answer)`` starts a server and gives it with a client."""
    with_ends = []

    def start(answer, **more):
        context = scripted.serve(answer)
        server = context.__enter__()
        with_ends.append(context)
        connection = http.Connection(over_http.way_in(server.url), **{"read_seconds": 5.0, **more})
        return server, live.LiveCluster(connection)

    yield start
    for context in with_ends:
        context.__exit__(None, None, None)


def _status(code, reason="", message="", **details):
    return {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or None}


def _line(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


# logs


def test_a_log_is_requested_by_second_and_size(script):
    server, cluster = script(lambda request: request.reply(200, b"2026-11-21T08:00:00Z x\n"))
    since = datetime(2026, 11, 21, 16, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=8)))
    assert cluster.pod_log("ns", "p", container="c", since=since, most=64) == b"2026-11-21T08:00:00Z x\n"
    asked = "container=c&sinceTime=2026-11-21T08%3A00%3A00Z&limitBytes=64&timestamps=true"
    assert server.paths == [f"/api/v1/namespaces/ns/pods/p/log?{asked}"]


def test_a_log_that_is_much_longer_than_requested_is_not_read(script):
    _, cluster = script(lambda request: request.reply(200, b"x" * 100_000))
    with pytest.raises(bounds.TooLarge):
        cluster.pod_log("ns", "p", container="c", since=datetime(2026, 11, 21, tzinfo=UTC), most=10)


@pytest.mark.parametrize(
    ("status", "error"), [(400, None), (403, port.RefusedByServer), (404, port.NotFound), (500, port.Unavailable)]
)
def test_a_log_that_does_not_exist_is_empty(script, status, error):
    _, cluster = script(lambda request: request.reply(status, _status(status, message="no")))

    def read():
        return cluster.pod_log("ns", "p", container="c", since=datetime(2026, 11, 21, tzinfo=UTC), most=10)

    if error is None:
        assert read() == b""
    else:
        with pytest.raises(error):
            read()


# evictions


def _evicting(status, body, **headers):
    def answer(request):
        if request.command == "GET":
            request.reply(200, {"versions": [{"version": "v1"}], "metadata": {"uid": "u"}})
        else:
            request.reply(status, body, **headers)

    return answer


def test_flow_control_speaks_plain_text_and_is_no_budget(script):
    _, cluster = script(_evicting(429, b"Too many requests, please try again later.\n", Retry_After="7"))
    with pytest.raises(port.Unavailable) as caught:
        cluster.evict("ns", "p", uid="u")
    assert (caught.value.retry_after, caught.value.ambiguous) == (7, False)


def test_a_budget_that_is_still_being_looked_at(script):
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget web is still being processed by the server.",
    }
    body = _status(429, "TooManyRequests", "Cannot evict pod", causes=[cause], retryAfterSeconds=10)
    _, cluster = script(_evicting(429, body))
    expected = port.Blocked(reason=cause["message"], budgets=("web",), retry_after=10.0)
    assert cluster.evict("ns", "p", uid="u") == expected


def test_an_eviction_carries_its_uid_and_content_type(script):
    server, cluster = script(_evicting(201, {"kind": "Status", "metadata": {}, "status": "Success"}))
    assert cluster.evict("ns", "p", uid="u-1", grace_seconds=9, dry_run=True) == port.Evicted()
    method, path, headers, body = server.requests[-1]
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/eviction?dryRun=All")
    assert headers["Content-Type"] == "application/json"
    assert body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "ns", "name": "p"},
        "deleteOptions": {"preconditions": {"uid": "u-1"}, "gracePeriodSeconds": 9},
    }


def test_an_old_server_is_called_with_its_own_api_version(script):
    def answer(request):
        if request.path == "/apis/policy":
            request.reply(200, {"versions": [{"version": "v1beta1"}]})
        elif request.command == "GET":
            request.reply(200, {"metadata": {}, "items": None})
        else:
            request.reply(201, {})

    server, cluster = script(answer)
    cluster.evict("ns", "p", uid="u")
    cluster.evict("ns", "q", uid="u")
    assert cluster.budgets("ns") == []
    assert [body["apiVersion"] for _, _, _, body in server.requests if body] == ["policy/v1beta1"] * 2
    assert server.paths.count("/apis/policy") == 1
    assert server.paths[-1].startswith("/apis/policy/v1beta1/namespaces/ns/poddisruptionbudgets")


def test_the_api_version_of_an_upgraded_server_is_discovered_again(script):
    has = ["v1beta1"]

    def answer(request):
        if request.path == "/apis/policy":
            request.reply(200, {"versions": [{"version": version} for version in has]})
        elif request.path.startswith(f"/apis/policy/{has[0]}/"):
            request.reply(200, {"metadata": {}, "items": [{"metadata": {"name": "all"}, "spec": {"selector": {}}}]})
        else:
            request.reply(404, _status(404, "NotFound", "the server could not find the requested resource"))

    _, cluster = script(answer)
    assert [budget.selects_nothing for budget in cluster.budgets()] == [True]
    has[:] = ["v1"]
    assert [budget.selects_nothing for budget in cluster.budgets()] == [False]


# lists


def _page(names, more=""):
    items = [{**NODE, "metadata": {**NODE["metadata"], "name": name}} for name in names]
    return {"metadata": {"resourceVersion": "9", "continue": more}, "items": items}


def test_a_list_begins_again_when_its_place_is_forgotten(script):
    pages = iter([_page(["a"], "x"), None, _page(["b"], "y"), _page(["c"])])

    def answer(request):
        page = next(pages)
        request.reply(200, page) if page else request.reply(410, _status(410, "Expired", "too old"))

    server, cluster = script(answer)
    assert [node.name for node in cluster.list_nodes().items] == ["b", "c"]
    assert server.paths[1] == f"/api/v1/nodes?limit={list_watch.PAGE_SIZE}&continue=x"


def test_a_list_that_is_always_forgotten_gives_up(script):
    server, cluster = script(lambda request: request.reply(410, _status(410, "Expired", "too old")))
    with pytest.raises(port.Expired):
        cluster.list_nodes()
    assert len(server.requests) == 3


def test_null_where_a_list_or_time_should_be(script):
    event = {
        "metadata": {"name": "e", "labels": None, "annotations": None, "creationTimestamp": None},
        "involvedObject": {},
        "count": None,
        "source": None,
        "eventTime": None,
        "lastTimestamp": None,
    }
    pod = {
        "metadata": {"name": "p", "ownerReferences": None},
        "spec": {"containers": None},
        "status": {"conditions": None},
    }
    node = {"metadata": {"name": "n"}, "spec": {"taints": None}, "status": {"capacity": None, "addresses": None}}

    def answer(request):
        for path, item in (("/api/v1/events", event), ("/api/v1/pods", pod), ("/api/v1/nodes", node)):
            if request.path.startswith(path):
                request.reply(200, {"metadata": {}, "items": [item]})

    _, cluster = script(answer)
    seen = cluster.list_events().items[0]
    assert (seen.count, seen.last_at, seen.annotations, seen.component) == (1, None, {}, "")
    assert cluster.list_pods()[0].name == "p"
    assert cluster.list_nodes().items[0].gpus == 0


# answers that are none


def test_an_answer_that_is_not_json(script):
    def answer(request):
        request.reply(200, NODE if request.command == "GET" else b"<html>hello</html>")

    _, cluster = script(answer)
    with pytest.raises(port.Unavailable) as caught:
        cluster.apply_node("gpu-1", CORDON)
    assert caught.value.ambiguous


def test_an_answer_that_stops_in_the_middle(script):
    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b'{"metadata"')
        request.close_connection = True

    _, cluster = script(answer)
    with pytest.raises(port.Unavailable) as caught:
        cluster.get_node("gpu-1")
    assert not caught.value.ambiguous


def test_a_refused_connection_is_an_unambiguous_failure():
    with servers.refusing_port() as number:
        cluster = live.LiveCluster(http.Connection(over_http.way_in(f"http://127.0.0.1:{number}")))
        with pytest.raises(port.Unavailable) as caught:
            cluster.delete_pod("ns", "p", uid="u")
    assert not caught.value.ambiguous


def test_a_redirect_is_not_followed(script):
    server, cluster = script(lambda request: request.reply(302, b"", Location="http://127.0.0.1:1/"))
    with pytest.raises(port.RefusedByServer):
        cluster.get_node("gpu-1")
    assert len(server.requests) == 1


def test_names_are_escaped(script):
    server, cluster = script(lambda request: request.reply(404, _status(404, "NotFound", "no")))
    with pytest.raises(port.NotFound):
        cluster.get_node("../secrets?x=1")
    assert server.paths == ["/api/v1/nodes/..%2Fsecrets%3Fx%3D1"]


# watches


def test_lines_may_be_cut_anywhere_by_the_chunks(script):
    data = _line("ADDED", NODE) + _line("BOOKMARK", {"metadata": {"resourceVersion": "8"}}) + _line("MODIFIED", NODE)
    server, cluster = script(lambda request: request.chunks(*[data[i : i + 7] for i in range(0, len(data), 7)]))
    events = list(cluster.watch_nodes("4", timeout=33))
    assert [(event.kind, event.resource_version) for event in events] == [
        ("ADDED", "5"),
        ("BOOKMARK", "8"),
        ("MODIFIED", "5"),
    ]
    assert server.paths == [
        "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=33&resourceVersion=4",
    ]


@pytest.mark.parametrize(("code", "error"), [(410, port.Expired), (500, port.Unavailable), (403, port.RefusedByServer)])
def test_an_error_in_the_middle_of_a_watch(script, code, error):
    lines = _line("ADDED", NODE) + _line("ERROR", _status(code, "", "so it is"))
    _, cluster = script(lambda request: request.chunks(lines))
    watch = cluster.watch_nodes("1", timeout=5)
    assert next(watch).kind == "ADDED"
    with pytest.raises(error, match="so it is"):
        next(watch)


NO_PROGRESS = "the required storage feature RequestWatchProgress is disabled"


def test_refused_bookmarks_are_not_requested_again(script):
    def answer(request):
        if "allowWatchBookmarks" in request.path:
            request.chunks(_line("ERROR", _status(500, "InternalError", NO_PROGRESS)))
        else:
            request.chunks(_line("ADDED", NODE))

    server, cluster = script(answer)
    with pytest.raises(port.BookmarksRefused) as caught:
        list(cluster.watch_nodes("4", timeout=5))
    assert isinstance(caught.value, port.Expired), "the caller lists again"
    assert [event.kind for event in cluster.watch_nodes("4", timeout=5)] == ["ADDED"]
    assert ["allowWatchBookmarks" in path for path in server.paths] == [True, False]


def test_a_server_that_refuses_more_than_bookmarks_is_unavailable(script):
    _, cluster = script(lambda request: request.reply(500, _status(500, "InternalError", NO_PROGRESS)))
    with pytest.raises(port.BookmarksRefused):
        list(cluster.watch_nodes("4", timeout=5))
    with pytest.raises(port.Unavailable):
        list(cluster.watch_nodes("4", timeout=5))


def test_another_error_does_not_end_the_bookmarks(script):
    server, cluster = script(lambda request: request.reply(500, _status(500, "InternalError", "etcd timed out")))
    for _ in range(2):
        with pytest.raises(port.Unavailable):
            list(cluster.watch_nodes("4", timeout=5))
    assert ["allowWatchBookmarks" in path for path in server.paths] == [True, True]


def test_a_line_that_is_no_change_of_a_node(script):
    lines = [_line("MODIFIED", {**NODE, "spec": 7})]
    _, cluster = script(lambda request: request.chunks(*lines))
    with pytest.raises(port.Unavailable):
        list(cluster.watch_nodes("1", timeout=5))


@pytest.mark.parametrize("rest", [b"", b'{"type": "ADD'])
def test_a_watch_that_is_cut(script, rest):
    _, cluster = script(lambda request: request.chunks(*filter(None, [_line("ADDED", NODE), rest]), end=False))
    watch = cluster.watch_nodes("1", timeout=5)
    assert next(watch).kind == "ADDED"
    with pytest.raises(port.Unavailable):
        next(watch)


def test_a_silent_watch_is_ended(script, monkeypatch):
    monkeypatch.setattr(list_watch, "WATCH_SLACK_SECONDS", 1.5)
    over = threading.Event()

    def answer(request):
        request.chunks(_line("ADDED", NODE), end=False)
        over.wait(60)

    _, cluster = script(answer)
    watch = cluster.watch_nodes("1", timeout=0.3)
    assert next(watch).kind == "ADDED"
    with pytest.raises(port.Unavailable):
        next(watch)
    over.set()


def test_leaving_a_watch_gives_its_connection_back(script, monkeypatch):
    monkeypatch.setattr(http, "POOL_SIZE", 1)

    def answer(request):
        request.chunks(_line("ADDED", NODE), end=False) if "watch" in request.path else request.reply(200, NODE)

    _, cluster = script(answer)
    for _ in range(3):
        watch = cluster.watch_nodes("1", timeout=5)
        next(watch)
        watch.close()
    assert cluster.get_node("gpu-1").name == "gpu-1"


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_a_name_that_would_change_the_path_is_not_sent(part):
    """An HTTP client resolves ``/namespaces/team/pods/..`` to another object."""
    with pytest.raises(port.RefusedByServer):
        list_watch.path("api", "v1", "namespaces", "team", "pods", part)
