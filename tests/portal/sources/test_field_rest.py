"""More reports as other systems write them: values that are none, ends that are none, labels that change.

And what others tell while a rescue is under way.
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources import prometheus
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import held_passes
from tests.portal.rescue import agents
from tests.portal.rescue.world import NODE, World
from tests.portal.sources.conftest import Sender, add, notification, pull, stamp
from tests.portal.sources.stand_ins import Answered, StandIns
from tests.portal.sources.test_field_reports import B, inventory, open_devices
from tests.portal.sources.test_late_reports import boots, rebooted
from tests.portal.sources.test_push import took

__all__ = ["rebooted"]
Make = Callable[..., dict[str, Any]]
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
XIDS, HOT = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_GPU_TEMP"
GPU = {"Hostname": "gpu-1", "gpu": "2", "UUID": B, "pci_bus_id": "00000000:3A:00.0"}


class Read:
    """A Prometheus whose series the test gives; each reading is one of them, or of none."""

    def __init__(self, cluster: Cluster, others: StandIns, *, now: datetime, **given: str) -> None:
        self.others, self.name = others, XIDS if "query" not in given else HOT
        self.row: Source = add(cluster, "prometheus", now=now, url=f"{others.url}/prometheus", **given)
        self._answer()  # what was an hour ago

    def _answer(self, *rows: dict[str, Any]) -> None:
        body = {"data": {"resultType": "vector", "result": list(rows)}}
        self.others.troubles.append(Answered(body=json.dumps(body).encode()))

    def at(self, moment: datetime, value: str = "", **labels: str) -> None:
        series = {"metric": {"__name__": self.name, **GPU, **labels}, "value": [moment.timestamp(), value]}
        self._answer(*([series] if value else []))
        self.row = pull(self.row, at=moment)


# --- Prometheus


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-1", "0.5", "2147483632", "9223372036854775792"])
def test_an_invalid_value_ends_nothing_and_the_last_xid_is_reported_once(
    east: Cluster, now: datetime, stand_ins: StandIns, odd: str
) -> None:
    read = Read(east, stand_ins, now=now)
    for number, value in enumerate(("79", odd, odd, "79", "62")):
        read.at(now + number * 30 * SECOND, value)
    assert list(Incident.objects.order_by("pk").values_list("code", "count")) == [("79", 1), ("62", 1)]


def test_a_value_that_is_no_xid_between_two_boots(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    read = Read(east, stand_ins, now=now)
    for seconds, value in ((-60, "79"), (10, "NaN"), (70, "NaN"), (130, "79"), (190, "0"), (280, "62")):
        read.at(rebooted + seconds * SECOND, value)
    assert boots() == ["boot-1", "boot-2"]


@pytest.mark.parametrize(
    "changed",
    [{"gpu": "5"}, {"gpu": "0", "instance": "10.0.0.7:9400"}, {"DCGM_FI_DRIVER_VERSION": "590.1"}, {"pci_bus_id": ""}],
)
def test_labels_that_change_with_a_driver_or_a_boot_are_no_new_fault(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns, changed: dict[str, str]
) -> None:
    read = Read(east, stand_ins, now=now)
    read.at(rebooted - 60 * SECOND, "79")
    for seconds in (40, 300):
        read.at(rebooted + seconds * SECOND, "79", **changed)
    assert "boot-2" not in boots()


def is_ready(ready: bool, *, at: datetime) -> None:
    Node.objects.filter(name="gpu-1").update(ready=ready, ready_since=at if ready else None)


@pytest.mark.parametrize("comes_back", [False, True])
def test_series_that_vanish_with_their_node_end_when_it_is_back(
    east: Cluster, now: datetime, stand_ins: StandIns, comes_back: bool
) -> None:
    read = Read(east, stand_ins, now=now, query=f"{HOT} > 90")
    read.at(now, "95")
    is_ready(False, at=now)
    for minute in (1, 2):
        read.at(now + minute * MINUTE)
    is_ready(True, at=now + 3 * MINUTE)
    read.at(now + 4 * MINUTE)  # its exporter may not have been read yet
    assert len(open_devices()) == 1
    read.at(now + 5 * MINUTE, "95" if comes_back else "")
    assert Incident.objects.get().state == ("open" if comes_back else "closed")
    read.at(now + 6 * MINUTE)
    assert open_devices() == []


def test_series_that_vanish_with_their_node_are_reported_again_after_a_reboot(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    read = Read(east, stand_ins, now=now, query=f"{HOT} > 90")
    read.at(rebooted - 60 * SECOND, "95")
    is_ready(False, at=now)
    read.at(rebooted - 10 * SECOND)
    is_ready(True, at=rebooted + 20 * SECOND)
    for seconds in (30, 80):
        read.at(rebooted + seconds * SECOND)
    read.at(rebooted + 100 * SECOND, "95")
    assert boots() == ["boot-1", "boot-2"]


def test_amds_exporter_names_the_node_by_its_host_name(now: datetime) -> None:
    labels = {"__name__": "gpu_health", "hostname": "gpu-1", "gpu_id": "3", "serial_number": "692251001124"}
    body = {"data": {"resultType": "vector", "result": [{"metric": labels, "value": [now.timestamp(), "0"]}]}}
    [seen] = prometheus.read(body, query="gpu_health == 0", before=prometheus.Before(), now=now).batch.observations
    assert (seen.node, seen.device.key, seen.weight) == ("gpu-1", "gpu 3", "node")


# --- Alertmanager and Grafana


def told(alert: Make, now: datetime, *, began: int = 300, ended: int | None = None, **labels: str) -> dict[str, Any]:
    times = {"startsAt": stamp(now - began * SECOND)}
    if ended is not None:
        times["endsAt"] = stamp(now - ended * SECOND)
    return {**alert("GPUXid", status="firing" if ended is None else "resolved", **labels), **times}


def live() -> list[str]:
    return sorted(Incident.objects.filter(state="open", ended_at=None).values_list("device", flat=True))


def test_a_notification_of_grafana(alertmanager: Sender, alert: Make, now: datetime) -> None:
    """It has the form of Alertmanager's, and a version of its own."""
    own = {"orgId": 1, "version": "1", "title": "[FIRING:1]", "state": "alerting", "message": "x"}
    values = {"values": {"A": 79}, "valueString": "[ var='A' value=79 ]", "silenceURL": "http://g/"}
    body = notification({**told(alert, now, gpu="2", grafana_folder="gpus"), **values})
    assert took(alertmanager.post({**body, **own}))[0] == 1
    assert live() == ["gpu 2"]
    assert alertmanager.post({**body, "version": "1"}).status_code == 400


