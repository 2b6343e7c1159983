"""The rows of nodes follow batches of watch events and lists, with few statements and no needless write."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DataError, connection
from django.test.utils import CaptureQueriesContext

from kcover.decisions.boots import Boot
from kcover.nodes import marks
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.fleet.queries.boots import boots_of
from kcover_portal.fleet.services import node_rows
from kcover_portal.kube import port

pytestmark = pytest.mark.django_db

GPU_1 = port.Node(name="gpu-1", uid="u1", labels={"pool": "a"}, boot_id="boot-1", gpus=8, conditions={"Ready": "True"})


@pytest.fixture
def east(db: None, now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


@pytest.fixture
def later(now: datetime) -> datetime:
    return now + timedelta(seconds=1)


def event(node: port.Node, kind: str = "MODIFIED") -> port.NodeEvent:
    return port.NodeEvent(kind=kind, node=node, resource_version="5")


def follow(east: Cluster, *events: port.NodeEvent, now: datetime) -> list[node_rows.ChangedNode]:
    return node_rows.sync_events(east, events, now=now)


def the_row(name: str = "gpu-1") -> Node:
    return Node.objects.get(name=name)


def writes(captured: CaptureQueriesContext) -> list[str]:
    return [query["sql"] for query in captured.captured_queries if query["sql"].startswith(("INSERT", "UPDATE"))]


def statements(captured: CaptureQueriesContext) -> int:
    return len([query for query in captured.captured_queries if "SAVEPOINT" not in query["sql"]])


def test_all_columns_are_stored_and_read_back(east: Cluster, now: datetime, later: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    full = replace(
        GPU_1,
        uid="u2",
        labels={"pool": "b", "nvidia.com/gpu.product": "H100", "name": 'Zoë "\\'},
        annotations={marks.ANNOTATION: marks.Marks(rescue=7, cordon=True).render()},
        taints=(port.Taint("gpu", "broken", "NoSchedule"), port.Taint("kcover.io/not-ready", "", "NoSchedule")),
        conditions={"Ready": "False", "DiskPressure": "True"},
        unschedulable=True,
        ready=False,
        ready_since=now,
        boot_id="boot-2",
        gpus=4,
        unallocatable=1,
        runtime="containerd",
        kubelet="v1.36.0",
        internal_ip="10.0.0.7",
        addresses=("10.0.0.7", "fd00::7"),
        system_uuid="4c4c4544-0044-4a10-8058-b7c04f4e3533",
        provider_id="aws:///i-1",
    )
    east.watched_at = now
    east.save()
    [change] = follow(east, event(full), now=later)
    row = the_row()
    assert {column: getattr(row, column) for column in [*node_rows.REQUIRED, *node_rows.NULLABLE]} == {
        "uid": "u2",
        "in_cluster": True,
        "pool": "b",
        "model": "H100",
        "labels": full.labels,
        "taints": [
            {"key": "gpu", "value": "broken", "effect": "NoSchedule"},
            {"key": "kcover.io/not-ready", "value": "", "effect": "NoSchedule"},
        ],
        "not_ready_since": later,
        "system_uuid": full.system_uuid,
        "provider_id": full.provider_id,
        "restated": {},
        "machine_since": later,
        "machine_after": now,
        "conditions": full.conditions,
        "marks": marks.Marks(rescue=7, cordon=True).to_json(),
        "unschedulable": True,
        "ready": False,
        "ready_since": now,
        "unready_since": later,
        "boot_id": "boot-2",
        "past_boots": ["boot-1"],
        "boot_times": {"boot-2": later.isoformat()},
        "addresses": ["10.0.0.7", "fd00::7"],
        "gpus": 4,
        "unallocatable": 1,
        "unallocatable_since": later,
        "runtime": "containerd",
        "kubelet": "v1.36.0",
        "address": "10.0.0.7",
        "gone_at": None,
    }
    assert (row.created_at, row.synced_at) == (now, later)
    assert (change.node, change.before["labels"], change.before["gpus"]) == (row, {"pool": "a"}, 8)
    assert change.node.labels == full.labels


def test_an_update_leaves_the_columns_of_others_alone(east: Cluster, now: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    Node.objects.update(driver="580.1", locked_by="a check", locked_until=now)
    follow(east, event(replace(GPU_1, unschedulable=True, ready_since=now)), now=now)
    follow(east, event(replace(GPU_1, unschedulable=True)), now=now)
    row = the_row()
    assert (row.driver, row.locked_by, row.locked_until) == ("580.1", "a check", now)
    assert (row.unschedulable, row.ready_since, row.labels, row.gpus) == (True, None, {"pool": "a"}, 8)


def test_a_heartbeat_writes_no_row(east: Cluster, now: datetime, later: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    with CaptureQueriesContext(connection) as captured:
        assert follow(east, event(replace(GPU_1, resource_version="9")), now=later) == []
    assert (statements(captured), writes(captured)) == (1, [])
    assert the_row().synced_at == now


def test_a_bookmark_runs_no_query(east: Cluster, now: datetime) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert follow(east, port.NodeEvent(kind="BOOKMARK", node=None, resource_version="9"), now=now) == []
    assert statements(captured) == 0


@pytest.mark.parametrize("count", [1, 150])
def test_a_batch_takes_as_many_statements_as_one_change(east: Cluster, now: datetime, count: int) -> None:
    nodes = [replace(GPU_1, name=f"gpu-{index}", uid=f"u{index}") for index in range(count)]
    follow(east, *(event(node, "ADDED") for node in nodes), now=now)
    with CaptureQueriesContext(connection) as captured:
        changed = follow(east, *(event(replace(node, unschedulable=True)) for node in nodes), now=now)
    assert len(changed) == Node.objects.filter(unschedulable=True).count() == count
    assert statements(captured) <= 3  # several rows are locked in order first
    assert len(writes(captured)) == 1


def test_only_rows_that_differ_are_written(east: Cluster, now: datetime, later: datetime) -> None:
    gpu_2 = replace(GPU_1, name="gpu-2", uid="u2")
    follow(east, event(GPU_1, "ADDED"), event(gpu_2, "ADDED"), now=now)
    changed = follow(east, event(GPU_1), event(replace(gpu_2, ready=False)), now=later)
    assert [change.node.name for change in changed] == ["gpu-2"]
    assert [row.synced_at for row in Node.objects.order_by("name")] == [now, later]


def test_the_last_event_of_a_node_counts(east: Cluster, now: datetime) -> None:
    events = [event(GPU_1, "ADDED"), event(replace(GPU_1, gpus=0)), event(replace(GPU_1, gpus=4))]
    changed = follow(east, *events, now=now)
    assert [(change.node.gpus, change.new) for change in changed] == [(4, True)]
    assert the_row().gpus == 4


def test_inv_15_boots_that_came_and_went_within_a_batch_are_known(east: Cluster, now: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    boots = [event(replace(GPU_1, boot_id=boot)) for boot in ("boot-2", "", "boot-3", "boot-3", "boot-4")]
    follow(east, *boots, now=now)
    assert (the_row().boot_id, the_row().past_boots) == ("boot-4", ["boot-3", "boot-2", "boot-1"])


def test_inv_15_a_boot_is_known_where_the_node_looks_as_before(east: Cluster, now: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    [change] = follow(east, event(replace(GPU_1, boot_id="boot-2")), event(GPU_1), now=now)
    assert (the_row().boot_id, the_row().past_boots) == ("boot-1", ["boot-2"])
    assert change.before == {"past_boots": [], "boot_times": {}}


def test_a_boot_after_another_one_has_the_time_when_it_was_first_shown(
    east: Cluster, now: datetime, later: datetime
) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    assert boots_of(the_row()).boots == (Boot("boot-1"),)  # it began before anybody looked
    follow(east, event(replace(GPU_1, boot_id="boot-2")), now=later)
    follow(east, event(replace(GPU_1, boot_id="boot-2", gpus=4)), now=later + timedelta(hours=1))
    assert boots_of(the_row()).boots == (Boot("boot-2", later), Boot("boot-1"))


@pytest.mark.parametrize(
    ("boot", "found"),
    [("boot-2", (("boot-2", 20), ("boot-1", None))), ("boot-3", (("boot-3", 20), ("boot-2", 60), ("boot-1", None)))],
    ids=["that the watch shows later", "that the watch does not show yet"],
)
def test_an_agent_may_show_a_boot_first(
    east: Cluster, now: datetime, boot: str, found: tuple[tuple[str, int | None], ...]
) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    follow(east, event(replace(GPU_1, boot_id="boot-2")), now=now + timedelta(seconds=60))
    at = now + timedelta(seconds=20)
    Agent.objects.create(node=the_row(), boot_id=boot, boot_seen_at=at, seen_at=at)
    times = [(one.id, one.since and round((one.since - now).total_seconds())) for one in boots_of(the_row()).boots]
    assert tuple(times) == found


def test_the_boots_of_a_new_node_are_known(east: Cluster, now: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), event(replace(GPU_1, boot_id="boot-2")), now=now)
    assert (the_row().boot_id, the_row().past_boots) == ("boot-2", ["boot-1"])


def test_a_batch_takes_as_many_past_boots_as_single_events(east: Cluster, now: datetime) -> None:
    boots = [event(replace(GPU_1, boot_id=f"boot-{index}")) for index in range(12)]
    follow(east, *boots, now=now)
    west = Cluster.objects.create(name="west", created_at=now)
    for boot in boots:
        follow(west, boot, now=now)
    rows = [Node.objects.get(cluster=cluster) for cluster in (east, west)]
    assert rows[0].past_boots == rows[1].past_boots == [f"boot-{index}" for index in range(10, 2, -1)]


def test_a_deleted_node_is_kept_as_gone(east: Cluster, now: datetime, later: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    changed = follow(east, event(replace(GPU_1, gpus=4)), event(GPU_1, "DELETED"), now=later)
    row = the_row()
    assert (row.in_cluster, row.ready, row.gone_at, row.gpus) == (False, False, later, 4)
    assert [(change.node.in_cluster, change.new) for change in changed] == [(False, False)]
    assert follow(east, event(GPU_1, "DELETED"), now=later + timedelta(seconds=9)) == []
    assert the_row().gone_at == later


def test_a_node_that_came_back_counts_as_new(east: Cluster, now: datetime, later: datetime) -> None:
    follow(east, event(GPU_1, "ADDED"), now=now)
    [change] = follow(east, event(GPU_1, "DELETED"), event(GPU_1, "ADDED"), now=later)
    assert (change.new, change.before) == (True, {"in_cluster": False})
    assert (the_row().in_cluster, the_row().gone_at) == (True, None)
    follow(east, event(GPU_1, "DELETED"), now=later)
    [change] = follow(east, event(replace(GPU_1, uid="u2"), "ADDED"), now=later)
    assert change.new
    assert (the_row().uid, the_row().in_cluster, the_row().ready, the_row().gone_at) == ("u2", True, True, None)


def test_a_node_that_was_never_known_and_is_gone(east: Cluster, now: datetime) -> None:
    assert follow(east, event(GPU_1, "DELETED"), now=now) == []
    assert not Node.objects.exists()
    [change] = follow(east, event(GPU_1, "ADDED"), event(GPU_1, "DELETED"), now=now)
    assert not change.new
    assert (the_row().in_cluster, the_row().gone_at, the_row().boot_id) == (False, now, "boot-1")


def test_late_gpus_count_as_a_new_node_and_a_cordon_does_not(east: Cluster, now: datetime) -> None:
    follow(east, event(replace(GPU_1, gpus=0), "ADDED"), now=now)
    assert [change.new for change in follow(east, event(GPU_1), now=now)] == [True]
    assert [change.new for change in follow(east, event(replace(GPU_1, unschedulable=True)), now=now)] == [False]


def test_a_row_that_an_agent_made_is_taken_over(east: Cluster, now: datetime, later: datetime) -> None:
    made = Node.objects.create(cluster=east, name="gpu-1", created_at=now)
    [change] = node_rows.sync_list(east, [GPU_1], now=later)
    assert (change.node.pk, change.new, the_row().in_cluster, the_row().created_at) == (made.pk, True, True, now)


def test_a_list_adds_changes_and_removes(east: Cluster, now: datetime, later: datetime) -> None:
    nodes = [replace(GPU_1, name=f"gpu-{index}", uid=f"u{index}") for index in range(4)]
    agent_only = Node.objects.create(cluster=east, name="agent-only", created_at=now)
    other = Node.objects.create(
        cluster=Cluster.objects.create(name="west", created_at=now), name="gpu-9", created_at=now, in_cluster=True
    )
    node_rows.sync_list(east, nodes[:3], now=now)
    with CaptureQueriesContext(connection) as captured:
        changed = node_rows.sync_list(east, [nodes[0], replace(nodes[1], ready=False), nodes[3]], now=later)
    assert {(change.node.name, change.node.in_cluster, change.new) for change in changed} == {
        ("gpu-1", True, False),
        ("gpu-2", False, False),
        ("gpu-3", True, True),
    }
    assert len(writes(captured)) == 2
    assert Node.objects.get(name="gpu-2").gone_at == later
    assert list(Node.objects.filter(in_cluster=True, cluster=east).values_list("name", flat=True)) == [
        "gpu-0",
        "gpu-1",
        "gpu-3",
    ]
    agent_only.refresh_from_db()
    other.refresh_from_db()
    assert (agent_only.gone_at, other.in_cluster) == (None, True)
    assert node_rows.sync_list(east, [nodes[0], replace(nodes[1], ready=False), nodes[3]], now=later) == []


@pytest.mark.parametrize(("count", "signals"), [(20, 20), (21, 1)])
def test_pages_get_one_signal_for_many_nodes(
    east: Cluster, now: datetime, count: int, signals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[int] = []
    monkeypatch.setattr(node_rows.doorbell, "publish", lambda topic, record, **more: published.append(record))
    nodes = [replace(GPU_1, name=f"gpu-{index}", uid=f"u{index}") for index in range(count)]
    follow(east, *(event(node, "ADDED") for node in nodes), now=now)
    assert (len(published), 0 in published) == (signals, signals == 1)


OTHERS = [replace(GPU_1, name=f"gpu-{index}", uid=f"u{index}") for index in (2, 3)]


def annotated(text: str) -> port.Node:
    return replace(GPU_1, annotations={marks.ANNOTATION: text})


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"rescue": 7, "a": "x\\ud800y"}', {"rescue": 7, "a": "xy"}),
        ('{"a\\ud800": ["\\u0000x", {"\\u0000": "y"}]}', {"a": ["x", {"": "y"}]}),
        ('{"a": NaN}', {}),
        ('{"a": [1, -Infinity]}', {}),
        ('{"a": 1e999}', {}),
        ('{"a": 1' + "0" * 40 + "}", {}),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", {}),
        ('{"a": ' + "[" * 9000 + "]" * 9000 + "}", {}),
    ],
    ids=["surrogate", "nul", "nan", "infinity", "float", "integer", "nested", "deeply-nested"],
)
def test_any_annotation_can_be_stored(east: Cluster, now: datetime, text: str, stored: dict[str, object]) -> None:
    node_rows.sync_list(east, [annotated(text), *OTHERS], now=now)
    assert the_row().marks == stored
    assert Node.objects.filter(in_cluster=True).count() == 3
    follow(east, event(GPU_1), now=now)
    follow(east, event(annotated(text)), now=now)  # an update uses another statement
    assert the_row().marks == stored


def test_any_value_of_a_node_can_be_stored(east: Cluster, now: datetime) -> None:
    bad = "\ud800b\0" + "x" * 400
    hostile = replace(
        GPU_1,
        uid=bad,
        boot_id=bad,
        kubelet=bad,
        internal_ip=bad,
        gpus=10**30,
        labels={bad: bad, "nvidia.com/gpu.product": bad},
        taints=(port.Taint(bad, bad, bad),),
        conditions={bad: bad},
    )
    clean = "b" + "x" * 400
    follow(east, event(GPU_1), *(event(node) for node in OTHERS), now=now)
    follow(east, event(replace(GPU_1, boot_id=bad + "1")), event(hostile), event(replace(OTHERS[0], gpus=1)), now=now)
    row = the_row()
    assert (row.uid, row.boot_id, row.kubelet, row.address) == (clean[:64], clean[:64], clean[:60], clean[:64])
    assert (row.model, row.labels[clean], row.past_boots) == (clean[:120], clean, ["boot-1"])
    assert row.taints == [{"key": clean, "value": clean, "effect": clean}]
    assert (row.conditions, row.gpus) == ({clean: clean}, 2**31 - 1)
    assert the_row("gpu-2").gpus == 1


@pytest.mark.parametrize("name", ["", "a\0", "a\ud800", "a" * 254, "a/b", "..", "a b", "A"])
def test_a_node_with_an_impossible_name_is_skipped(east: Cluster, now: datetime, name: str) -> None:
    node_rows.sync_list(east, [replace(GPU_1, name=name), *OTHERS], now=now)
    follow(east, event(replace(GPU_1, name=name)), event(replace(OTHERS[0], gpus=1)), now=now)
    assert set(Node.objects.values_list("name", "gpus")) == {("gpu-2", 1), ("gpu-3", 8)}


def test_a_node_that_cannot_be_stored_is_skipped(
    east: Cluster, now: datetime, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "WITH")) and "10.9.9.9" in str(params):
            raise DataError("refused")
        return execute(sql, params, *rest)

    follow(east, *(event(node) for node in OTHERS), now=now)
    Node.objects.create(cluster=east, name="gpu-1", created_at=now)
    nodes = [replace(node, gpus=2) for node in (replace(GPU_1, internal_ip="10.9.9.9"), *OTHERS)]
    with connection.execute_wrapper(refuse):
        changed = follow(east, *(event(node) for node in nodes), now=now)
    assert {change.node.name for change in changed} == {"gpu-2", "gpu-3"}
    assert set(Node.objects.values_list("name", "gpus")) == {("gpu-1", 0), ("gpu-2", 2), ("gpu-3", 2)}
    assert [record.levelname for record in caplog.records] == ["ERROR"]
