"""The watch of one cluster: batches reach the rows and the engine, and a server without bookmarks is watched too."""

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.faults.fault import Fault
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import connections, http, live, port
from kcover_portal.operate import event_batches, watcher
from tests.contract import over_http, scripted
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db

MODIFIED = {"kind": "Node", "metadata": {"name": NODE, "uid": "u"}, "spec": {"unschedulable": True}, "status": {}}
NO_PROGRESS = (
    "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(watcher, "STREAM_SECONDS", 0)  # the stream ends once it has shown what happened
    made = World()
    yield made
    made.uninstall()


class StopsAtWait(threading.Event):
    """A watch that waits before it tries again is stopped."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


def watch(world: World) -> watcher.ClusterWatch:
    return watcher.ClusterWatch(world.cluster, clock=world.clock, stop=threading.Event())


def statements(work: Callable[[], object]) -> int:
    with CaptureQueriesContext(connection) as captured:
        work()
    return len([query for query in captured.captured_queries if "SAVEPOINT" not in query["sql"]])


def waiting_rescue(world: World) -> None:
    """A rescue that waits for a pod to leave its node, as the watch has shown it."""
    world.kube.add_pod("train", "worker", node=NODE, owner_kind="ReplicaSet")
    world.fault(62)
    world.work()
    world.sync()
    assert world.rescue().state == "waiting"


def test_as_many_statements_for_150_cordons_as_for_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_batches, "QUIET_SECONDS", 0.2)  # one batch on a busy machine too
    monkeypatch.setattr(event_batches, "GATHER_SECONDS", 5.0)
    for index in range(10, 160):
        world.kube.add_node(f"gpu-{index}")
    following = watch(world)
    version = following.list()
    world.kube.cordon("gpu-10")
    alone = statements(lambda: following.stream(version))
    version = world.kube.list_nodes().resource_version
    for index in range(11, 160):
        world.kube.cordon(f"gpu-{index}")
    assert statements(lambda: following.stream(version)) <= alone + 1 < 10  # several rows are locked in order first
    assert Node.objects.filter(unschedulable=True).count() == 150


def test_the_list_never_waits_for_the_cluster_with_new_nodes_in_hand(world: World) -> None:
    """An enrolment locks the cluster's row first and then inserts a node: each would wait for the other."""
    world.kube.add_node("gpu-10")
    with CaptureQueriesContext(connection) as captured:
        watch(world).list()
    told = [query["sql"] for query in captured.captured_queries]
    inserted = max(at for at, sql in enumerate(told) if sql.startswith("INSERT INTO fleet_node"))
    noted = min(at for at, sql in enumerate(told) if sql.startswith('UPDATE "fleet_cluster"'))
    opened = [sql.startswith("SAVEPOINT") - sql.startswith("RELEASE") for sql in told]
    assert sum(opened[:inserted]) > 0
    assert inserted < noted
    assert sum(opened[:noted]) == 0


def test_the_stream_returns_the_version_to_continue_from(world: World) -> None:
    following = watch(world)
    version = following.list()
    world.kube.cordon(NODE)
    version = following.stream(version)
    assert version == world.kube.list_nodes().resource_version
    assert statements(lambda: following.stream(version)) <= 2  # ``note_watch`` alone


def test_contact_is_noted_every_few_seconds_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    following = watch(world)
    version = following.list()
    noted: list[datetime] = []
    monkeypatch.setattr(watcher.services, "note_watch", lambda _cluster, *, now: noted.append(now))
    for _ in range(3):
        world.kube.cordon(NODE)
        world.kube.uncordon(NODE)
        version = following.stream(version)
    assert len(noted) == 3  # at the end of each stream
    world.now += timedelta(seconds=6)
    world.kube.cordon(NODE)
    following.stream(version)
    assert len(noted) == 5


def test_a_change_wakes_the_waiting_rescue_at_once(world: World) -> None:
    waiting_rescue(world)
    following = watch(world)
    version = following.list()
    assert world.rescue().state == "waiting"
    world.kube.set_ready(NODE, False)
    following.stream(version)
    assert (world.rescue().state, world.rescue().due_at) == ("running", world.now)


def test_a_deleted_node_waits_for_the_next_check(world: World) -> None:
    waiting_rescue(world)
    following = watch(world)
    version = following.list()
    world.kube.delete_node(NODE)
    version = following.stream(version)
    assert (world.node().in_cluster, world.rescue().state) == (False, "waiting")
    world.kube.add_node(NODE)
    following.stream(version)
    assert (world.node().in_cluster, world.rescue().state) == (True, "running")


def test_a_node_that_joins_has_its_faults_decided(world: World) -> None:
    following = watch(world)
    version = following.list()
    world.report(Fault(kind="xid", code=62, pci="0000:4e:00"), node="late", boot_id="boot-1")
    world.work()
    assert Incident.objects.get().decide_at is None
    world.kube.add_node("late", boot_id="boot-1")
    following.stream(version)
    assert Incident.objects.get().decide_at == world.now


def test_events_before_an_error_are_kept(world: World) -> None:
    following = watch(world)
    version = following.list()

    def broken(_version: str, *, timeout: float) -> Iterator[port.NodeEvent]:
        world.kube.cordon(NODE)
        yield port.NodeEvent(kind="MODIFIED", node=world.kube.get_node(NODE), resource_version="9")
        raise port.Unavailable("cut")

    world.kube.watch_nodes = broken
    with pytest.raises(port.Unavailable):
        following.stream(version)
    assert world.node().unschedulable


def refused_in_stream(request: scripted.Handler) -> None:
    status = {"kind": "Status", "code": 500, "reason": "InternalError", "message": NO_PROGRESS}
    request.chunks(line("ERROR", status))


def refused_with_500(request: scripted.Handler) -> None:
    request.reply(500, {"kind": "Status", "code": 500, "reason": "InternalError", "message": NO_PROGRESS})


def refused_with_400(request: scripted.Handler) -> None:
    request.reply(400, b"unknown parameter allowWatchBookmarks")


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


@pytest.mark.django_db(transaction=True)  # ``run`` closes connections
@pytest.mark.parametrize("refuse", [refused_in_stream, refused_with_500, refused_with_400])
def test_a_server_that_refuses_bookmarks_is_watched_without(
    now: datetime, refuse: Callable[[scripted.Handler], None], caplog: pytest.LogCaptureFixture
) -> None:
    east = Cluster.objects.create(name="east", created_at=now, kubeconfig="fake")
    stop = threading.Event()
    listed, watched = [], []

    def answer(request: scripted.Handler) -> None:
        if "watch=1" in request.path:
            watched.append("allowWatchBookmarks" in request.path)
            if watched[-1]:
                refuse(request)
            elif watched.count(False) == 1:
                request.chunks(line("MODIFIED", MODIFIED))
            else:
                stop.set()
                request.chunks()
        elif request.path == "/version":
            request.reply(200, {"gitVersion": "v1.36.0"})
        else:
            listed.append(request.path)
            if len(listed) > 2:
                stop.set()  # it does not work: do not go on for ever
            request.reply(200, {"metadata": {"resourceVersion": str(len(listed))}, "items": []})

    with scripted.serve(answer) as server:
        client = live.LiveCluster(http.Connection(over_http.way_in(server.url), read_seconds=5.0))
        uninstall = connections.install(east.pk, client)
        watcher.ClusterWatch(east, clock=lambda: now, stop=stop).run()
        uninstall()
    assert watched == [True, False, False]
    assert len(listed) == 2
    assert Node.objects.get().unschedulable
    east.refresh_from_db()
    assert (east.watch_error, east.watched_at) == ({}, now)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_server_is_still_shown(now: datetime) -> None:
    east = Cluster.objects.create(name="east", created_at=now, kubeconfig="fake")
    kube = FakeCluster()
    kube.fail("watch_nodes", port.Unavailable("watch /api/v1/nodes: 500 InternalError: etcdserver: request timed out"))
    uninstall = connections.install(east.pk, kube)
    watcher.ClusterWatch(east, clock=lambda: now, stop=StopsAtWait()).run()
    uninstall()
    east.refresh_from_db()
    assert east.watch_error["code"] == "cluster_unavailable"


@pytest.mark.django_db(transaction=True)
def test_an_unexpected_error_does_not_end_the_watch(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    east = Cluster.objects.create(name="east", created_at=now, kubeconfig="fake")
    stop = StopsAtWait()

    def broken(*_: object, **__: object) -> None:
        raise KeyError("unexpected\0")

    monkeypatch.setattr(node_rows, "sync_list", broken)
    uninstall = connections.install(east.pk, FakeCluster())
    watcher.ClusterWatch(east, clock=lambda: now, stop=stop).run()
    uninstall()
    east.refresh_from_db()
    assert east.watch_failure == reasons.of("watch_failed", error="'unexpected\\x00'")
    assert stop.is_set()  # it waited before the next try


def test_a_change_is_seen_again_if_the_engine_could_not_be_woken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting_rescue(world)
    following = watch(world)
    version = following.list()
    world.kube.set_ready(NODE, False)

    def broken(*_: object, **__: object) -> None:
        raise DatabaseError

    with monkeypatch.context() as patched:
        patched.setattr(watcher.rescue, "nudge_changed", broken)
        with pytest.raises(DatabaseError):
            following.stream(version)
        with pytest.raises(DatabaseError):
            following.list()
    assert (world.node().ready, world.rescue().state) == (True, "waiting")
    following.list()
    assert (world.node().ready, world.rescue().state) == (False, "running")


def test_pods_are_listed_after_the_nodes_were(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nodes(watcher.ClusterWatch):
        def run(self) -> None:
            self._stop.wait()

    class Pods(Nodes):
        pass

    monkeypatch.setattr(watcher, "FOLLOWERS", {watcher.NODES: Nodes, watcher.PODS: Pods})
    watch = watcher.Watch(clock=world.clock, stop=threading.Event())
    for _ in range(2):
        watch._follow([world.cluster])
    ((_, running),) = watch._threads.items()
    running.follower.tried = True
    watch._follow([world.cluster])
    assert {name for _, name in watch._threads} == {watcher.NODES, watcher.PODS}
    watch._follow([])


@pytest.mark.django_db(transaction=True)  # the watch closes connections that are in a transaction
@pytest.mark.parametrize("fails", [False, True])
def test_a_failed_node_list_does_not_stop_the_pod_watch(world: World, fails: bool) -> None:
    following = watcher.ClusterWatch(world.cluster, clock=world.clock, stop=StopsAtWait())

    def ended(*_: object, **__: object) -> Any:
        following._stop.set()
        raise port.Unavailable("away")

    setattr(world.kube, "list_nodes" if fails else "watch_nodes", ended)
    following.run()
    assert following.tried
