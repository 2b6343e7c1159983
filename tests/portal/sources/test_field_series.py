"""Series as exporters show them: of GPUs that had no Xid, of pods in place of nodes, with other names of devices."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.faults.weight import named_xids
from kcover.sources import prometheus
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.sources.models import Source
from tests.portal.sources.conftest import Sender, add, notification, pull
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_field_reports import A, B, open_devices
from tests.portal.sources.test_late_reports import boots, rebooted

__all__ = ["rebooted"]
Make = Callable[..., dict[str, Any]]
XIDS, POD = "DCGM_FI_DEV_XID_ERRORS", "nvidia-dcgm-exporter-x2k4d"
ONE = {"Hostname": "gpu-1", "gpu": "0", "UUID": A, "pci_bus_id": "00000000:18:00.0", "job": "dcgm-exporter"}
OTHER = {"Hostname": "gpu-1", "gpu": "2", "UUID": B, "pci_bus_id": "00000000:3A:00.0", "job": "dcgm-exporter"}


class Exporter:
    """A Prometheus that has read these series, which are pairs of labels and a value."""

    def __init__(self, cluster: Cluster, others: StandIns, *, now: datetime) -> None:
        self.others = others
        self.row: Source = add(cluster, "prometheus", now=now, url=f"{others.url}/prometheus")
        self._answer(now)  # what was an hour ago

    def _answer(self, at: datetime, *series: tuple[dict[str, str], str]) -> None:
        rows = [{"metric": {"__name__": XIDS, **labels}, "value": [at.timestamp(), value]} for labels, value in series]
        body = {"data": {"resultType": "vector", "result": rows}}
        self.others.troubles.append(Answered(body=json.dumps(body).encode()))

    def at(self, moment: datetime, *series: tuple[dict[str, str], str]) -> None:
        self._answer(moment, *series)
        self.row = pull(self.row, at=moment)


@pytest.mark.parametrize(
    ("before", "appears", "boot"),
    [
        ([(ONE, "0")], (OTHER, "79"), "boot-2"),
        ([], (OTHER, "79"), "boot-1"),  # nobody knows whether the exporter was read
        ([({**ONE, "job": "gpu-metrics"}, "0")], (OTHER, "79"), "boot-1"),
        ([({**ONE, "Hostname": "gpu-2"}, "0")], (OTHER, "79"), "boot-1"),
    ],
)
def test_a_gpu_that_is_shown_with_its_first_xid(
    east: Cluster,
    rebooted: datetime,
    stand_ins: StandIns,
    before: list[tuple[dict[str, str], str]],
    appears: tuple[dict[str, str], str],
    boot: str,
) -> None:
    exporter = Exporter(east, stand_ins, now=rebooted)
    for seconds in (200, 230):
        exporter.at(rebooted + timedelta(seconds=seconds), *before)
    exporter.at(rebooted + timedelta(seconds=260), *before, appears)
    assert boots() == [boot]


def test_a_gpu_whose_old_xid_gets_another_name_has_no_new_one(
    east: Cluster, rebooted: datetime, stand_ins: StandIns
) -> None:
    exporter = Exporter(east, stand_ins, now=rebooted)
    exporter.at(rebooted - timedelta(seconds=60), (ONE, "0"), (OTHER, "79"))
    exporter.at(rebooted + timedelta(seconds=200), (ONE, "0"), (OTHER, "79"))
    renamed = {name: value for name, value in OTHER.items() if name not in ("UUID", "pci_bus_id")}
    exporter.at(rebooted + timedelta(seconds=230), (ONE, "0"), (renamed, "79"))
    assert "boot-2" not in boots()


@pytest.mark.parametrize("beside", [{"node": "gpu-1", "pod": POD}, {"kubernetes_node": "gpu-1", "pod": "train-0"}])
def test_the_exporters_pod_is_no_node(now: datetime, beside: dict[str, str]) -> None:
    labels = {"__name__": XIDS, "gpu": "2", "Hostname": POD, **beside}
    body = {"data": {"resultType": "vector", "result": [{"metric": labels, "value": [now.timestamp(), "79"]}]}}
    [seen] = prometheus.read(body, query=XIDS, before=prometheus.Before(), now=now).batch.observations
    assert seen.node == "gpu-1"


def test_the_address_of_a_device_by_the_names_of_other_exporters(alertmanager: Sender, alert: Make) -> None:
    one, other = ({"id": str(index), "pcie_bus_info": f"0000:{bus}:00.0"} for index, bus in ((0, "61"), (1, "DB")))
    alertmanager.post(notification(alert("NpuUnhealthy", **one), alert("NpuUnhealthy", **other)))
    assert open_devices() == ["0000:61:00", "0000:db:00"]


@pytest.mark.parametrize(
    ("text", "xids"),
    [
        ("One of XID 48|63|79 occurred", {48, 63, 79}),
        ("the last XID was 43", {43}),
        ("XID no. 79 on gpu-1", {79}),
        ("Xid: `79`", {79}),
        ("XID [79] GPU 2", {79}),
        ("Xid errors (last 5m): 4", set()),
        ("13 XID errors in 5m", set()),
    ],
)
def test_an_xid_is_read_as_templates_print_it(text: str, xids: set[int]) -> None:
    assert named_xids(text) == xids


@pytest.mark.parametrize(
    ("text", "xids"),
    [
        ("Watch the trend; act only if it escalates to a DBE (Xid 48) or a remap failure.", set()),
        ("High single-bit ECC error rate. Often a precursor to uncorrectable (XID 48) errors", set()),
        ("If it goes on, the GPU may fall off the bus (Xid 79)", set()),
        ("Ignore Xid 43 and 31, which are of programs. XID 79 detected", {79}),
        ("XID 13 on gpu-1: usually the application, drain it if it repeats", {13}),
        ("The GPU may have fallen off the bus (XID 79)", {79}),
        ("NVRM: Xid (PCI:0000:3a:00): 79, pid=1, GPU has fallen off the bus.", {79}),
        ("GPU 过热，可能会掉卡（XID 79）", set()),
    ],
)
def test_an_xid_in_the_conditional_is_no_xid(text: str, xids: set[int]) -> None:
    assert named_xids(text) == xids


def test_a_rule_for_an_xid_does_not_act_on_a_text_that_explains(alertmanager: Sender, alert: Make) -> None:
    notes = {"summary": "GPU 2 is hot", "description": "If it goes on, the GPU may fall off the bus (Xid 79)"}
    alertmanager.post(notification({**alert("GPUHot", gpu="2"), "annotations": notes}))
    assert Incident.objects.get().alias == "alert GPUHot"
