"""More reports as other systems write them: whose fault they tell, of which boot, and what is none."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.sources import aws_health, gpud, health_events, kube_events, log_lines, loki, prometheus
from kcover.sources.conditions import Condition, read, rows_of
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.sources import services
from tests.portal.sources.conftest import Sender, add, notification, pull, stamp
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_aws_health import health as aws_event
from tests.portal.sources.test_field_reports import A, B, inventory, is_matched, open_devices
from tests.portal.sources.test_late_reports import boots, rebooted
from tests.portal.sources.test_push import took
from tests.portal.sources.test_witnesses import agent_reports, names, xid

__all__ = ["rebooted"]
Make = Callable[..., dict[str, Any]]
NOW = datetime(2026, 11, 29, 19, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
LOST = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CAUSED = "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149"
OVER = {"isHealthy": True, "isFatal": False, "errorCode": [], "recommendedAction": 0}


# --- the boot


def test_a_pair_of_prometheus_servers_reports_after_the_reboot(
    alertmanager: Sender, alert: Make, now: datetime, rebooted: datetime
) -> None:
    for replica, seconds in (("a", 90), ("b", 65), ("a", 90)):
        fires = alert("GPUXid", pci_bus_id="00000000:4E:00.0", err_code="79", prometheus_replica=replica)
        alertmanager.post(notification({**fires, "startsAt": stamp(rebooted - seconds * SECOND)}))
    assert (boots(), Incident.objects.get().count) == (["boot-1"], 1)


def test_an_alert_that_ended_after_the_boot_is_sent_once_more(
    alertmanager: Sender, alert: Make, rebooted: datetime
) -> None:
    fires = {**alert("GpuHot", gpu="2"), "startsAt": stamp(rebooted - 20 * MINUTE)}
    ends = {**fires, "status": "resolved", "endsAt": stamp(rebooted + MINUTE)}
    for told in (fires, ends, fires):
        alertmanager.post(notification(told))
    assert (boots(), open_devices()) == (["boot-1"], [])


def test_a_batch_in_the_wrong_order(sentinel: Sender, health: Make, rebooted: datetime) -> None:
    new, old = health("2", at=rebooted + 3 * MINUTE), health("1", at=rebooted - 2 * MINUTE)
    sentinel.post([health("3", at=rebooted + 2 * MINUTE, **OVER), new, old])
    assert (boots(), len(open_devices())) == (["boot-2"], 1)


def test_a_late_event_about_the_machine_that_had_the_name_before(
    sentinel: Sender, health: Make, now: datetime, rebooted: datetime
) -> None:
    Node.objects.filter(name="gpu-1").update(uid="u2", machine_since=rebooted, machine_after=rebooted - MINUTE)
    sentinel.post([health(at=rebooted - 4 * MINUTE)])
    node = Node.objects.get(name="gpu-1")
    assert (boots(), queries.faults_since(node, rebooted)) == (["boot-1"], [])


@pytest.mark.parametrize(
    "form",
    [
        "<3>1 2026-11-29T18:50:00.500000+00:00 gpu-1 kernel - - - ",
        "2026-11-29T18:50:00.500000+00:00 gpu-1 kernel: [12345.678901] ",
        "2026-11-29T18:50:00,500000+00:00 ",
        "kern  :err   : 2026-11-29T18:50:00,500000+00:00 ",
        "2026-11-29T18:50:00.500000+0000 gpu-1 kernel: ",
    ],
)
def test_the_time_that_a_system_log_prints(form: str) -> None:
    value = [str(log_lines.nanoseconds(NOW)), form + LOST]
    body = {"data": {"resultType": "streams", "result": [{"stream": {"node": "gpu-1"}, "values": [value]}]}}
    [seen] = loki.read(body, loki.queries({})[0], now=NOW).batch.observations
    assert seen.seen_at == NOW - 10 * MINUTE + timedelta(seconds=0.5)


def test_a_condition_that_is_shown_as_over_is_over(east: Cluster, now: datetime) -> None:
    """Whatever time its writer sets, whose clock may have been put back."""
    services.make_watched_sources(now)
    feed = services.ConditionFeed(east)
    for status, ago, seconds in (("True", 10, 0), ("False", 20, 60)):
        stated = Condition(type="KernelDeadlock", status=status, reason="X", since=now - ago * MINUTE)
        node = port.Node(name="gpu-1", uid="u1", boot_id="boot-1", stated=(stated,))
        feed.feed([node], now=now + seconds * SECOND)
    assert Incident.objects.get().state == "closed"


# --- the device


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    ("ended", "other"),
    [
        ({"gpu": "2", "GPU_I_ID": "3"}, {"gpu": "2", "GPU_I_ID": "7"}),
        ({"gpu": "2", "GPU_I_ID": "3"}, {"gpu": "2"}),
        ({"gpu": "2", "link": "3"}, {"gpu": "2"}),
        ({"minor_number": "2"}, {"gpu": "2"}),
        ({"pci_bus_id": "00000008:01:00.0"}, {"pci_bus_id": "00000009:01:00.0"}),
    ],
)
def test_inv_04_the_end_of_a_part_leaves_its_gpu_and_its_other_parts(
    alertmanager: Sender, alert: Make, now: datetime, ended: dict[str, str], other: dict[str, str], is_known: bool
) -> None:
    if is_known:
        inventory(now)
    alertmanager.post(notification(alert("GpuBad", **other), alert("GpuBad", **ended)))
    assert len(open_devices()) == 2
    alertmanager.post(notification(alert("GpuBad", status="resolved", **ended)))
    [left] = open_devices()
    assert not {"mig 3", "link 3"}.intersection({left[-5:], left[-6:]})


def test_inv_04_the_recovery_of_a_link_leaves_the_fault_of_its_gpu(
    sentinel: Sender, health: Make, now: datetime
) -> None:
    gpu = [{"entityType": "GPU", "entityValue": "2"}]
    link = [*gpu, {"entityType": "NVLINK", "entityValue": "3"}]
    given = {"checkName": "GpuNvlinkWatch", "errorCode": ["DCGM_FR_NVLINK_DOWN"]}
    for number, entities in enumerate((link, gpu)):
        sentinel.post([health(str(number), at=now - MINUTE, entitiesImpacted=entities, **given)])
    sentinel.post([health("2", entitiesImpacted=link, **{**given, **OVER})])
    assert open_devices() == ["gpu 2"]


def test_gpud_names_an_nvlink_event_with_its_sub_code(east: Cluster, now: datetime, stand_ins: StandIns) -> None:
    row = add(east, "gpud", now=now, url=stand_ins.url + "/gpud/{node}", node="gpu-1")
    Node.objects.filter(name="gpu-1").update(gpus=8)
    line = "NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000)"
    agent_reports(east, xid(code=149, pci="0000:9b:00", message=line), at=now - 50 * SECOND)
    said = f"XID 149.37 (err status 0x00000000) NVLINK_NETIR_ERROR detected on GPU PCI:0000:9b:00 UUID:{A}"
    event = {"time": stamp(now - MINUTE), "name": "error_xid", "type": "Fatal", "message": said}
    answers = ([], [{"component": "accelerator-nvidia-error-xid", "events": [event]}])
    stand_ins.troubles += [Answered(body=json.dumps(answer).encode()) for answer in answers]
    pull(row, at=now)
    assert names(Incident.objects.get()) == [("agent", 1), ("gpud", 1)]


# --- what is none


@pytest.mark.parametrize(
    ("kind", "said", "advice", "weight", "alias"),
    [
        (
            "Warning",
            "XID 145.0 (err status 0x00000008) NVLINK_RLW_ERROR detected on GPU PCI:0018:01:00",
            "",
            "program",
            145,
        ),
        ("Fatal", "XID 149.38 (err status 0x00000000) NVLINK_NETIR_ERROR detected", "REBOOT_SYSTEM", "node", 149),
        ("Fatal", "XID 145.0 (err status 0x00000008) x", "IGNORE_NO_ACTION_REQUIRED", "program", 145),
        ("Critical", "xid 119 detected by dmesg", "", "node", 119),
        ("Warning", CAUSED, "", "program", 45),
    ],
)
def test_an_event_of_gpud(kind: str, said: str, advice: str, weight: str, alias: int) -> None:
    titles = '{"data_source":"dmesg","xid":119,"references":["\\"Xid 119, 120: GSP RPC Timeout / GSP Error\\""]}'
    event = {"time": stamp(NOW - MINUTE), "type": kind, "message": said, "extra_info": {"data": titles}}
    if advice:
        event["suggested_actions"] = {"repair_actions": [advice]}
    events = [{"component": "accelerator-nvidia-error-xid", "events": [event]}]
    [seen] = gpud.read([], events, node="gpu-1", shown={}, now=NOW).batch.observations
    assert (seen.weight, seen.alias) == (weight, alias)


@pytest.mark.parametrize(
    ("reason", "message", "weight", "alias"),
    [
        (
            "DCGMError",
            "Error connecting to nv-hostengine: Host engine connection invalid/disconnected",
            "monitor",
            None,
        ),
        ("NvidiaXID79Error", "detected XID error with code 79", "node", 79),
    ],
)
def test_a_condition_of_eks(reason: str, message: str, weight: str, alias: int | None) -> None:
    stated = Condition(type="AcceleratedHardwareReady", status="False", reason=reason, message=message, since=NOW)
    [seen] = read("gpu-1", [stated], rows_of({}), now=NOW)
    assert (seen.weight, seen.alias) == (weight, alias)


@pytest.mark.parametrize(
    ("name", "labels", "text", "acts", "alias"),
    [
        ("KernelXid", {}, CAUSED, False, "xid 45"),
        ("DatasourceNoData", {"rulename": "GPU Xid"}, "XID 79 on gpu-1", False, "alert DatasourceNoData"),
        ("GpuXidErrors5m", {"gpu": "3"}, "x", True, "alert GpuXidErrors5m"),
        ("GpuXid", {"gpu": "3", "xid": "79", "severity": "sev1"}, "치명 XID 79", True, "xid 79"),
    ],
)
def test_an_alert(
    alertmanager: Sender, alert: Make, name: str, labels: dict[str, str], text: str, acts: bool, alias: str
) -> None:
    alertmanager.post(notification({**alert(name, **labels), "annotations": {"summary": text}}))
    row = Incident.objects.get()
    assert (is_matched(row, application_faults=False), row.alias) == (acts, alias)


@pytest.mark.parametrize(
    ("reason", "message", "weight", "alias"),
    [
        ("SysLogsXIDError", f"ErrorCode:13 kernel: {LOST.replace('79', '13')}", "program", 13),
        ("XIDError", f"Caught XID error, XID=31, GPU UUID={A}", "program", 31),
        ("NvidiaXID79Error", "detected XID-79", "node", 79),
        ("GpuUnhealthy", "GPU 3 is not healthy", "node", None),
    ],
)
def test_a_kubernetes_event_of_a_reason_that_is_named(
    reason: str, message: str, weight: str, alias: int | None
) -> None:
    parts = ("name", "uid", "involved_namespace", "component", "resource_version")
    told = {"namespace": "default", "reason": reason, "type": "Warning", "message": message, "count": 1}
    about = {"involved_kind": "Node", "involved_name": "gpu-1", "annotations": {}, "last_at": NOW}
    event = kube_events.SeenEvent(**dict.fromkeys(parts, "x"), **told, **about)
    seen = kube_events.read(event, wanted=(reason,), now=NOW)
    assert (seen.weight, seen.alias) == (weight, alias)


def test_a_health_event_whose_producer_asks_for_no_cordon(sentinel: Sender, health: Make) -> None:
    sentinel.post([health(quarantineOverrides={"force": False, "skip": True})])
    assert not is_matched(Incident.objects.get())


@pytest.mark.parametrize(("status", "healthy"), [("IMPAIRED", False), ("PENDING", False), ("UNIMPAIRED", True)])
def test_an_instance_that_an_issue_of_aws_does_not_touch(status: str, healthy: bool) -> None:
    event = aws_event("1", NOW - MINUTE, "i-0abcd111122223333", eventTypeCategory="issue")
    event["detail"]["affectedEntities"][0]["status"] = status
    [seen] = aws_health.read(event, now=NOW).observations
    assert seen.healthy == healthy


COUNT = {"__name__": "DCGM_EXP_XID_ERRORS_COUNT", "Hostname": "gpu-1", "gpu": "2", "UUID": B}
ALERTS = {"__name__": "ALERTS", "alertstate": "firing", "node": "gpu-1"}


def test_a_count_of_no_xids_is_no_fault() -> None:
    before, told = prometheus.Before(), []
    for series, value in ((COUNT, "0"), ({**COUNT, "xid": "79"}, "1"), (COUNT, "0")):
        rows = [{"metric": series, "value": [NOW.timestamp(), value]}]
        body = {"data": {"resultType": "vector", "result": rows}}
        answer = prometheus.read(body, query="DCGM_EXP_XID_ERRORS_COUNT", before=before, now=NOW)
        before = answer.after
        told.append([(one.alias, one.healthy) for one in answer.batch.observations])
    assert told == [[], [(79, False)], [(None, True)]]


@pytest.mark.parametrize(
    ("series", "weights"),
    [
        ({**ALERTS, "alertname": "GpuHot"}, ["node"]),
        ({**ALERTS, "alertname": "GpuHot", "alertstate": "pending"}, []),
        ({**ALERTS, "alertname": "InstanceDown", "job": "dcgm-exporter"}, ["monitor"]),
        ({**ALERTS, "alertname": "KubePodCrashLooping", "pod": "train-0"}, ["program"]),
        ({"__name__": "up", "node": "gpu-1", "job": "nvidia-dcgm-exporter"}, ["monitor"]),
    ],
)
def test_a_series_has_the_severity_of_its_alert(series: dict[str, str], weights: list[str]) -> None:
    value = "0" if series["__name__"] == "up" else "1"
    body = {"data": {"resultType": "vector", "result": [{"metric": series, "value": [NOW.timestamp(), value]}]}}
    answer = prometheus.read(body, query="x", before=prometheus.Before(), now=NOW)
    assert [one.weight for one in answer.batch.observations] == weights


# --- bad items


def test_bad_alerts_cost_only_themselves(alertmanager: Sender, alert: Make, now: datetime) -> None:
    good, old = alert(gpu="1"), {**alert(gpu="2"), "startsAt": stamp(now - timedelta(days=3))}
    ahead = {**alert(gpu="3"), "startsAt": stamp(now + timedelta(days=1))}
    number, cut = {**alert(gpu="4"), "labels": {"alertname": "X", "node": "gpu-1", "xid": 79}}, {"status": "firing"}
    odd, nul = {**alert(gpu="5"), "status": "suppressed"}, {**alert(gpu="6"), "annotations": {"summary": "a\0b"}}
    bad = [ahead, number, cut, odd, nul, alert(node="gone-3"), alert("G" * 129), None]
    accepted, duplicates, rejected = took(alertmanager.post(notification(good, *bad, good, old)))
    assert (accepted, duplicates, len(rejected)) == (2, 1, len(bad))
    assert open_devices() == ["gpu 1", "gpu 2"]


@pytest.mark.parametrize(
    "wrong",
    [{"generatedTimestamp": 1764442200000}, {"isFatal": "true"}, {"errorCode": "79"}, {"quarantineOverrides": True}],
)
def test_a_bad_health_event_costs_only_itself(health: Make, wrong: dict[str, Any]) -> None:
    given = [health("1", at=NOW), health("2", at=NOW, **wrong)]
    answer = health_events.read(given, content_type="application/json", headers={}, now=NOW)
    assert (len(answer.observations), len(answer.rejected)) == (1, 1)
