"""Reports from public bug reports (``tests/field_cases``), sent as their senders send them."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kcover.sources import gpud, prometheus
from kcover.sources.conditions import Condition, read, rows_of
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from tests.portal.sources.conftest import Sender, add, notification, stamp

CASES = Path(__file__).parents[2] / "field_cases"
MINUTE = timedelta(minutes=1)
Found = set[tuple[str, str, str, bool]]


def case(number: int) -> Any:
    return json.loads((CASES / f"{number}.json").read_text(encoding="utf-8"))


@pytest.fixture
def fleet(east: Cluster, now: datetime) -> Cluster:
    for number in range(1, 21):
        addresses = {4: ["10.16.0.3", "2345:425:2ca1:0:567:5673:23b5:0"]}.get(number, [])
        Node.objects.create(
            cluster=east,
            name=f"gpu-{number:04}",
            in_cluster=True,
            ready=True,
            boot_id="boot-1",
            created_at=now,
            addresses=addresses,
        )
    return east


def found() -> Found:
    """Node, code and device of each open incident, and whether it is no fault of the node."""
    rows = Incident.objects.filter(state="open", node__isnull=False)
    return set(rows.values_list("node__name", "code", "device", "is_user_fault"))


def timed(alerts: list[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """The alerts as if they were sent now: the portal ignores what is a day old."""
    for alert in alerts:
        alert["startsAt"] = stamp(now - 5 * MINUTE)
        if alert["status"] == "resolved":
            alert["endsAt"] = stamp(now - MINUTE)
    return alerts


@pytest.mark.parametrize(
    ("number", "opened", "rejected"),
    [
        (30, {("gpu-0001", "GPUHot", "gpu 0", False)}, ["alert_node_missing"]),
        (31, set(), ["source_node_unknown"]),
        (32, {("gpu-0003", "KubeNodeUnreachable", "", False)}, []),
        (34, {("gpu-0005", "GPUFell", "gpu 0", False)}, []),
        (
            36,
            {("gpu-0007", "GPUXid", "0000:18:00", True)},  # two names of one Xid
            [],
        ),
    ],
)
def test_alerts(
    fleet: Cluster, alertmanager: Sender, now: datetime, number: int, opened: Found, rejected: list[str]
) -> None:
    answer = alertmanager.post(notification(*timed(case(number)["alerts"], now)))
    assert [one["code"] for one in answer.json()["rejected"]] == rejected
    assert found() == opened


def test_hosts_that_are_named_by_an_address(fleet: Cluster, now: datetime) -> None:
    sender = Sender(add(fleet, "alertmanager", now=now, name="hosts", node_label="instance"), now=now)
    answer = sender.post(notification(*timed(case(33)["alerts"], now)))
    assert [one["code"] for one in answer.json()["rejected"]] == ["source_node_unknown"]  # 2345:425:2ca1::567:…
    assert found() == {("gpu-0004", "HostOutOfDiskSpace", "", False)}


def test_the_end_of_one_gpus_alert_is_not_that_of_another(fleet: Cluster, alertmanager: Sender, now: datetime) -> None:
    told = case(37)
    alertmanager.post(notification(*timed(told["first"], now)))
    assert {device for _, _, device, _ in found()} == {"gpu 2", "gpu 5"}
    alertmanager.post(notification(*timed(told["then"], now)))
    assert {device for _, _, device, _ in found()} == {"gpu 5"}


def test_a_firing_that_is_older_than_its_end_opens_no_incident(
    fleet: Cluster, alertmanager: Sender, now: datetime
) -> None:
    told = case(38)
    for name in ("resolved_first", "late_firing"):
        alertmanager.post(notification(*timed(told[name], now)))
    assert found() == set()


def event(told: dict[str, Any], at: datetime) -> dict[str, Any]:
    told["time"] = told["data"]["healthEvent"]["generatedTimestamp"] = stamp(at)
    return told


def sent(sentinel: Sender, events: list[dict[str, Any]], now: datetime) -> list[Any]:
    return [
        sentinel.post(event(one, now - (len(events) - index) * timedelta(seconds=2)))
        for index, one in enumerate(events)
    ]


def test_an_event_about_an_unknown_address_is_rejected(fleet: Cluster, sentinel: Sender, now: datetime) -> None:
    [answer] = sent(sentinel, [case(41)], now)
    assert [one["code"] for one in answer.json()["rejected"]] == ["source_node_unknown"]
    Node.objects.filter(name="gpu-0009").update(addresses=["10.0.15.233"])
    told = case(41)
    told["id"] = "another"
    sent(sentinel, [told], now)
    assert {(node, device) for node, _, device, _ in found()} == {("gpu-0009", "0002:00:00")}


def test_the_recovery_of_a_switch_leaves_the_gpu_of_its_number(fleet: Cluster, sentinel: Sender, now: datetime) -> None:
    sent(sentinel, case(43), now)
    assert {(node, device) for node, _, device, _ in found()} == {("gpu-0012", "gpu 3")}


def test_the_recovery_of_one_gpu_leaves_the_other(fleet: Cluster, sentinel: Sender, now: datetime) -> None:
    told = case(44)
    sent(sentinel, [*told["first"], *told["then"]], now)
    assert {(node, device) for node, _, device, _ in found()} == {("gpu-0013", "gpu 1")}


def test_a_recovery_without_entities_ends_all_of_its_check(fleet: Cluster, sentinel: Sender, now: datetime) -> None:
    events = case(48)
    sent(sentinel, events[:3], now)
    assert {device for _, _, device, _ in found()} == {"0000:18:00", "0000:2a:00"}
    sentinel.post(event(events[3], now))
    assert found() == set()


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (
            53,
            [
                ("XIDError=True/XIDErrorIsPresent", "node", 48),
                ("GPUClockThrottling=True/GPUClockThrottlingDetected", "node", None),
                ("GPUMissing=True/GPUMissing", "node", None),
            ],
        ),
        (54, [("XidCriticalError=True", "node", 79)]),
        (57, [("XfsShutdown=True/XfsHasShutdown", "node", None)]),
    ],
)
def test_conditions(now: datetime, number: int, told: list[tuple[str, str, int | None]]) -> None:
    given = [
        Condition(**{name: one[name] for name in ("type", "status", "reason", "message")}, since=now - 60 * MINUTE)
        for one in case(number)["status"]["conditions"]
    ]
    seen = read("gpu-1", given, rows_of({}), now=now)
    assert [(one.code, one.weight, one.alias) for one in seen if not one.healthy] == told


def vector(series: list[Any], now: datetime) -> dict[str, Any]:
    rows = [{"metric": labels, "value": [now.timestamp(), value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": rows}}


def test_each_of_two_exporters_has_a_last_xid_of_its_own(now: datetime) -> None:
    before, codes = prometheus.Before(), []
    for number in range(4):
        at = now + number * MINUTE
        answer = prometheus.read(vector(case(62), at), query=prometheus.DEFAULT_QUERY, before=before, now=at)
        before = answer.after
        codes.append(sorted(one.code for one in answer.batch.observations))
    assert codes == [[43, 48], [], [], []]


def test_values_that_are_no_xid_are_rejected(now: datetime) -> None:
    answer = prometheus.read(vector(case(63), now), query=prometheus.DEFAULT_QUERY, before=prometheus.Before(), now=now)
    assert [one.reason.code for one in answer.batch.rejected] == ["prometheus_xid", "prometheus_xid"]
    assert {(one.code, one.device.slot) for one in answer.batch.observations} >= {(79, "0000:ab:00")}


@pytest.mark.parametrize(
    ("number", "runtime", "told"),
    [
        (67, "containerd", [("accelerator-nvidia-error-xid", "node", 48)]),
        (68, "containerd", [("docker", "monitor", None)]),
    ],
)
def test_states_of_gpud(now: datetime, number: int, runtime: str, told: list[tuple[str, str, int | None]]) -> None:
    states = case(number)
    first = gpud.read(states, [], node="gpu-1", runtime=runtime, shown={}, now=now)
    assert [(one.code, one.weight, one.alias) for one in first.batch.observations] == told
    again = gpud.read(states, [], node="gpu-1", runtime=runtime, shown=first.shown, now=now + MINUTE)
    assert again.batch.observations == ()
