"""Reports of monitors about themselves, about what they do not know, and about what others already repair."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.faults.weight import Weight, named_xids
from kcover.sources import prometheus
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.sources.models import Source
from tests.portal.sources.conftest import Sender, add, notification, pull
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_field_reports import entity, is_matched, open_devices
from tests.portal.sources.test_late_reports import boots, rebooted
from tests.portal.sources.test_push import took

__all__ = ["rebooted"]
Make = Callable[..., dict[str, Any]]
MINUTE = timedelta(minutes=1)
PARTIAL = {"warnings": ["receive series from Addr: 10.0.0.1:10901: rpc error: code = Unavailable"]}
REMARK = {"warnings": ["PromQL warning: quantile value should be between 0 and 1"], "infos": ["PromQL info: x"]}


@pytest.mark.parametrize(
    ("name", "labels", "weight"),
    [
        ("NodeProblemDetectorDown", {}, Weight.MONITOR),
        ("NodeProblemDetectorNotRunning", {"job": "node-problem-detector"}, Weight.MONITOR),
        ("TargetDown", {"job": "node-problem-detector"}, Weight.MONITOR),
        ("NodeTextFileCollectorScrapeError", {}, Weight.MONITOR),
        ("AmdgpuMetricsStale", {}, Weight.MONITOR),
        ("NoGPUMetrics", {}, Weight.MONITOR),
        ("GPUNodeDown", {"job": "dcgm-exporter"}, Weight.MONITOR),
        ("GPUNodeDown", {"job": "kube-state-metrics"}, Weight.NODE),
        ("NodeNetworkInterfaceDown", {"job": "node-exporter", "device": "ib0"}, Weight.NODE),
        ("GPUOffline", {"job": "dcgm-exporter"}, Weight.NODE),
        ("DCGMExporterScrapeDown", {}, Weight.MONITOR),
        ("NodeMetricsPushFailed", {}, Weight.MONITOR),
        ("PrometheusTSDBReloadsFailing", {"pod": "prometheus-k8s-0"}, Weight.MONITOR),
        ("AlertmanagerFailedReload", {"pod": "alertmanager-main-0"}, Weight.MONITOR),
        ("PrometheusJobMissing", {"job": "prometheus"}, Weight.MONITOR),
        ("PrometheusGPUHot", {"job": "dcgm-exporter"}, Weight.NODE),
        ("LokiNvrmError", {}, Weight.NODE),  # Loki's ruler tells of a line
        ("KubernetesPodCrashLooping", {"pod": "train-0"}, Weight.PROGRAM),
        ("ContainerOOMKilled", {"pod": "train-0", "container": "main"}, Weight.PROGRAM),
        ("ContainerRuntimeUnhealthy", {"container": "kube-state-metrics"}, Weight.NODE),
        ("ContainerdDown", {"pod": "x"}, Weight.NODE),
        ("KubernetesNodeNotReady", {"pod": "kube-state-metrics-0"}, Weight.NODE),
    ],
)
def test_an_alert_about_a_monitor_or_a_pod_is_no_fault_of_its_node(
    alertmanager: Sender, alert: Make, name: str, labels: dict[str, str], weight: Weight
) -> None:
    alertmanager.post(notification(alert(name, **labels)))
    row = Incident.objects.get()
    assert (row.is_user_fault, row.is_harmless) == (weight is not Weight.NODE, weight is Weight.MONITOR)


@pytest.mark.parametrize("reason", ["NoData", "Error"])
def test_an_alert_that_fires_because_grafana_does_not_know_is_no_fault(
    alertmanager: Sender, alert: Make, reason: str
) -> None:
    fires = alert("GPU lost", gpu="2")
    unknown = {**fires, "annotations": {**fires["annotations"], "grafana_state_reason": reason}}
    assert took(alertmanager.post(notification(unknown))) == (1, 0, [])
    assert not Incident.objects.exists()
    for told in (fires, unknown):  # the same alert, from the same start
        alertmanager.post(notification(told))
        assert open_devices() == ["gpu 2"]
    alertmanager.post(notification(alert("GPU lost", status="resolved", gpu="2")))
    assert open_devices() == []


def test_a_grafana_alert_that_keeps_its_state_is_a_fault(alertmanager: Sender, alert: Make) -> None:
    kept = {**alert("GPU lost"), "annotations": {"grafana_state_reason": "NoData, KeepLast"}}
    alertmanager.post(notification(kept))
    assert is_matched(Incident.objects.get())


@pytest.mark.parametrize(
    ("text", "xids"),
    [
        ("Xid 코드: 43 — docs 참조", {43}),
        ("GPU Xid 에러 발생: 79", {79}),
        ("XID エラー 31 が発生しました", {31}),
        ("код ошибки Xid ошибка 48", {48}),
        ("XID-Fehler 43 auf GPU 2", {43}),
        ("XID 错误码：119", {119}),
        ("XID 错误次数: 3", set()),
        ("XID 错误 3 次", set()),
        ("XID 오류 횟수: 3", set()),
        ("Xid 에러 3건", set()),
        ("XID エラー件数 5", set()),
        ("GPU Xid 에러 발생 (gpu-1, GPU 2)", set()),
    ],
)
def test_an_xid_is_read_among_words_of_any_script(text: str, xids: set[int]) -> None:
    assert named_xids(text) == xids


@pytest.mark.parametrize(("name", "alias"), [("GPUXidError", "xid 43"), ("HttpErrors", "alert HttpErrors")])
def test_the_label_code_is_an_xid_where_the_alert_name_says_so(
    alertmanager: Sender, alert: Make, name: str, alias: str
) -> None:
    alertmanager.post(notification(alert(name, code="43")))
    row = Incident.objects.get()
    assert (row.alias, row.is_user_fault) == (alias, alias == "xid 43")


def test_a_series_of_xids_by_their_code(now: datetime) -> None:
    labels = {"__name__": "gpu_xid_total", "node": "gpu-1", "gpu": "2", "code": "43"}
    body = {"data": {"resultType": "vector", "result": [{"metric": labels, "value": [now.timestamp(), "1"]}]}}
    [seen] = prometheus.read(body, query="gpu_xid_total > 0", before=prometheus.Before(), now=now).batch.observations
    assert (seen.alias, seen.weight) == (43, Weight.PROGRAM)


@pytest.mark.parametrize("label", ["deviceid", "deviceId"])
def test_the_devices_of_autopilot_and_of_metax_are_distinguished(alertmanager: Sender, alert: Make, label: str) -> None:
    one, other = ({label: number} for number in ("1", "3"))
    alertmanager.post(notification(alert("RemappedAlert", **one), alert("RemappedAlert", **other)))
    alertmanager.post(notification(alert("RemappedAlert", status="resolved", **one)))
    assert open_devices() == ["device 3"]


# --- NVSentinel and AWS


@pytest.mark.parametrize("strategy", ["STORE_AND_ANALYSE", 3])
def test_an_event_that_is_only_to_be_analysed_is_not_acted_on(sentinel: Sender, health: Make, strategy: Any) -> None:
    assert took(sentinel.post([health(processingStrategy=strategy)])) == (1, 0, [])
    assert not Incident.objects.exists()


@pytest.mark.parametrize(
    ("given", "is_user_fault"),
    [
        ({"recommendedAction": "RUN_FIELDDIAG"}, False),
        ({"recommendedAction": 5}, False),
        ({"recommendedAction": "NONE", "isFatal": False}, True),
        ({"recommendedAction": "RESTART_APP"}, True),
        ({"recommendedAction": "RESTART_BM", "agent": "syslog-health-monitor"}, True),  # it has seen one line
    ],
)
def test_a_repeated_xid_on_one_gpu_is_a_fault_of_the_gpu(
    sentinel: Sender, health: Make, given: dict[str, Any], is_user_fault: bool
) -> None:
    event = {"agent": "health-events-analyzer", "checkName": "RepeatedXID13OnSameGPCAndTPC", "errorCode": ["13"]}
    sentinel.post([health("1", entitiesImpacted=entity("GPC", "0") + entity("GPU", "2"), **{**event, **given})])
    row = Incident.objects.get()
    assert (row.is_user_fault, row.alias == "xid 13") == (is_user_fault, is_user_fault)


@pytest.mark.parametrize(("seconds", "boot"), [(-60, "boot-1"), (60, "boot-2"), (None, "boot-2")])
def test_a_late_judgement_of_the_analyzer_may_be_of_the_boot_before(
    sentinel: Sender, health: Make, rebooted: datetime, seconds: int | None, boot: str
) -> None:
    at = rebooted + timedelta(seconds=seconds or 0)
    metadata = {} if seconds is None else {"source_generated_timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.123456789Z")}
    event = {"agent": "health-events-analyzer", "checkName": "RepeatedXIDErrorOnSameGPU", "metadata": metadata}
    sentinel.post([health(at=rebooted + 2 * MINUTE, **event)])
    assert boots() == [boot]


def test_a_recovery_by_aws_is_no_fault(sentinel: Sender, now: datetime) -> None:
    Node.objects.filter(name="gpu-1").update(provider_id="aws:///us-west-2a/i-0abcd111122223333")
    for code, count in (("AWS_EC2_INSTANCE_AUTO_RECOVERY_SUCCESS", 0), ("AWS_EC2_INSTANCE_AUTO_RECOVERY_FAILURE", 1)):
        detail = {"service": "EC2", "eventTypeCode": code, "eventTypeCategory": "issue", "statusCode": "open"}
        detail["affectedEntities"] = [{"entityValue": "i-0abcd111122223333"}]
        event = {"source": "aws.health", "detail-type": "AWS Health Event", "time": now.isoformat()}
        assert took(sentinel.post({**event, "id": code, "detail": detail})) == (1, 0, [])
        assert Incident.objects.count() == count


# --- Prometheus


def read_hot(row: Source, others: StandIns, *gpus: str, at: datetime, **beside: Any) -> None:
    labels = {"__name__": "hot", "node": "gpu-1"}
    rows = [{"metric": {**labels, "gpu": gpu}, "value": [at.timestamp(), "95"]} for gpu in gpus]
    body = {"status": "success", **beside, "data": {"resultType": "vector", "result": rows}}
    others.troubles.append(Answered(body=json.dumps(body).encode()))
    pull(row, at=at)


@pytest.fixture
def hot(east: Cluster, now: datetime, stand_ins: StandIns) -> Source:
    """It has read two GPUs that are hot, and none an hour ago."""
    row = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus", query="hot > 90")
    stand_ins.troubles.append(Answered(body=b'{"data": {"resultType": "vector", "result": []}}'))
    read_hot(row, stand_ins, "1", "2", at=now)
    return row


@pytest.mark.parametrize(
    ("beside", "left"),
    [(PARTIAL, ["gpu 1", "gpu 2"]), ({"isPartial": True}, ["gpu 1", "gpu 2"]), (REMARK, ["gpu 2"]), ({}, ["gpu 2"])],
)
def test_series_missing_from_a_partial_answer_have_not_ended(
    hot: Source, now: datetime, stand_ins: StandIns, beside: dict[str, Any], left: list[str]
) -> None:
    for minute in (1, 2):
        read_hot(hot, stand_ins, "2", at=now + minute * MINUTE, **beside)
        assert open_devices() == left
    read_hot(hot, stand_ins, at=now + 3 * MINUTE)
    assert open_devices() == []
    assert set(Incident.objects.values_list("count", flat=True)) == {1}


def test_a_partial_answer_ends_nothing_that_vanished_with_its_node(
    hot: Source, now: datetime, stand_ins: StandIns
) -> None:
    Node.objects.filter(name="gpu-1").update(ready=False, ready_since=None)
    read_hot(hot, stand_ins, at=now + MINUTE)
    Node.objects.filter(name="gpu-1").update(ready=True, ready_since=now + MINUTE)
    read_hot(hot, stand_ins, at=now + 9 * MINUTE, **PARTIAL)
    assert open_devices() == ["gpu 1", "gpu 2"]
    read_hot(hot, stand_ins, at=now + 10 * MINUTE)
    assert open_devices() == []
