"""Reports as people have published them: whose device they are about, and how much they weigh."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.decisions import match
from kcover.policy import document
from kcover.sources import gpud, kube_events, prometheus
from kcover.sources.conditions import Condition, ConditionRule, read, rows_of
from kcover.sources.kube_events import SeenEvent
from kcover_portal.fleet.models import Cluster, Gpu, Node
from kcover_portal.incidents import queries
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.rescue.queries import gpu_names
from kcover_portal.sources.models import Source, ToldSeries
from tests.portal.sources.conftest import Sender, add, notification, pull
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_push import took
from tests.portal.sources.test_witnesses import agent_reports, names, xid

Make = Callable[..., dict[str, Any]]
A, B = "GPU-39891a06-be79-5aa5-8bf6-92a56c6403c9", "GPU-51a35b42-082a-5de9-a96c-4b15589f7db3"


def open_devices() -> list[str]:
    return sorted(Incident.objects.filter(state="open").values_list("device", flat=True))


def inventory(now: datetime) -> None:
    node = Node.objects.get(name="gpu-1")
    for index, uuid, pci in ((0, A, "00000000:18:00.0"), (2, B, "00000000:3A:00.0")):
        Gpu.objects.create(node=node, index=index, uuid=uuid, pci=pci, seen_at=now)


def is_matched(row: Incident, **selected: Any) -> bool:
    """Whether a rule for the whole kind of the incident, or for any Xid, acts on it."""
    kinds = [] if row.kind in ("xid", "sxid") else [row.kind]
    rule = document.Rule(index=0, priority=0, kinds=tuple(kinds), **selected)
    refusal = match.fault_refusal(
        rule, kind=row.kind, code=row.code, cause=row.cause, application=row.is_user_fault, harmless=row.is_harmless
    )
    return refusal is None


# --- devices


@pytest.mark.parametrize(
    ("one", "other", "keys"),
    [
        ({"gpu": "2", "device": "nvidia2"}, {"gpu": "5", "device": "nvidia5"}, ["gpu 2", "gpu 5"]),
        ({"gpu": "1"}, {"gpu": "11"}, ["gpu 1", "gpu 11"]),
        ({"gpu": "3"}, {"nvswitch": "3"}, ["gpu 3", "nvswitch 3"]),
        (
            {"device": "mlx5_0", "port": "1"},
            {"device": "mlx5_0", "port": "2"},
            ["nic mlx5_0 port 1", "nic mlx5_0 port 2"],
        ),
        ({"gpu": "2", "GPU_I_ID": "3"}, {"gpu": "2", "GPU_I_ID": "7"}, ["gpu 2 mig 3", "gpu 2 mig 7"]),
        ({"UUID": A}, {"pci_bus_id": "00000000:3A:00.0"}, [A, "0000:3a:00"]),
    ],
)
def test_inv_04_the_resolve_of_one_device_ends_no_other_devices_fault(
    alertmanager: Sender, alert: Make, one: dict[str, str], other: dict[str, str], keys: list[str]
) -> None:
    alertmanager.post(notification(alert("GPUXidErr", **one), alert("GPUXidErr", **other)))
    assert open_devices() == sorted(keys)
    alertmanager.post(notification(alert("GPUXidErr", status="resolved", **one)))
    assert open_devices() == [keys[1]]
    alertmanager.post(notification(alert("GPUXidErr", status="resolved", **other)))
    assert open_devices() == []


def entity(kind: str, value: str) -> list[dict[str, str]]:
    return [{"entityType": kind, "entityValue": value}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (entity("GPU", "3"), entity("NVSWITCH", "3")),
        (entity("GPU", "0"), entity("GPU", "1")),
        (entity("GPU", "1"), entity("GPU", "6")),
        (entity("NIC", "mlx5_0") + entity("NICPort", "1"), entity("NIC", "mlx5_0") + entity("NICPort", "2")),
        (entity("GPU_UUID", A), entity("GPU_UUID", B)),
        ([], entity("GPU", "4")),
    ],
)
def test_inv_04_the_recovery_of_an_entity_ends_no_other_entitys_fault(
    sentinel: Sender, health: Make, one: list[dict[str, str]], other: list[dict[str, str]]
) -> None:
    given = {"checkName": "GpuNvlinkWatch", "errorCode": ["DCGM_FR_NVLINK_DOWN"]}
    sentinel.post([health("1", entitiesImpacted=one, **given), health("2", entitiesImpacted=other, **given)])
    before = open_devices()
    assert len(before) == 2
    over = {**given, "isHealthy": True, "isFatal": False, "errorCode": [], "recommendedAction": 0}
    sentinel.post([health("3", entitiesImpacted=other, **over)])
    left = open_devices()
    assert len(left) == 1
    sentinel.post([health("4", entitiesImpacted=[], **over)])
    assert open_devices() == []


def test_one_event_about_two_gpus_is_two_faults(sentinel: Sender, health: Make) -> None:
    sentinel.post([health("1", entitiesImpacted=entity("GPU", "1") + entity("GPU", "6"), checkName="GpuMemWatch")])
    assert open_devices() == ["gpu 1", "gpu 6"]


@pytest.mark.postgres(reason="SQLite does not count the characters of a column")
def test_inv_04_the_recovery_of_one_link_of_many_ends_no_other_links_fault(sentinel: Sender, health: Make) -> None:
    """Nor is the request refused because the names of all links together do not fit into a column."""
    switch = entity("NVSWITCH", "0") + entity("PCI", "0000:c4:00.0")
    links = [entity("NVLINK", str(link)) for link in range(18)]
    given = {"checkName": "NvSwitchWatch", "errorCode": ["DCGM_FR_NVLINK_DOWN"]}
    sentinel.post([health("1", entitiesImpacted=sum(links, switch), **given)])
    assert open_devices() == sorted(f"0000:c4:00 link {link}" for link in range(18))
    over = {**given, "isHealthy": True, "isFatal": False, "errorCode": [], "recommendedAction": 0}
    sentinel.post([health("2", entitiesImpacted=switch + links[0], **over)])
    assert open_devices() == sorted(f"0000:c4:00 link {link}" for link in range(1, 18))


def test_a_number_names_the_gpu_of_the_inventory(
    alertmanager: Sender, sentinel: Sender, alert: Make, health: Make, now: datetime
) -> None:
    """The alert names the GPU by its number, the event by its UUID; the kernel printed the slot."""
    inventory(now)
    agent_reports(sentinel.source.cluster, xid(pci="0000:3a:00", message="NVRM: Xid (PCI:0000:3a:00): 79, x"), at=now)
    alertmanager.post(notification(alert("GPUXid", gpu="2", err_code="79")))
    sentinel.post([health(entitiesImpacted=entity("GPU_UUID", B))])
    row = Incident.objects.get(state="open")
    assert (row.kind, row.code, row.device, row.gpu_uuid) == ("xid", "79", "0000:3a:00", B)
    assert sorted(witness for witness, _ in names(row)) == ["agent", "alertmanager", "nvsentinel"]


@pytest.mark.parametrize("is_xid", [False, True])
def test_a_number_alone_is_no_gpu_to_act_on(alertmanager: Sender, alert: Make, now: datetime, is_xid: bool) -> None:
    """If a GPU is gone after a reboot, its number is another GPU's."""
    inventory(now)
    alertmanager.post(notification(alert("GpuHot", gpu="2"), alert("GpuHot", pci_bus_id="0000:18:00.0")))
    if is_xid:
        Incident.objects.update(kind="xid", code="79")
    by_slot, by_number = Incident.objects.order_by("device")
    slots = gpu_names.slots_of(by_slot.node)
    assert (by_number.device, by_slot.device) == ("0000:3a:00", "0000:18:00")
    assert gpu_names.of_fault(by_slot, slots) == {"gpu_uuid": A}
    assert gpu_names.of_fault(by_number, slots) is None


