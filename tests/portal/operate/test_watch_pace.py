"""Servers that end each watch at once, or call each version too old: asked with a pause, and seen by people."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import connections, live, port
from kcover_portal.operate import watch_pace, watcher
from tests.contract.scripted import Scripted
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db(transaction=True)  # the watch closes connections that are in a transaction
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
BOOKMARK = {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "1"}}}
GAMES: dict[str, tuple[int, Any]] = {
    "ends at once": (200, b""),
    "ends at once with a bookmark": (200, json.dumps(BOOKMARK).encode() + b"\n"),
    "410": (410, GONE),
    "410 as a line": (200, json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"),
}


class Waits:
    """Ends the loop at its third pause."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def is_set(self) -> bool:
        return len(self.seconds) == 3

    def wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def cluster() -> Cluster:
    made = World()
    made.uninstall()
    return made.cluster


@pytest.mark.parametrize("game", GAMES)
def test_a_watch_that_never_lasts_is_a_failure(cluster: Cluster, game: str) -> None:
    """The portal asked 200 times a second, or listed once for ever: it never saw an exclusion, and said all is well."""
    asked = {"list": 0, "watch": 0}

    def answer(request: Any) -> None:
        if "watch=1" in request.path:
            asked["watch"] += 1
            return request.reply(*GAMES[game])
        if request.path.startswith("/version"):
            return request.reply(200, {"gitVersion": "v1.30"})
        asked["list"] += 1
        labels = {"kcover.io/exclude": "true"} if asked["list"] > 1 else {}
        meta = {"name": "gpu-1", "uid": "u", "resourceVersion": "5", "labels": labels}
        node = {"kind": "Node", "metadata": meta, "spec": {}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
        return request.reply(200, {"metadata": {"resourceVersion": "5"}, "items": [node]})

    server, waits = Scripted(answer), Waits()
    undo = connections.install(cluster.pk, live.from_kubeconfig(KUBECONFIG.format(url=server.url), context=None))
    try:
        watcher.ClusterWatch(cluster, clock=lambda: datetime.now(UTC), stop=waits).run()  # type: ignore[arg-type]
    finally:
        undo()
        server.close()
    assert waits.seconds == [1.0, 2.0, 5.0]
    assert asked["list"] >= 3
    assert asked["watch"] <= 5
    cluster.refresh_from_db()
    assert cluster.watch_error["code"] == "cluster_unavailable"
    assert Node.objects.get(name="gpu-1").labels == {"kcover.io/exclude": "true"}


def test_a_watch_without_a_new_version_is_listed_again() -> None:
    now = [0.0]
    pace = watch_pace.Pace(elapsed=lambda: now[0])

    def follow(version: str) -> str:
        now[0] += 50
        return version

    versions = [pace.stream(follow, "5") for _ in range(13)]
    assert versions == ["5"] * 12 + [""]
    assert pace.stream(follow, "6") == "6"


def test_a_server_that_restarts_is_no_failure() -> None:
    now = [0.0]
    pace = watch_pace.Pace(elapsed=lambda: now[0])

    def lasting(version: str) -> str:
        now[0] += 50
        return "7"

    assert [pace.stream(follow, "5") for follow in (str, str, lasting, str, str)] == ["5", "5", "7", "5", "5"]
    with pytest.raises(port.Unavailable):
        pace.stream(str, "5")
