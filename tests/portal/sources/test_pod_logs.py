"""Logs of pods, read by the Kubernetes API: each line once, in rounds in which the namespaces have equal shares."""

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from kcover.sources import pod_log
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import connections, port
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import pod_log_pull
from tests.kube_fake import FakeCluster
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import StandIns
from tests.portal.sources.test_source_settings import Admin

LINE = "RuntimeError: CUDA error: Invalid device ordinal"
SECOND = timedelta(seconds=1)
ROUND = timedelta(seconds=30)


@pytest.fixture
def kube(east: Cluster, now: datetime) -> Iterator[FakeCluster]:
    made = FakeCluster(clock=lambda: now)
    uninstall = connections.install(east.pk, made)
    yield made
    uninstall()


@pytest.fixture
def logs(east: Cluster, now: datetime, kube: FakeCluster) -> Source:
    return add(east, "pod-logs", now=now, name="logs")


def train(kube: FakeCluster, name: str = "train-0", namespace: str = "default", **more: str) -> None:
    kube.add_pod(namespace, name, **{"node": "gpu-1", **more})


def seen() -> list[tuple[str, str, int]]:
    return [(row.kind, row.code, row.count) for row in Incident.objects.order_by("pk")]


def asked(kube: FakeCluster) -> list[str]:
    return [f"{call.namespace}/{call.name}" for call in kube.called("pod_log")]