def test_a_fault_from_before_the_inventory_ends_by_the_number_it_had(
    alertmanager: Sender, alert: Make, now: datetime
) -> None:
    alertmanager.post(notification(alert("GpuHot", gpu="2"), alert("GpuHot", gpu="0")))
    assert open_devices() == ["gpu 0", "gpu 2"]
    inventory(now)
    alertmanager.post(notification(alert("GpuHot", status="resolved", gpu="2")))
    assert open_devices() == ["gpu 0"]


def of_an_older_portal(device: str, *, count: int = 1) -> None:
    """It stored no time before which the fault did not happen, and knew fewer devices."""
    Occurrence.objects.update(earliest_at=None)
    Incident.objects.update(device=device, count=count)
    ToldSeries.objects.all().delete()


@pytest.mark.parametrize(
    ("stored", "labels"),
    [
        ("", {"gpu": "2"}),
        ("", {"device": "mlx5_0", "port": "1"}),
        ("0000:3a:00", {"pci_bus_id": "0000:3a:00.0", "GPU_I_ID": "7"}),
        (B.upper(), {"UUID": B}),
    ],
)
def test_an_alert_that_an_older_portal_stored_ends(
    alertmanager: Sender, alert: Make, stored: str, labels: dict[str, str]
) -> None:
    alertmanager.post(notification(alert("GpuHot", **labels)))
    of_an_older_portal(stored)
    alertmanager.post(notification(alert("GpuHot", status="resolved", **labels)))
    assert open_devices() == []