@pytest.mark.parametrize("together", [True, False])
def test_another_severity_of_an_alert_is_another_series_of_the_same_fault(
    alertmanager: Sender, alert: Make, now: datetime, together: bool
) -> None:
    alertmanager.post(notification(told(alert, now, gpu="2", severity="warning")))
    end = told(alert, now, gpu="2", severity="warning", ended=30)
    critical = told(alert, now, gpu="2", severity="critical", began=35)
    for body in [notification(end, critical)] if together else [notification(critical), notification(end)]:
        alertmanager.post(body)
    assert Incident.objects.get(state="open").severity == "fatal"
    alertmanager.post(notification({**critical, "status": "resolved", "endsAt": stamp(now)}))
    assert live() == []


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_a_label_of_the_gpu_that_is_added_meanwhile(
    alertmanager: Sender, alert: Make, now: datetime, order: int, is_known: bool
) -> None:
    if is_known:
        inventory(now)
    one, other = {"began": 300}, {"began": 200, "gpu": "2"}
    for labels in (one, other):
        alertmanager.post(notification(told(alert, now, **labels)))
    first, second = [told(alert, now, ended=60, **labels) for labels in (one, other)][::order]
    alertmanager.post(notification(first))
    assert len(live()) == 1
    alertmanager.post(notification(second))
    assert live() == []


def test_the_status_of_a_group_is_not_that_of_its_alerts(alertmanager: Sender, alert: Make, now: datetime) -> None:
    alertmanager.post(notification(told(alert, now, gpu="1"), told(alert, now, gpu="2")))
    group = notification(told(alert, now, gpu="1", ended=9), told(alert, now, gpu="2"))
    alertmanager.post({**group, "status": "resolved"})
    assert live() == ["gpu 2"]


# --- during a rescue

POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: heal}
spec:
  rules:
    - priority: 10
      match: {kinds: [alert, health]}
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy=POLICY)
    agents.comes_up(made)
    yield made
    made.uninstall()


def receive(world: World, row: Source, *, broken: datetime, ended: datetime | None = None) -> None:
    """The alert or the health event of the first GPU, or its end."""
    if row.kind == "alertmanager":
        labels = {"alertname": "GpuSick", "node": NODE, "pci_bus_id": "00000000:4E:00.0", "severity": "critical"}
        end = stamp(ended) if ended else "0001-01-01T00:00:00Z"
        times = {"startsAt": stamp(broken), "endsAt": end, "fingerprint": "f1"}
        body = notification({"status": "resolved" if ended else "firing", "labels": labels, "annotations": {}, **times})
    else:
        data = {"checkName": "GpuMemWatch", "nodeName": NODE, "isFatal": ended is None, "isHealthy": ended is not None}
        at = stamp(ended or broken)
        data |= {"entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:4e:00.0"}], "generatedTimestamp": at}
        kind = {"specversion": "1.0", "type": "com.nvidia.nvsentinel.health.v1", "source": "x"}
        body = {**kind, "id": at, "time": at, "data": data}
    content = "application/json" if row.kind == "alertmanager" else "application/cloudevents+json"
    assert services.receive(row, body, content_type=content, headers={}, now=world.now).accepted == 1
    world.work()


@pytest.mark.parametrize("kind", ["alertmanager", "cloudevents"])
@pytest.mark.parametrize("when", ["asked", "down", "up", "verify"])
def test_an_end_that_is_reported_during_the_reboot_fails_no_rescue(world: World, kind: str, when: str) -> None:
    row = add(world.cluster, kind, now=world.now)
    broken, moments = world.now, ("asked", "down", "up", "verify")
    world.now += 20 * SECOND
    receive(world, row, broken=broken)
    world.until_reboot_is_asked()
    for moment in moments:
        if moment == "down":
            world.kube.set_ready(NODE, False)
        elif moment == "up":
            world.kube.reboot(NODE)
        world.pass_time(5)
        if moment in ("up", "verify"):
            world.report()
        if moment == when:
            receive(world, row, broken=broken, ended=world.now - SECOND)
    for _ in range(30):
        world.pass_time(30)
        world.report()
        held_passes.apply(now=world.now)
    assert [one.outcome for one in Rescue.objects.all()] == ["healed"]
    assert len(world.kube.called("ensure_job")) == 1
    assert not world.kube.get_node(NODE).unschedulable
    assert not Incident.objects.filter(state="open").exists()
