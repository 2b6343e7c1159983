"""The words in which other systems tell of a fault, beside those of their own documentation."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kcover.faults import kernel_line
from kcover.faults.weight import Weight
from kcover.sources import gpud
from kcover.sources.impacted import devices
from kcover_portal.incidents.models import Incident
from tests.portal.sources.conftest import Sender, notification

Make = Callable[..., dict[str, Any]]
CLEAR = "NVRM: Xid (PCI:0000:4e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
NEEDED = "NVRM: Xid (PCI:0000:4e:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


@pytest.mark.django_db
@pytest.mark.parametrize(("line", "count"), [(CLEAR, 0), (NEEDED, 1)])
def test_an_all_clear_of_the_driver_is_no_fault_by_whatever_name(
    sentinel: Sender, health: Make, line: str, count: int
) -> None:
    sentinel.post([health(errorCode=["154"], message=line)])
    assert Incident.objects.count() == count


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("codes", "is_user_fault", "alias"),
    [
        (["145.RLW_SRC_TRACK"], False, "xid 145"),
        (["43", "45"], True, "health SysLogsXIDError"),
        (["43", "79"], False, "health SysLogsXIDError"),
    ],
)
def test_codes_of_xids_weigh_as_the_catalog_says(
    sentinel: Sender, health: Make, codes: list[str], is_user_fault: bool, alias: str
) -> None:
    sentinel.post([health(errorCode=codes, message="see the log")])
    row = Incident.objects.get()
    assert (row.is_user_fault, row.alias) == (is_user_fault, alias)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "labels", "weight"),
    [
        ("KubePodCrashLooping", {"pod": "train-0", "namespace": "a"}, Weight.PROGRAM),
        ("KubeJobFailed", {"job_name": "train"}, Weight.PROGRAM),
        ("KubePodCrashLooping", {"pod": "nvidia-dcgm-exporter-x2k4d"}, Weight.MONITOR),
        ("KubeDaemonSetRolloutStuck", {"daemonset": "nvidia-dcgm-exporter"}, Weight.MONITOR),
        ("InstanceDown", {"job": "dcgm-exporter"}, Weight.MONITOR),
        ("InstanceDown", {"job": "kubelet"}, Weight.NODE),
        ("KubeNodeNotReady", {}, Weight.NODE),
        ("GpuEccErrors", {"pod": "nvidia-dcgm-exporter-x2k4d"}, Weight.NODE),  # the exporter only tells of it
    ],
)
def test_an_alert_about_a_workload_is_no_fault_of_its_node(
    alertmanager: Sender, alert: Make, name: str, labels: dict[str, str], weight: Weight
) -> None:
    alertmanager.post(notification(alert(name, **labels)))
    row = Incident.objects.get()
    is_info = row.severity == "info"
    assert (row.is_user_fault, is_info) == (weight is not Weight.NODE, weight is Weight.MONITOR)


@pytest.mark.parametrize(
    ("entities", "keys"),
    [
        ([("V1/NODE", "gpu-2")], []),
        ([("NODE", "gpu2")], []),
        ([("HOSTNAME", "nvidia3")], []),
        ([("GPU", "nvidia3")], ["gpu 3"]),
        ([("NVLINK", "3")], ["link 3"]),
        ([("GPU", "2"), ("NVLINK", "3")], ["gpu 2 link 3"]),
    ],
)
def test_an_entity_is_a_device_or_the_node(entities: list[tuple[str, str]], keys: list[str]) -> None:
    assert [device.key for device in devices(entities)] == keys


def test_a_gpud_component_that_has_not_looked_yet_reports_no_recovery(now: datetime) -> None:
    component = "accelerator-nvidia-ecc"
    state = {"name": "ecc", "health": "Healthy", "reason": "No data yet"}
    shown = {f"{component}\tecc": "Unhealthy  None"}
    found = gpud.read([{"component": component, "states": [state]}], [], node="gpu-1", shown=shown, now=now)
    assert (found.batch.observations, found.shown) == ((), shown)


@pytest.mark.parametrize(("runtime", "severity"), [("containerd", "fatal"), ("cri-o", "info")])
def test_the_nodes_own_runtime_is_needed(now: datetime, runtime: str, severity: str) -> None:
    reason = "containerd installed but containerd service is not active"
    states = [{"component": "containerd", "states": [{"name": "c", "health": "Unhealthy", "reason": reason}]}]
    [seen] = gpud.read(states, [], node="gpu-1", runtime=runtime, shown={}, now=now).batch.observations
    assert seen.severity == severity


def test_an_xid_in_the_details_of_a_gpud_event(now: datetime) -> None:
    event = {
        "time": now.isoformat(),
        "name": "error_xid",
        "type": "Fatal",
        "message": "an error",
        "extra_info": {"xid": "43"},
    }
    events = [{"component": "accelerator-nvidia-error-xid", "events": [event]}]
    [seen] = gpud.read([], events, node="gpu-1", shown={}, now=now).batch.observations
    assert (seen.alias, seen.weight) == (43, Weight.PROGRAM)


@pytest.mark.parametrize(
    ("line", "is_own"),
    [
        ("3,1123,412312312,-;NVRM: Xid (PCI:0000:4e:00): 79, pid=1", True),
        ("12,1123,412312312,-;NVRM: Xid (PCI:0000:4e:00): 79, pid=1", False),  # facility 1: a program
    ],
)
def test_a_record_of_the_ring_buffer_is_the_kernels(line: str, is_own: bool) -> None:
    assert kernel_line.is_of_kernel(line) == is_own