def test_the_lines_that_konduktor_looks_for(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    train(kube, "failed", phase="Failed")
    train(kube, "done", phase="Succeeded")
    train(kube, "elsewhere", namespace="other")
    kube.write_log("default", "train-0", LINE, at=now - SECOND)
    kube.write_log("default", "train-0", "epoch 3", at=now - SECOND)
    kube.write_log("default", "failed", "nvidia-peermem ERROR detected invalid context, skipping", at=now - SECOND)
    for name, namespace in (("done", "default"), ("elsewhere", "other")):
        kube.write_log(namespace, name, LINE, at=now - SECOND)
    row = pull(logs, at=now)
    assert (row.error, row.accepted, row.due_at) == ({}, 2, now + ROUND)
    assert sorted(seen()) == [("other", "invalid_device_ordinal", 1), ("other", "peermem_invalid_context", 1)]
    kube.calls.clear()
    pull(row, at=now + ROUND)
    assert asked(kube) == ["default/train-0"]  # the failed pod writes no more
    row_of = Incident.objects.get(code="invalid_device_ordinal")
    assert (row_of.node.name, row_of.is_user_fault, row_of.message) == ("gpu-1", True, LINE)


def test_rounds_overlap_and_count_a_line_once(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    kube.write_log("default", "train-0", LINE, at=now)
    row = pull(logs, at=now + SECOND)
    kube.write_log("default", "train-0", LINE, at=now - 20 * SECOND)  # the clock of the node is behind
    kube.write_log("default", "train-0", LINE, at=now + 2 * SECOND)
    for later in (1, 2):
        row = pull(row, at=now + later * ROUND)
    assert seen() == [("other", "invalid_device_ordinal", 3)]
    assert row.accepted == 3


def test_a_container_that_was_started_again_has_two_logs(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    end = {"reason": "Error", "exitCode": 1, "finishedAt": (now - SECOND).strftime("%Y-%m-%dT%H:%M:%SZ")}
    status = {"containerStatuses": [{"name": "main", "lastState": {"terminated": end}}]}
    kube.objects.edit("Pod", "default", "train-0", lambda manifest: manifest["status"].update(status))
    kube.write_log("default", "train-0", LINE, at=now - 2 * SECOND, previous=True)
    row = pull(logs, at=now)
    assert seen() == [("other", "invalid_device_ordinal", 1)]
    row = pull(row, at=now + 10 * ROUND)
    kube.calls.clear()
    pull(row, at=now + 11 * ROUND)  # the run before ended before this round
    assert len(asked(kube)) == 1


def test_namespaces_have_equal_shares(
    east: Cluster, kube: FakeCluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_log_pull, "PODS_PER_TURN", 4)
    for number in range(5):
        train(kube, f"many-{number}", namespace="big")
    train(kube, "one", namespace="small")
    source = add(east, "pod-logs", now=now, pod_namespaces="big,small,empty")
    row = pull(source, at=now)
    assert (asked(kube), row.due_at) == (["big/many-0", "small/one", "big/many-1"], now + SECOND)
    kube.write_log("small", "one", LINE, at=now + SECOND)
    kube.calls.clear()
    row = pull(row, at=now + 2 * SECOND)
    assert (asked(kube), len(seen())) == (["big/many-2", "small/one", "big/many-3"], 1)
    kube.write_log("big", "many-0", LINE, at=now)  # after it was read in this round
    kube.calls.clear()
    row = pull(row, at=now + 3 * SECOND)
    assert (asked(kube), row.due_at) == (["big/many-4", "small/one"], now + 3 * SECOND + ROUND)
    row = pull(row, at=now + ROUND)
    assert seen() == [("other", "invalid_device_ordinal", 2)]


def test_the_position_has_a_bound_that_the_namespaces_share(
    east: Cluster, kube: FakeCluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_log_pull, "MAX_KNOWN_OF_SOURCE", 4)
    Node.objects.filter(name="gpu-2").update(ready=False)
    for number in range(4):
        train(kube, f"silent-{number}", node="gpu-2")
        train(kube, f"failed-{number}", phase="Failed")
    train(kube, "endless", phase="Failed")
    kube.objects.edit("Pod", "default", "endless", lambda manifest: manifest["metadata"].update(uid="x" * 65))
    row = pull(add(east, "pod-logs", now=now, pod_namespaces="default,small"), at=now)
    known = row.cursor["default"]
    assert (len(known["unread"]), len(known["ended"]), len(asked(kube))) == (2, 2, 4)


def test_a_log_that_grows_too_fast_is_read_for_a_while_and_then_left_out(
    logs: Source, kube: FakeCluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_log_pull, "BYTES", 2_000)
    monkeypatch.setattr(pod_log_pull, "CUT_FROM", 1_900)
    train(kube)
    for number in range(100):
        kube.write_log("default", "train-0", "x" * 700, at=now - 60 * SECOND + number * SECOND / 2)
    kube.write_log("default", "train-0", LINE, at=now - 5 * SECOND)
    row = pull(logs, at=now)
    assert (seen(), len(row.cursor["default"]["unread"]), row.error) == ([], 1, {})
    turns = 0
    while not seen():
        turns += 1
        row = pull(row, at=now + turns * SECOND)
        assert turns < 20
    for number in range(3_000):
        kube.write_log("default", "train-0", "y" * 700, at=now + number * SECOND / 2)
    row = pull(row, at=now + timedelta(minutes=30))
    row = pull(row, at=now + timedelta(minutes=31))
    assert row.error["code"] == "pod_log_left_out"
    assert row.cursor["default"]["unread"] == {}


def test_lines_of_one_second_beyond_one_response_are_an_error(
    logs: Source, kube: FakeCluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(kube)
    for number in range(300):
        kube.write_log("default", "train-0", f"{number} {LINE}", at=now - 2 * SECOND)
    kube.write_log("default", "train-0", LINE, at=now)
    row = pull(logs, at=now)
    assert seen() == [("other", "invalid_device_ordinal", pod_log.MAX_FAULTS + 1)]
    assert (row.error["code"], row.rejected) == ("pod_log_left_out", 1)
    assert pull(row, at=now + ROUND).rejected == 1


def test_logs_of_a_silent_node_are_read_once_it_answers(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    train(kube, "other", node="gpu-2")
    Node.objects.filter(name="gpu-1").update(ready=False)
    kube.fail("pod_log", port.Unavailable("dial tcp: i/o timeout"), name="other")
    kube.write_log("default", "train-0", LINE, at=now)
    kube.write_log("default", "other", LINE, at=now)
    row = pull(logs, at=now + SECOND)
    assert (asked(kube), row.error["code"], row.attempts) == (["default/other"], "source_logs_unread", 0)
    row = pull(row, at=now + timedelta(minutes=20))
    assert (len(seen()), row.error) == (1, {})
    Node.objects.update(ready=True)
    row = pull(row, at=now + timedelta(minutes=21))
    assert len(seen()) == 2


def test_a_namespace_that_may_not_be_read_stops_no_other(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    source = add(east, "pod-logs", now=now, pod_namespaces="closed,open")
    for name in ("a", "b"):
        train(kube, name, namespace="closed")
    train(kube, "c", namespace="open")
    kube.write_log("open", "c", LINE, at=now)
    kube.write_log("closed", "a", LINE, at=now)
    for name in ("a", "b"):
        kube.fail("pod_log", port.RefusedByServer("pods/log is forbidden"), name=name)
    row = pull(source, at=now)
    assert (len(seen()), row.attempts, row.due_at) == (1, 0, now + ROUND)
    assert (row.error["code"], row.error["params"]["first"]) == ("source_logs_unread", "closed")
    row = pull(row, at=now + ROUND)
    assert (row.error, seen()[0][2]) == ({}, 2)


def test_a_silent_api_server_is_called_less_and_less_often(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    kube.fail("list_pods", port.Unavailable("503", retry_after=90.0))
    assert pull(logs, at=now).due_at == now + 90 * SECOND
    kube.fail("pod_log", port.RefusedByServer("forbidden"), times=2)
    waits = [(pull(logs, at=now).due_at - now).total_seconds() for _ in range(2)]
    assert waits == [4, 8]
    row = pull(logs, at=now)
    assert (row.error, row.attempts) == ({}, 0)


class WorkerDied(BaseException):
    """The process has ended."""


def test_a_worker_that_dies_loses_and_repeats_no_line(
    logs: Source, kube: FakeCluster, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_log_pull, "PODS_PER_WRITE", 1)
    for name in ("train-0", "train-1", "train-2"):
        train(kube, name)
        kube.write_log("default", name, LINE, at=now)
    kube.fail("pod_log", WorkerDied(), name="train-1")  # type: ignore[arg-type]
    with pytest.raises(WorkerDied):
        pull(logs, at=now + SECOND)
    assert seen() == [("other", "invalid_device_ordinal", 1)]
    kube.calls.clear()
    row = pull(logs, at=now + 2 * SECOND)
    assert (asked(kube), row.accepted) == (["default/train-1", "default/train-2"], 3)
    assert pull(row, at=now + ROUND).accepted == 3


def test_a_deleted_pod_is_skipped(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    train(kube, "other")
    kube.fail("pod_log", port.NotFound("pods not found"), name="train-0")
    kube.write_log("default", "other", LINE, at=now)
    row = pull(logs, at=now)
    assert (row.error, len(seen())) == ({}, 1)


def test_a_broken_line_does_not_cost_the_others(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    for line in (f"{LINE}\0", LINE + "x" * 70_000, LINE):
        kube.write_log("default", "train-0", line, at=now)
    row = pull(logs, at=now)
    assert (row.accepted, row.rejected) == (1, 2)
    row = pull(row, at=now + ROUND)
    assert row.rejected == 2
    kube.write_log("default", "train-0", LINE, at=now + timedelta(days=1))
    row = pull(row, at=now + 2 * ROUND)
    assert (row.rejected, row.error["code"]) == (3, "source_clock_ahead")


def test_a_slow_cluster_keeps_its_worker_for_a_bounded_time(logs: Source, kube: FakeCluster, now: datetime) -> None:
    for number in range(40):
        train(kube, f"train-{number:02}")
    slow = (now + number * 8 * SECOND for number in itertools.count())
    Source.objects.filter(pk=logs.pk).update(due_at=None)
    services.pull(logs.pk, clock=lambda: next(slow))
    assert len(asked(kube)) < 10
    logs.refresh_from_db()
    assert logs.due_at - logs.last_contact_at == SECOND
    for minutes in (60, 61):  # the rest of the round, then those whose requests had no time left
        pull(logs, at=now + timedelta(minutes=minutes))
    assert set(asked(kube)) == {f"default/train-{number:02}" for number in range(40)}


def test_a_line_that_loki_has_too_is_one_fault(
    logs: Source, kube: FakeCluster, east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    train(kube)
    kube.write_log("default", "train-0", LINE, at=now)
    labels = {"k8s_namespace_name": "default", "k8s_pod_name": "train-0", "k8s_node_name": "gpu-1"}
    stand_ins.logs.add(labels, LINE, at=now)
    for source in (logs, add(east, "loki", now=now, url=stand_ins.url)):
        pull(source, at=now + SECOND)
    incident = Incident.objects.get()
    assert [one.source for one in incidents.witnesses([incident.pk])[incident.pk]] == ["logs", "loki"]


def test_a_test_reads_the_last_hour_and_stores_no_fault(logs: Source, kube: FakeCluster, now: datetime) -> None:
    train(kube)
    kube.write_log("default", "train-0", LINE, at=now - timedelta(minutes=50))
    kube.write_log("default", "train-0", LINE, at=now - timedelta(minutes=70))
    trial = services.try_source(logs, now=now)
    assert (trial.ok, trial.seen, seen()) == (True, 1, [])
    kube.fail("pod_log", port.RefusedByServer("forbidden"))
    trial = services.try_source(logs, now=now)
    assert (trial.ok, trial.error.code) == (False, "cluster_rejected")


def test_an_admin_adds_one_on_the_page_and_over_rest(east: Cluster, kube: FakeCluster, now: datetime) -> None:
    admin = Admin("admin", east, now)
    assert set(admin.client.get("/sources/new/pod-logs/").context["form"].fields) == {"name", "cluster", "settings"}
    form = {"name": "ours", "cluster": "east", "settings": "pod_namespaces=ml,dev\nlateness=5"}
    assert admin.client.post("/sources/new/pod-logs/", form).status_code == 302
    assert Source.objects.get(name="ours").settings == {"pod_namespaces": ["ml", "dev"], "lateness": 5}
    body = {"name": "theirs", "kind": "pod-logs", "cluster": "east", "settings": {"pod_patterns": ["NCCL timeout"]}}
    assert admin.call("post", "", body).status_code == 201
    assert admin.call("post", "", {**body, "name": "x", "settings": {"stream": "{}"}}).status_code == 400
    assert admin.call("post", "/theirs/test").json()["ok"] is True
    assert "theirs" in admin.client.get("/sources/").content.decode()


def test_a_pod_log_source_has_neither_address_nor_token(east: Cluster, now: datetime) -> None:
    for given, field in (({"url": "http://x"}, "url"), ({"token": "x"}, "token")):
        with pytest.raises(FieldError) as refused:
            add(east, "pod-logs", now=now, **given)
        assert refused.value.field == field
    assert not Source.objects.exists()
