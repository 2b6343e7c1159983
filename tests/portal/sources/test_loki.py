"""Loki, read over HTTP: each line once, from a stored position, whatever Loki does meanwhile."""

import itertools
import json
from datetime import datetime, timedelta

import pytest

from kcover.sources import loki as lines
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import loki_pull
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import PCI, Answered, StandIns

PLAIN = f"NVRM: Xid (PCI:{PCI}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_79 = f"[1235733.431527] {PLAIN}"
SECOND = timedelta(seconds=1)


@pytest.fixture
def loki(east: Cluster, now: datetime, stand_ins: StandIns) -> Source:
    return add(east, "loki", now=now, url=stand_ins.url)


def xid_79(number: int) -> str:
    """The line as the kernel prints it so many seconds later."""
    return XID_79.replace("1235733", str(1_235_733 + number))


def kernel(stand_ins: StandIns, line: str, at: datetime, node: str = "gpu-1") -> None:
    stand_ins.logs.add_kernel_line(node, line, at)


def pod(stand_ins: StandIns, line: str, at: datetime, namespace: str = "default") -> None:
    labels = {"k8s_namespace_name": namespace, "k8s_pod_name": "train-0", "k8s_node_name": "gpu-1"}
    stand_ins.logs.add(labels, line, at=at)


def seen() -> list[tuple[str, str, str, int]]:
    rows = Incident.objects.order_by("pk")
    return [(row.kind, row.code, row.device, row.count) for row in rows]


