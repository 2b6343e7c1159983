"""Prometheus, read over HTTP: a value that changes is an Xid, and one that stays is none."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources import prometheus as kcover_prometheus
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from simulator.witnesses.prometheus import Series
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import PCI, UUID, Answered, StandIns

SECOND = timedelta(seconds=1)


@pytest.fixture
def prometheus(east: Cluster, now: datetime, stand_ins: StandIns) -> Source:
    return add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus")


def xid(stand_ins: StandIns, code: int, at: datetime, node: str = "gpu-1") -> None:
    stand_ins.prometheus.add_kernel_line(node, f"NVRM: Xid (PCI:{PCI}): {code}, text", at)


def seen() -> list[tuple[str, str, str, int]]:
    return [(row.kind, row.code, row.state, row.count) for row in Incident.objects.order_by("pk")]


def vector(*series: dict[str, Any] | Any) -> Answered:
    return Answered(body=json.dumps({"data": {"resultType": "vector", "result": series}}).encode())


def test_a_value_that_changes_is_an_xid(prometheus: Source, stand_ins: StandIns, now: datetime) -> None:
    xid(stand_ins, 48, now - timedelta(days=3), node="gpu-2")  # told when it was new
    row = pull(prometheus, at=now)
    assert seen() == []
    xid(stand_ins, 79, now + SECOND)
    row = pull(row, at=now + 30 * SECOND)
    row = pull(row, at=now + 60 * SECOND)
    assert (row.error, seen()) == ({}, [("xid", "79", "open", 1)])
    incident = Incident.objects.get()
    assert (incident.device, incident.gpu_uuid, incident.severity) == (PCI, UUID, "fatal")
    xid(stand_ins, 62, now + 61 * SECOND)
    row = pull(row, at=now + 90 * SECOND)
    stand_ins.prometheus.restart("gpu-1", now + 91 * SECOND)
    row = pull(row, at=now + 120 * SECOND)
    xid(stand_ins, 79, now + 121 * SECOND)
    pull(row, at=now + 150 * SECOND)
    assert seen() == [("xid", "79", "open", 2), ("xid", "62", "open", 1)]


@pytest.mark.parametrize("job", ["kubernetes-pods", ""])
def test_a_users_pod_that_exports_the_metric_is_not_the_exporter(
    prometheus: Source, stand_ins: StandIns, now: datetime, job: str
) -> None:
    """It could have had any node rebooted, and as 20,000 series it made the answer too large to read."""
    pull(prometheus, at=now - SECOND)
    (place, genuine), *_ = stand_ins.prometheus.series.items()
    for number in range(kcover_prometheus.MAX_SERIES):
        labels = {**genuine.labels, "job": job, "number": str(number)}
        stand_ins.prometheus.series[f"pod-{number}", place[1]] = Series(labels, [(0.0, 0), (now.timestamp(), 79)])
    genuine.values.append((now.timestamp(), 62))
    row = pull(prometheus, at=now + 30 * SECOND)
    assert [(incident.kind, incident.code) for incident in Incident.objects.all()] == [("xid", "62")]
    assert row.error["code"] == "prometheus_job"


def test_an_xid_of_the_last_hour_is_found_at_the_start(prometheus: Source, stand_ins: StandIns, now: datetime) -> None:
    xid(stand_ins, 79, now - timedelta(minutes=30))
    assert services.try_source(prometheus, now=now).seen == 1
    pull(prometheus, at=now)
    assert seen() == [("xid", "79", "open", 1)]


def test_series_that_come_back_unchanged_are_not_reported(
    prometheus: Source, stand_ins: StandIns, now: datetime
) -> None:
    xid(stand_ins, 79, now)
    row = pull(prometheus, at=now + SECOND)
    stand_ins.troubles.append(vector())
    row = pull(row, at=now + 30 * SECOND)
    pull(row, at=now + 60 * SECOND)
    assert seen() == [("xid", "79", "open", 1)]


def test_any_query_is_an_alert_that_ends_with_its_series(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    source = add(east, "prometheus", now=now, url=stand_ins.url, query="GpuEcc > 3", node_label="instance")
    one = {"metric": {"__name__": "GpuEcc", "instance": "gpu-1:9400"}, "value": [now.timestamp(), "4.5"]}
    for answer in (vector(), vector(one), vector(one)):
        stand_ins.troubles.append(answer)
    source = pull(source, at=now)
    source = pull(source, at=now + 30 * SECOND)
    assert seen() == [("alert", "GpuEcc", "open", 1)]
    Node.objects.update(ready=False)
    stand_ins.troubles.append(vector())
    source = pull(source, at=now + 60 * SECOND)
    assert seen() == [("alert", "GpuEcc", "open", 1)]  # the series died with the node
    Node.objects.update(ready=True)
    stand_ins.troubles += [vector(one), vector()]
    source = pull(source, at=now + 90 * SECOND)
    pull(source, at=now + 120 * SECOND)
    assert [state for _, _, state, _ in seen()] == ["closed"]


@pytest.mark.parametrize(("given", "is_kept"), [({"interval": 60}, True), ({"query": "up < 1"}, False)])
def test_the_position_is_lost_with_another_query_only(
    prometheus: Source, stand_ins: StandIns, now: datetime, given: dict[str, Any], is_kept: bool
) -> None:
    before = pull(prometheus, at=now).cursor
    assert before
    services.SOURCES.change(prometheus, {"settings": given}, actor="test", reason="", now=now)
    prometheus.refresh_from_db()
    assert prometheus.cursor == (before if is_kept else {})
    assert prometheus.due_at is None


def test_invalid_series_are_counted_once(prometheus: Source, stand_ins: StandIns, now: datetime) -> None:
    at = now.timestamp()
    good = {"Hostname": "gpu-1", "pci_bus_id": PCI}
    answer = vector(
        *(3, {}, {"metric": {"Hostname": 3}, "value": [at, "79"]}, {"metric": {}, "value": [at, "79"]}),
        *({"metric": good, "value": sample} for sample in ([at], ["x", "79"], [at, "x"], [at, "NaN"], [at, "7.5"])),
        *({"metric": good, "value": sample} for sample in ([1e300, "79"], [at + 90_000, "79"], [at, "99999999999"])),
        {"metric": {"Hostname": "gpu-9"}, "value": [at, "79"]},
        {"metric": good, "value": [at, "79"]},
    )
    stand_ins.troubles += [vector(), answer, answer]
    row = pull(prometheus, at=now)
    assert seen() == [("xid", "79", "open", 1)]
    assert row.rejected == 13
    assert pull(row, at=now + 30 * SECOND).rejected == 13


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"{}", "prometheus_result"), (b"[]", "source_not_object"), (b"\xff", "source_answer_not_json")],
)
def test_an_invalid_answer_is_an_error_with_a_code(
    prometheus: Source, stand_ins: StandIns, now: datetime, body: bytes, code: str
) -> None:
    stand_ins.troubles.append(Answered(body=body))
    assert pull(prometheus, at=now).error["code"] == code


def test_a_query_that_prometheus_refuses(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    source = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus", query="up ==")
    assert pull(source, at=now).error["params"]["status"] == "400"


def test_series_that_are_gone_do_not_pile_up(
    prometheus: Source, stand_ins: StandIns, now: datetime, monkeypatch
) -> None:
    """A Prometheus that gives other series each time."""
    monkeypatch.setattr(kcover_prometheus, "MAX_SERIES", 5)
    row = prometheus
    for turn in range(4):
        labels = ({"Hostname": "gpu-1", "gpu": f"{turn}-{number}"} for number in range(4))
        answer = vector(*({"metric": label, "value": [now.timestamp(), "79"]} for label in labels))
        stand_ins.troubles += [vector(), answer] if turn == 0 else [answer]
        row = pull(row, at=now + turn * 30 * SECOND)
    assert len(row.cursor["shown"]) == 5
    assert sum("3-" in key for key in row.cursor["shown"]) == 4, "the present ones are kept"