def test_an_alert_that_an_older_portal_stored_does_not_end_with_another_one(alertmanager: Sender, alert: Make) -> None:
    alertmanager.post(notification(alert("GpuHot", gpu="2")))
    of_an_older_portal("", count=2)
    alertmanager.post(notification(alert("GpuHot", status="resolved", gpu="2")))
    assert open_devices() == [""], "it may be of two GPUs"
    of_an_older_portal("")
    alertmanager.post(notification(alert("GpuHot", gpu="5")))
    alertmanager.post(notification(alert("GpuHot", status="resolved", gpu="5")))
    assert open_devices() == [""], "the other one has an incident of its own"


def test_many_ends_in_one_request_read_the_inventory_once(
    alertmanager: Sender, alert: Make, django_assert_max_num_queries: Any
) -> None:
    links = [{"gpu": str(link // 6), "link": str(link % 6)} for link in range(48)]
    alertmanager.post(notification(*(alert("LinkDown", **labels) for labels in links)))
    assert len(open_devices()) == 48
    with django_assert_max_num_queries(500):
        alertmanager.post(notification(*(alert("LinkDown", status="resolved", **labels) for labels in links)))
    assert open_devices() == []


# --- the node


@pytest.mark.parametrize(
    "labels",
    [
        {"node": "gpu-2", "exported_node": "gpu-1"},
        {"Hostname": "gpu-2", "node": "gpu-2", "exported_node": "gpu-1"},
        {"node": "gpu-2", "exported_Hostname": "gpu-1"},
        {"kubernetes_node": "gpu-2", "exported_kubernetes_node": "gpu-1", "instance": "10.0.0.1:8080"},
        {"node": "gpu-1", "exported_node": ""},
    ],
)
def test_an_exported_label_names_the_subject(alertmanager: Sender, alert: Make, labels: dict[str, str]) -> None:
    given = alert("KubeNodeUnreachable")
    given["labels"] = {"alertname": "KubeNodeUnreachable", "severity": "critical", **labels}
    assert took(alertmanager.post(notification(given))) == (1, 0, [])
    assert Incident.objects.get().node == Node.objects.get(name="gpu-1")


# --- weight


@pytest.mark.parametrize(
    ("labels", "kinds", "kinds_without_programs"),
    [
        ({"err_code": "43", "err_msg": "GPU stopped processing"}, True, False),
        ({"xid": "43"}, True, False),
        ({"XID": "13"}, True, False),
        ({"err_code": "79"}, True, True),
        ({"err_code": "51"}, False, False),
        ({"xid": "162"}, False, False),
        ({"severity": "info"}, False, False),
        ({"severity": "NONE"}, False, False),
        ({"severity": "Warning"}, True, True),
        ({}, True, True),
    ],
)
def test_a_rule_for_all_alerts_acts_on_alerts_of_the_node(
    alertmanager: Sender, alert: Make, labels: dict[str, str], kinds: bool, kinds_without_programs: bool
) -> None:
    given = alert("GPUXid")
    given["labels"] |= labels
    alertmanager.post(notification(given))
    row = Incident.objects.get()
    assert (is_matched(row), is_matched(row, application_faults=False)) == (kinds, kinds_without_programs)


@pytest.mark.parametrize("name", ["DCGMExporterDown", "TargetDown", "NvidiaDcgmExporterMissing"])
def test_an_alert_about_the_monitor_is_no_fault_of_the_node(alertmanager: Sender, alert: Make, name: str) -> None:
    alertmanager.post(notification(alert(name)))
    row = Incident.objects.get()
    assert (row.severity, is_matched(row), queries.faults_since(row.node, row.opened_at)) == ("info", False, [])


@pytest.mark.parametrize(
    ("check", "code", "fatal", "action", "severity", "is_fault"),
    [
        ("GpuMemWatch", "X", False, 0, "info", False),
        ("GpuMemWatch", "X", False, "NONE", "info", False),
        ("GpuMemWatch", "X", False, 5, "warning", True),
        ("GpuMemWatch", "X", True, 0, "fatal", True),
        ("GpuMemWatch", "X", True, 39, "fatal", False),
        ("SysLogsXIDError", "13", True, 0, "fatal", False),
        ("SysLogsXIDError", "79", True, 24, "fatal", True),
        ("SysLogsXIDError", "51", True, 24, "info", False),
        ("GpuDcgmConnectivityFailure", "DCGM_CONNECTIVITY_ERROR", True, 5, "info", False),
        ("GpuDcgmUnresponsive", "DCGM_PROBE_HANG", True, 24, "fatal", True),
    ],
)
def test_the_weight_of_a_health_event(
    sentinel: Sender, health: Make, check: str, code: str, fatal: bool, action: object, severity: str, is_fault: bool
) -> None:
    sentinel.post([health(checkName=check, errorCode=[code], isFatal=fatal, recommendedAction=action)])
    row = Incident.objects.get()
    assert (row.severity, row.is_user_fault) == (severity, not is_fault)
    assert is_matched(row, application_faults=False) == is_fault


@pytest.mark.parametrize(
    ("fatal", "action", "is_fault"), [(False, 0, False), (False, 99, False), (False, 2, True), (True, 5, True)]
)
def test_a_text_does_not_outweigh_an_advice_or_a_fatal_flag(
    sentinel: Sender, health: Make, fatal: bool, action: int, is_fault: bool
) -> None:
    given = {"message": "link state is not supported", "isFatal": fatal, "recommendedAction": action}
    sentinel.post([health(checkName="GpuNvlinkWatch", errorCode=["X"], **given)])
    assert is_matched(Incident.objects.get()) == is_fault


@pytest.mark.parametrize(("own", "weight"), [(True, "node"), (False, "monitor")])
def test_a_text_does_not_outweigh_the_operators_table(now: datetime, own: bool, weight: str) -> None:
    row = {"type": "DiskBad", "status": "True", "reason": "", "for": 0, "severity": "degraded"}
    rows = rows_of({"table": [row], "presets": []}) if own else (ConditionRule(type="DiskBad", severity="degraded"),)
    condition = Condition(type="DiskBad", status="True", reason="Bad", message="trim is not supported", since=now)
    [seen] = read("gpu-1", [condition], rows, now=now)
    assert seen.weight == weight


@pytest.mark.parametrize(
    ("kind", "reason", "severity", "weight"),
    [
        ("Normal", "NodeHasDiskPressure", "info", "info"),
        ("Warning", "GpuUnhealthy", "warning", "node"),
        ("Normal", "XidError", "degraded", "node"),
    ],
)
def test_the_weight_of_a_kubernetes_event(now: datetime, kind: str, reason: str, severity: str, weight: str) -> None:
    event = SeenEvent(
        **dict.fromkeys(("name", "uid", "involved_namespace", "component", "resource_version"), "x"),
        namespace="default",
        reason=reason,
        type=kind,
        message="pci:0000:03:00, xid:62, log: Channel 00000001",
        count=1,
        involved_kind="Node",
        involved_name="gpu-1",
        annotations={},
        last_at=now,
    )
    seen = kube_events.read(event, wanted=(reason,), now=now)
    assert (seen.severity, seen.weight) == (severity, weight)


@pytest.mark.parametrize(
    ("component", "state", "runtime", "weight"),
    [
        ("docker", {"reason": "docker installed but docker service is not active"}, "containerd", "monitor"),
        ("docker", {"reason": "docker installed but docker service is not active or failed to check"}, "", "monitor"),
        ("docker", {"reason": "failed to list containers"}, "containerd", "monitor"),
        ("docker", {"reason": "failed to list containers"}, "docker", "node"),
        ("containerd", {"reason": "containerd service is not active"}, "containerd", "node"),
        ("containerd", {"reason": "containerd service is not active"}, "cri-o", "monitor"),
        ("accelerator-nvidia-dcgm", {"reason": "failed to connect to dcgm"}, "containerd", "monitor"),
        ("accelerator-nvidia-error-xid", {"reason": "XID 43 detected on GPU PCI:0000:2a:00"}, "", "program"),
        ("accelerator-nvidia-error-xid", {"reason": "XID 48 (Double Bit ECC Error) on PCI:0000:2a:00"}, "", "node"),
        ("x", {"suggested_actions": {"repair_actions": ["IGNORE_NO_ACTION_REQUIRED"]}}, "", "info"),
        ("x", {"suggested_actions": {"repair_actions": ["CHECK_USER_APP_AND_GPU"]}}, "", "program"),
        ("x", {"reason": "fabric manager is not installed"}, "", "monitor"),
        (
            "x",
            {"reason": "mode not supported", "suggested_actions": {"repair_actions": ["REBOOT_SYSTEM"]}},
            "",
            "node",
        ),
        ("x", {"suggested_actions": {"repair_actions": ["CHECK_USER_APP_AND_GPU", "REBOOT_SYSTEM"]}}, "", "node"),
    ],
)
def test_the_weight_of_a_state_of_gpud(
    now: datetime, component: str, state: dict[str, Any], runtime: str, weight: str
) -> None:
    states = [{"component": component, "states": [{"name": "x", "health": "Unhealthy", **state}]}]
    found = gpud.read(states, [], node="gpu-1", runtime=runtime, shown={}, now=now)
    [seen] = found.batch.observations
    assert (seen.weight, seen.severity == "info") == (weight, weight in ("monitor", "info"))


@pytest.mark.parametrize(
    ("given", "weight", "alias"),
    [
        ({"type": "XidCriticalError", "reason": '{"79":true}'}, "node", 79),
        ({"type": "XidCriticalError", "reason": '{"43":true}'}, "program", 43),
        ({"type": "XidCriticalError", "reason": '{"79":false}'}, "node", None),
        ({"type": "GpuXid", "reason": "GpuXidBad", "message": "Xid 94 seen"}, "node", 94),
        ({"type": "UnhealthyNvidiaDCGMServices", "reason": "Down"}, "monitor", None),
    ],
)
def test_the_weight_of_a_condition(now: datetime, given: dict[str, str], weight: str, alias: int | None) -> None:
    row = ConditionRule(type=given["type"], severity="fatal")
    [seen] = read("gpu-1", [Condition(status="True", since=now, **given)], [row], now=now)
    assert (seen.weight, seen.alias) == (weight, alias)


# --- one fault, several names


@pytest.mark.parametrize("later", [timedelta(seconds=5), timedelta(minutes=4)])
def test_an_alert_with_an_xid_beside_the_kernels_line_is_one_fault(
    alertmanager: Sender, alert: Make, now: datetime, later: timedelta
) -> None:
    """The rule of the alert has a ``for`` of minutes."""
    agent_reports(alertmanager.source.cluster, xid(), at=now - later)
    alertmanager.post(notification(alert("GPUXid", err_code="79", pci_bus_id="00000000:4E:00.0")))
    row = Incident.objects.get()
    assert (row.kind, row.code, names(row)) == ("xid", "79", [("agent", 1), ("alertmanager", 1)])


NONFATAL = (
    "NVRM: Xid (PCI:0000:4e:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 "
    "(0x04084507 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)"
)


@pytest.mark.parametrize("kernel_first", [True, False])
def test_the_severity_of_the_kernel_outweighs_that_of_a_monitor(
    sentinel: Sender, health: Make, now: datetime, kernel_first: bool
) -> None:
    event = health(checkName="GpuNvlinkWatch", errorCode=["DCGM_FR_XID_ERROR"], message="GPU 0 had an XID 145")

    def monitor() -> None:
        sentinel.post([event])

    def kernel() -> None:
        agent_reports(sentinel.source.cluster, xid(code=145, message=NONFATAL), at=now)

    for tell in (kernel, monitor) if kernel_first else (monitor, kernel):
        tell()
    row = Incident.objects.get()
    assert (row.kind, row.code, row.is_user_fault) == ("xid", "145", True)
    assert sorted(witness for witness, _ in names(row)) == ["agent", "nvsentinel"]


def vector(*values: tuple[dict[str, str], str], now: datetime) -> Any:
    series = [{"metric": labels, "value": [now.timestamp(), value]} for labels, value in values]
    return {"data": {"resultType": "vector", "result": series}}


def exporter(port: int, **more: str) -> dict[str, str]:
    gpu = {"Hostname": "gpu-1", "gpu": "2", "UUID": B, "pci_bus_id": "00000000:3a:00.0", "device": "nvidia2"}
    return {"__name__": "DCGM_FI_DEV_XID_ERRORS", **gpu, "instance": f"10.0.0.1:{port}", **more}


def test_two_exporters_of_one_gpu_each_have_a_last_xid(now: datetime) -> None:
    before = prometheus.Before()

    def told(*values: tuple[dict[str, str], str]) -> list[Any]:
        nonlocal before
        read = prometheus.read(vector(*values, now=now), query="DCGM_FI_DEV_XID_ERRORS", before=before, now=now)
        before = read.after
        return [one.code for one in read.batch.observations]

    a, b = exporter(9400, pod="a"), exporter(9401, pod="b")
    assert told((a, "43"), (b, "48")) == [43, 48]
    assert told((b, "48"), (a, "43")) == []
    assert told((b, "48")) == []
    assert told((a, "43"), (b, "48")) == []  # the exporter that was silent comes back as it was
    assert told((a, "79"), (b, "48")) == [79]
    assert told((a, "79"), (b, "79")) == []  # the other one has heard of it, too
    assert told((exporter(9400, pod="c"), "79"), (b, "79")) == []
    assert told((a, "0"), (b, "0")) == []
    assert told((a, "43"), (b, "0")) == [43]


def test_values_that_an_earlier_version_reported_are_not_reported_again(now: datetime) -> None:
    before = prometheus.Before(shown={"gpu-1\txid\t0000:3a:00": "43"})
    read = prometheus.read(
        vector((exporter(9400), "43"), now=now), query="DCGM_FI_DEV_XID_ERRORS", before=before, now=now
    )
    assert read.batch.observations == ()


@pytest.mark.parametrize("answers", [1, 2])
def test_a_number_that_an_earlier_version_reported_is_not_reported_again(now: datetime, answers: int) -> None:
    """Even if its exporter does not answer at first."""
    series = {"__name__": "DCGM_FI_DEV_XID_ERRORS", "Hostname": "gpu-1", "gpu": "2"}
    before = prometheus.Before(shown={"gpu-1\txid\t2": "79"})
    for value in ("79",) if answers == 1 else (None, "79"):
        answer = vector(*([(series, value)] if value else []), now=now)
        read = prometheus.read(answer, query="DCGM_FI_DEV_XID_ERRORS", before=before, now=now)
        assert read.batch.observations == ()
        before = read.after
    assert list(before.shown) == ["gpu-1\txid\tgpu 2"]


def test_standing_alerts_that_an_earlier_version_reported_stay_open_until_their_end(
    east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    """An earlier version saw no device in some labels, and stored neither the time nor the device."""

    def ib(adapter: str) -> tuple[dict[str, str], str]:
        return {"__name__": "IbDown", "node": "gpu-1", "device": adapter, "port": "1"}, "1"

    source = add(east, "prometheus", now=now, url=f"{stand_ins.url}", query="IbDown > 0")

    def answered(*values: tuple[dict[str, str], str]) -> list[str]:
        nonlocal now, source
        now += timedelta(seconds=30)
        stand_ins.troubles.append(Answered(body=json.dumps(vector(*values, now=now)).encode()))
        source = pull(source, at=now)
        return open_devices()

    first, hot = (({"__name__": "IbDown", "node": node}, "1") for node in ("gpu-1", "gpu-2"))
    stand_ins.troubles.append(Answered(body=json.dumps(vector(now=now)).encode()))  # of the hour before
    assert answered(first, hot) == ["", ""]
    shown = {"gpu-1\tIbDown\t": "1", "gpu-2\tIbDown\t4": "1"}
    Source.objects.update(cursor={**source.cursor, "shown": shown, "at": None})
    assert answered(ib("mlx5_0"), ib("mlx5_1"), hot) == ["", ""]
    assert answered(ib("mlx5_0"), ib("mlx5_2")) == ["", "nic mlx5_2 port 1"]
    assert answered(ib("mlx5_0")) == [""]
    assert answered() == []


def test_a_series_without_a_device_ends_no_other_series(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    before = prometheus.Before(at=now, shown={"gpu-1\tIbDown\t": "1"})
    series = {"__name__": "IbDown", "node": "gpu-1", "device": "mlx5_0"}
    read = prometheus.read(vector((series, "1"), now=now), query="IbDown", before=before, now=now)
    assert [(one.healthy, one.device.key) for one in read.batch.observations] == [(False, "nic mlx5_0")]


def test_a_last_xid_of_a_program_is_no_fault_of_the_node(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    source = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus")
    for values in ((), ((exporter(9400), "43"),)):
        stand_ins.troubles.append(Answered(body=json.dumps(vector(*values, now=now)).encode()))
    pull(source, at=now)
    row = Incident.objects.get()
    assert (row.kind, row.code, row.is_user_fault, row.device) == ("xid", "43", True, "0000:3a:00")


@pytest.mark.parametrize("codes", [["31", "79"], ["79", "31"]])
def test_an_event_about_several_xids_hides_none(sentinel: Sender, health: Make, codes: list[str]) -> None:
    sentinel.post(health(errorCode=codes, message="two lines"))
    row = Incident.objects.get()
    assert (row.code, row.is_user_fault, row.alias) == ("SysLogsXIDError", False, "health SysLogsXIDError")


def test_an_event_without_a_time_of_its_own_has_that_of_its_envelope(sentinel: Sender, health: Make) -> None:
    """Protobuf writes the epoch for a time that was left out."""
    assert took(sentinel.post(health(generatedTimestamp="1970-01-01T00:00:00Z"))) == (1, 0, [])
    assert Incident.objects.filter(state="open").count() == 1