def test_konduktors_two_queries(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    kernel(stand_ins, XID_79, now - SECOND)
    kernel(stand_ins, "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", now - SECOND)
    kernel(stand_ins, "nvidia-peermem nv_get_p2p_free_callback:131 ERROR detected invalid context, skipping", now)
    kernel(stand_ins, "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x62:0xffff:2477)", now - SECOND)
    kernel(stand_ins, "usb 1-1: new device", now - SECOND)
    pod(stand_ins, "RuntimeError: CUDA error: Invalid device ordinal", now - SECOND)
    pod(stand_ins, "CUDA error: invalid device ordinal", now - SECOND, namespace="other")
    row = pull(loki, at=now + SECOND)
    assert row.error == {}
    assert {(kind, code) for kind, code, _, _ in seen()} == {
        ("xid", "79"),
        ("sxid", "12028"),
        ("other", "peermem_invalid_context"),
        ("other", "gpu_init_failed"),
        ("other", "invalid_device_ordinal"),
    }
    assert Incident.objects.get(code="79").device == PCI
    assert Incident.objects.get(code="gpu_init_failed").severity == "degraded"
    assert row.accepted == 5


def test_a_lost_gpu_is_one_incident(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    kernel(stand_ins, XID_79, now - SECOND)
    kernel(stand_ins, "NVRM: Assertion failed: lost [NV_ERR_GPU_IS_LOST] (0x0F) returned from rmStatus", now - SECOND)
    pull(loki, at=now + SECOND)
    assert {(kind, code) for kind, code, _, _ in seen()} == {("xid", "79")}


def test_windows_overlap_and_count_a_line_once(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    for _ in range(2):  # two lines of one nanosecond and one text are one line
        kernel(stand_ins, XID_79, now)
    pull(loki, at=now + SECOND)
    kernel(stand_ins, xid_79(2), now + 2 * SECOND)
    kernel(stand_ins, XID_79.replace("79", "62"), now - 20 * SECOND)  # it arrives late
    row = pull(loki, at=now + 10 * SECOND)
    row = pull(row, at=now + 20 * SECOND)
    assert [(code, count) for _, code, _, count in seen()] == [("79", 2), ("62", 1)]
    assert row.accepted == 3


def test_a_kernel_line_that_is_stored_again_with_another_time_counts_once(
    loki: Source, stand_ins: StandIns, now: datetime
) -> None:
    """A collector that starts again reads the ring from its beginning; another one reads the journal."""
    header = "Nov 21 08:00:00 gpu-1 kernel: "
    kernel(stand_ins, XID_79, now - 20 * SECOND)
    pull(loki, at=now)
    kernel(stand_ins, XID_79, now + 3 * SECOND)
    stand_ins.logs.add({"k8s_daemonset_name": "dmesg", "host": "gpu-1"}, header + XID_79, at=now + 4 * SECOND)
    kernel(stand_ins, XID_79, now - SECOND, node="gpu-2")
    row = pull(loki, at=now + 10 * SECOND)
    assert sorted(Incident.objects.values_list("node__name", "count")) == [("gpu-1", 1), ("gpu-2", 1)]
    assert (row.accepted, row.rejected) == (2, 0)
    kernel(stand_ins, xid_79(1), now + 12 * SECOND)
    kernel(stand_ins, PLAIN, now + 13 * SECOND)
    kernel(stand_ins, PLAIN, now + 14 * SECOND)  # without an uptime the store's time tells lines apart
    pull(loki, at=now + 20 * SECOND)
    assert Incident.objects.get(node__name="gpu-1").count == 4


def test_a_line_later_than_lateness_is_lost(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    source = pull(add(east, "loki", now=now, url=stand_ins.url, lateness=5), at=now)
    kernel(stand_ins, XID_79, now - 10 * SECOND)
    pull(source, at=now + SECOND)
    assert seen() == []


def test_credentials_are_sent(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    stand_ins.logs.tenant, stand_ins.logs.token = "team-a", "s3cret"
    kernel(stand_ins, XID_79, now)
    refused = pull(add(east, "loki", now=now, url=stand_ins.url), at=now + SECOND)
    assert refused.error["code"] == "host_answered"
    assert seen() == []
    source = add(east, "loki", now=now, name="b", url=stand_ins.url, token="s3cret", tenant="team-a")
    assert pull(source, at=now + SECOND).error == {}
    assert len(seen()) == 1


def test_settings_select_stream_namespaces_and_texts(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    settings = {
        "stream": '{job="kernel"}',
        "pod_namespaces": ["ml", "ml.b"],
        "pod_patterns": ["NCCL (timeout)"],
        "node_label": ["host"],
    }
    stand_ins.logs.add({"job": "kernel", "host": "gpu-2"}, XID_79, at=now)
    stand_ins.logs.add({"k8s_namespace_name": "ml.b", "host": "gpu-2"}, "E nccl (TIMEOUT) rank 3", at=now)
    stand_ins.logs.add({"k8s_namespace_name": "mlxb", "host": "gpu-2"}, "E nccl (TIMEOUT) rank 4", at=now)
    pull(add(east, "loki", now=now, url=stand_ins.url, **settings), at=now + SECOND)
    assert {(kind, code, count) for kind, code, _, count in seen()} == {
        ("xid", "79", 1),
        ("other", "nccl_timeout", 1),
    }
    assert set(Incident.objects.values_list("node__name", flat=True)) == {"gpu-2"}


def test_an_outage_is_caught_up_at_a_bounded_pace(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    pull(loki, at=now)
    for minute in range(300):
        kernel(stand_ins, xid_79(60 * minute), now + timedelta(minutes=minute))
    stand_ins.asked.clear()
    back = now + timedelta(minutes=300)
    row = pull(loki, at=back)
    assert row.due_at == back + timedelta(seconds=1)
    assert len(stand_ins.asked) == 2 * loki_pull.MAX_PAGES_PER_QUERY + 1
    assert seen()[0][3] < 300
    for _ in range(4):
        row = pull(row, at=back)
    assert row.due_at == back + timedelta(seconds=10)
    assert seen()[0][3] == 300


def test_lines_beyond_one_response_are_read(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    for number in range(1_500):
        kernel(stand_ins, xid_79(number), now - SECOND + timedelta(microseconds=number))
    pull(loki, at=now + SECOND)
    assert seen()[0][3] == 1_500


def test_lines_of_one_nanosecond_beyond_one_response_are_an_error(
    loki: Source, stand_ins: StandIns, now: datetime
) -> None:
    for number in range(1_200):
        kernel(stand_ins, XID_79.replace("1235733", str(number)), now)
    row = pull(loki, at=now + SECOND)
    assert row.error["code"] == "loki_page_full"
    assert seen()[0][3] == 1_000
    kernel(stand_ins, XID_79.replace("79", "62"), now + 2 * SECOND)
    pull(loki, at=now + 3 * SECOND)
    assert Incident.objects.filter(code="62").exists()


def test_a_line_of_10_mb_costs_only_itself(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    kernel(stand_ins, XID_79.replace("79", "62"), now - 30 * SECOND)
    kernel(stand_ins, XID_79 + "x" * 10_000_000, now - 20 * SECOND)
    kernel(stand_ins, XID_79 + "x" * 100_000, now - 10 * SECOND)
    kernel(stand_ins, XID_79.replace("79", "48"), now - 5 * SECOND)
    row = pull(loki, at=now)
    for later in range(3):
        row = pull(row, at=now + (later + 1) * SECOND)
    assert sorted(code for _, code, _, _ in seen()) == ["48", "62"]
    assert row.rejected == 2
    assert row.error["code"] in {"loki_lines_too_large", "source_line_long"}


def test_a_failing_loki_is_queried_less_and_less_often(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    waits = []
    for _ in range(3):
        stand_ins.troubles.append(Answered(500, b"out of memory"))
        row = pull(loki, at=now)
        waits.append((row.due_at - now).total_seconds())
    assert waits == [2, 4, 8]
    assert row.error["params"]["status"] == "500"
    stand_ins.troubles.append(Answered(429, b"", (("Retry-After", "90"),)))
    assert pull(loki, at=now).due_at == now + 90 * SECOND
    row = pull(loki, at=now)
    assert (row.error, row.attempts) == ({}, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<html>", "source_answer_not_json"),
        (b"[" * 100_000, "source_answer_not_json"),
        (b"[]", "source_not_object"),
        (b"{}", "loki_result"),
        (b'{"data": {"resultType": "matrix", "result": []}}', "loki_result"),
        (b'{"data": {"resultType": "streams", "result": 3}}', "source_not_list"),
        (b" " * 9_000_000, "loki_lines_too_large"),
    ],
)
def test_an_invalid_response_is_an_error_with_a_code(
    loki: Source, stand_ins: StandIns, now: datetime, body: bytes, code: str
) -> None:
    stand_ins.troubles.extend([Answered(body=body)] * 20)
    assert pull(loki, at=now).error["code"] == code


def test_a_broken_line_does_not_cost_the_others(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    at = str(int(now.timestamp()) * 10**9)
    ahead = str(int(now.timestamp() + 86_400) * 10**9)
    values = [[at], [at, 3], ["x", XID_79], [at, XID_79 + "\0"], [ahead, XID_79], [at, XID_79], 5]
    streams = [
        {"stream": {"k8s_node_name": "gpu-1"}, "values": values},
        {"stream": {"k8s_node_name": 3}, "values": [[at, XID_79]]},
        {"stream": {}, "values": [[at, XID_79]]},
        {"stream": {"k8s_node_name": "gpu-9"}, "values": [[at, XID_79]]},
        {"stream": {"k8s_node_name": "../etc"}, "values": [[at, XID_79]]},
        "stream",
    ]
    body = json.dumps({"data": {"resultType": "streams", "result": streams}}).encode()
    stand_ins.troubles.append(Answered(body=body))
    row = pull(loki, at=now)
    assert [(code, count) for _, code, _, count in seen()] == [("79", 1)]
    assert row.rejected == 11
    assert row.error["code"] == "source_node_unknown"


def test_a_foreign_node_is_counted_once(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    kernel(stand_ins, XID_79, now, node="gpu-9")
    for later in range(3):
        row = pull(loki, at=now + (later + 1) * SECOND)
    assert row.rejected == 1


def test_one_broken_source_does_not_stop_the_others(
    loki: Source, east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    add(east, "loki", now=now, name="gone", url="http://127.0.0.1:1")
    kernel(stand_ins, XID_79, now)
    for row in Source.objects.filter(kind="loki"):
        pull(row, at=now + SECOND)
    assert len(seen()) == 1
    assert Source.objects.get(name="gone").error["code"] == "host_not_answering"


def test_a_test_counts_the_last_hour_and_stores_no_fault(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    kernel(stand_ins, XID_79, now - timedelta(minutes=50))
    kernel(stand_ins, XID_79, now - timedelta(minutes=70))
    trial = services.try_source(loki, now=now)
    assert (trial.ok, trial.seen) == (True, 1)
    assert seen() == []
    stand_ins.troubles.append(Answered(503, b"starting"))
    trial = services.try_source(loki, now=now)
    assert (trial.ok, trial.error.code) == (False, "host_answered")


def test_only_due_sources_are_read(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    pull(loki, at=now)
    stand_ins.asked.clear()
    services.pull(loki.pk, clock=lambda: now + SECOND)
    assert stand_ins.asked == []
    services.pull(loki.pk, clock=lambda: now + 11 * SECOND)
    assert len(stand_ins.asked) == 3
    services.SOURCES.change(loki, {"enabled": False}, actor="test", reason="", now=now)
    services.pull(loki.pk, clock=lambda: now + 60 * SECOND)
    assert len(stand_ins.asked) == 3


def test_a_slow_loki_keeps_its_worker_for_a_bounded_time(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    """Its lease must not end before the turn, or a second worker would come to wait with the first."""
    pull(loki, at=now)
    stand_ins.asked.clear()
    Source.objects.filter(pk=loki.pk).update(due_at=None)
    slow = (now + timedelta(hours=5) + number * 10 * SECOND for number in itertools.count())
    services.pull(loki.pk, clock=lambda: next(slow))
    loki.refresh_from_db()
    assert len(stand_ins.asked) == 4
    assert loki.due_at is not None
    assert loki.due_at - loki.last_contact_at == SECOND


@pytest.mark.parametrize(
    ("printed", "boot"), [(-200, "boot-1"), (200, "boot-2"), (None, "boot-2")]
)  # seconds from the boot
def test_a_line_that_a_collector_read_late_is_of_the_boot_that_printed_it(
    loki: Source, stand_ins: StandIns, now: datetime, printed: int | None, boot: str
) -> None:
    at = now - timedelta(minutes=5)
    Node.objects.update(boot_id="boot-2", past_boots=["boot-1"], boot_times={"boot-2": at.isoformat()})
    line = f"{(at + printed * SECOND).isoformat()} gpu-1 kernel: {PLAIN}" if printed is not None else PLAIN
    kernel(stand_ins, line, now - SECOND)
    pull(loki, at=now + SECOND)
    assert [row.boot_id for row in Occurrence.objects.all()] == [boot]


@pytest.mark.parametrize(
    ("uptime", "boot"),
    [
        ("[1235733.431527] ", "boot-1"),
        ("[ 2500.000001] ", "boot-1"),
        ("[ 1900.000001][  T123] ", "boot-2"),  # it took half an hour until the boot was seen
        ("[  299.000001] ", "boot-2"),
        ("6,77,1235733431527,-;", "boot-1"),
        ("gpu-1 kernel: [1235733.431527] ", "boot-1"),
        ("", "boot-2"),
    ],
)
def test_a_line_whose_kernel_ran_longer_than_the_boot_is_of_an_earlier_one(
    loki: Source, stand_ins: StandIns, now: datetime, uptime: str, boot: str
) -> None:
    at = now - timedelta(minutes=5)
    Node.objects.update(boot_id="boot-2", past_boots=["boot-1"], boot_times={"boot-2": at.isoformat()})
    stamp = "Nov 21 08:00:00 " if uptime.startswith("gpu-1") else ""
    kernel(stand_ins, f"{stamp}{uptime}{PLAIN}", now - 2 * SECOND)
    pull(loki, at=now + SECOND)
    row = Occurrence.objects.get()
    assert (row.boot_id, row.late_seconds is not None) == (boot, boot == "boot-1")
    if boot == "boot-1":  # its own time is unknown, the end of its boot at the latest
        assert row.seen_at == row.earliest_at == at
        assert row.late_seconds == pytest.approx(301, abs=1)
        assert row.incident.last_at == at


def test_an_uptime_does_not_prove_a_boot_that_began_while_the_portal_was_away(
    loki: Source, stand_ins: StandIns, now: datetime
) -> None:
    away, back = now - timedelta(hours=9), now - timedelta(minutes=5)
    times = {"boot-2": f"{back.isoformat()} {away.isoformat()}"}
    Node.objects.update(boot_id="boot-2", past_boots=["boot-1"], boot_times=times)
    kernel(stand_ins, f"[{8 * 3600}.000001] {PLAIN}", now - 2 * SECOND)
    kernel(stand_ins, f"[{10 * 3600}.000001] {PLAIN}", now - SECOND)
    pull(loki, at=now + SECOND)
    assert list(Occurrence.objects.order_by("pk").values_list("boot_id", flat=True)) == ["boot-2", "boot-1"]


def test_lines_of_a_users_daemonset_fill_no_answer(loki: Source, stand_ins: StandIns, now: datetime) -> None:
    """Thousands of them would have kept the kernel's line for later turns. The source still tells of them."""
    labels = {"k8s_daemonset_name": "dmesg", "k8s_namespace_name": "ml-user", "k8s_node_name": "gpu-2"}
    for number in range(20 * lines.LIMIT):
        stand_ins.logs.add(labels, xid_79(number), at=now)
    kernel(stand_ins, XID_79, now)
    row = pull(loki, at=now + SECOND)
    assert [(incident.node.name, incident.count) for incident in Incident.objects.select_related("node")] == [
        ("gpu-1", 1)
    ]
    assert (row.accepted, row.rejected) == (1, 1)
    assert row.due_at == now + 11 * SECOND, "nothing is left to read"
