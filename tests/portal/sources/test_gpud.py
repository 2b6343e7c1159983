"""gpud on each node, read over HTTP: states begin and end faults, and each Xid is counted."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources import gpud as kcover_gpud
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests.portal.sources.conftest import Sender, add, pull, stamp
from tests.portal.sources.stand_ins import PCI, Answered, StandIns

COMPONENT = "accelerator-nvidia-error-xid"
SECOND = timedelta(seconds=1)


@pytest.fixture
def gpud(east: Cluster, now: datetime, stand_ins: StandIns) -> Source:
    Node.objects.update(gpus=8)
    return add(east, "gpud", now=now, url=stand_ins.url + "/gpud/{node}")


def break_gpu(stand_ins: StandIns, at: datetime, *, node: str = "gpu-1", code: int = 79) -> None:
    stand_ins.active[node] = [(code, PCI)]
    stand_ins.gpud.add_kernel_line(node, f"NVRM: Xid (PCI:{PCI}): {code}, pid=1, name=x, text", at)


def seen() -> list[tuple[str, str, str, int]]:
    rows = Incident.objects.select_related("node").order_by("pk")
    return [(row.node.name, row.code, row.state, row.count) for row in rows if row.node is not None]


def test_a_fault_begins_and_ends(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    break_gpu(stand_ins, now)
    row = pull(gpud, at=now + SECOND)
    row = pull(row, at=now + 30 * SECOND)
    assert row.error == {}
    assert seen() == [("gpu-1", COMPONENT, "open", 1)]
    incident = Incident.objects.get()
    assert (incident.kind, incident.device, incident.alias, incident.severity) == ("gpud", PCI, "xid 79", "fatal")
    break_gpu(stand_ins, now + 40 * SECOND)
    row = pull(row, at=now + 60 * SECOND)
    assert seen() == [("gpu-1", COMPONENT, "open", 2)]
    stand_ins.active["gpu-1"] = []
    row = pull(row, at=now + 90 * SECOND)
    assert seen() == [("gpu-1", COMPONENT, "closed", 2)]
    break_gpu(stand_ins, now + 100 * SECOND)
    pull(row, at=now + 120 * SECOND)
    assert [state for _, _, state, _ in seen()] == ["closed", "open"]


def test_a_source_that_lost_its_position_ends_its_own_faults(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    break_gpu(stand_ins, now)
    break_gpu(stand_ins, now, node="gpu-2")
    pull(gpud, at=now + SECOND)
    Source.objects.filter(pk=gpud.pk).update(cursor={})
    gpud.refresh_from_db()
    stand_ins.active["gpu-1"] = []
    row = pull(gpud, at=now + 60 * SECOND)
    assert [(node, state) for node, _, state, _ in seen()] == [("gpu-1", "closed"), ("gpu-2", "open")]
    stand_ins.active["gpu-2"] = []
    pull(row, at=now + 120 * SECOND)
    assert {state for _, _, state, _ in seen()} == {"closed"}


def test_four_sources_of_one_fault_open_one_incident(
    gpud: Source, sentinel: Sender, stand_ins: StandIns, health: Callable[..., dict[str, Any]], now: datetime
) -> None:
    cluster = gpud.cluster
    loki = add(cluster, "loki", now=now, url=stand_ins.url)
    prometheus = pull(add(cluster, "prometheus", now=now, url=f"{stand_ins.url}/prometheus"), at=now)
    line = f"NVRM: Xid (PCI:{PCI}): 79, pid=1, name=x, GPU has fallen off the bus."
    stand_ins.active["gpu-1"] = [(79, PCI)]
    for system in (stand_ins.logs, stand_ins.gpud, stand_ins.prometheus):
        system.add_kernel_line("gpu-1", line, now)
    sentinel.post([health()])
    for number, source in enumerate((gpud, loki, prometheus)):
        pull(source, at=now + (number + 1) * SECOND)
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.device) == ("xid", "79", PCI)
    witnesses = incident.occurrences.values_list("witness", flat=True)
    assert sorted(witnesses) == ["gpud", "loki", "nvsentinel", "prometheus"]


def test_a_node_that_is_silent_delays_no_other(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    row = pull(gpud, at=now)
    stand_ins.gpud.silent.add("gpu-2")
    break_gpu(stand_ins, now + SECOND)
    break_gpu(stand_ins, now + SECOND, node="gpu-2")
    row = pull(row, at=now + 60 * SECOND)
    assert seen() == [("gpu-1", COMPONENT, "open", 1)]
    assert row.error["code"] == "source_nodes_silent"
    assert row.attempts == 0
    row = pull(row, at=now + 600 * SECOND)
    stand_ins.gpud.silent.clear()
    stand_ins.active["gpu-2"] = []
    row = pull(row, at=now + 660 * SECOND)
    assert ("gpu-2", COMPONENT, "open", 1) in seen()
    assert row.error == {}
    stand_ins.gpud.silent.update(stand_ins.active)
    row = pull(row, at=now + 720 * SECOND)
    assert (row.error["code"], row.attempts) == ("source_nodes_silent", 1)


@pytest.mark.parametrize(
    ("states", "events", "rejected"),
    [
        ("{}", "[]", 0),
        ("[", "[]", 0),
        ('[3, {}, {"component": "a\\u0000b"}, {"component": "x", "states": 3}]', "[]", 4),
        ("[]", '[{"component": "xid", "events": [5, {"type": "Fatal", "time": "x"}]}]', 2),
        ("[]", '[{"component": "xid", "events": [{"type": "Fatal", "time": "2999-01-01T00:00:00Z"}]}]', 1),
        ('[{"component": "a", "states": [{"health": 3}, {"health": "Unhealthy", "reason": []}]}]', "[]", 2),
    ],
)
def test_invalid_states_and_events_are_counted(
    east: Cluster, stand_ins: StandIns, now: datetime, states: str, events: str, rejected: int
) -> None:
    source = add(east, "gpud", now=now, url=stand_ins.url, node="gpu-1")
    stand_ins.troubles.extend([Answered(body=states.encode()), Answered(body=events.encode())])
    row = pull(source, at=now)
    assert row.rejected == rejected
    assert row.error
    assert seen() == []


def test_states_of_any_component(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    source = add(east, "gpud", now=now, url=stand_ins.url, node="gpu-1")

    def answer(*health: str) -> None:
        states: list[dict[str, Any]] = [
            {
                "name": str(number),
                "health": one,
                "reason": f"{now} {number} is {one}",
                "suggested_actions": {"description": "", "repair_actions": ["HARDWARE_INSPECTION"]},
            }
            for number, one in enumerate(health)
        ]
        body = json.dumps([{"component": "accelerator-nvidia-fabric-manager", "states": states}]).encode()
        stand_ins.troubles.extend([Answered(body=body), Answered(body=b"[]")])

    answer("Initializing", "Healthy")
    source = pull(source, at=now)
    answer("Degraded", "Unhealthy")
    source = pull(source, at=now + 60 * SECOND)
    answer("Degraded", "Healthy")
    source = pull(source, at=now + 120 * SECOND)
    assert [(state, count) for _, _, state, count in seen()] == [("open", 2)]
    assert Incident.objects.get().advice == "HARDWARE_INSPECTION"
    answer("Healthy", "Healthy")
    pull(source, at=now + 180 * SECOND)
    assert [state for _, _, state, _ in seen()] == ["closed"]


def test_an_address_without_a_node_needs_one(east: Cluster, stand_ins: StandIns, now: datetime) -> None:
    Node.objects.update(gpus=8)
    source = add(east, "gpud", now=now, url=stand_ins.url)
    assert pull(source, at=now).error["code"] == "source_gpud_node"


def test_a_test_asks_the_nodes(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    break_gpu(stand_ins, now - timedelta(minutes=30))
    assert services.try_source(gpud, now=now).seen == 1
    stand_ins.gpud.silent.update(stand_ins.active)
    assert services.try_source(gpud, now=now).error.code == "host_answered"


@pytest.mark.parametrize(("name", "value"), [("insecure", "maybe"), ("node", ""), ("port", 1)])
def test_settings_are_checked(east: Cluster, now: datetime, name: str, value: object) -> None:
    with pytest.raises(FieldError) as refused:
        add(east, "gpud", now=now, url="https://{node}:15132", **{name: value})
    assert refused.value.field == f"settings/{name}"


def states_of(*states: dict[str, str], component: str = "disk") -> Answered:
    return Answered(body=json.dumps([{"component": component, "states": states}]).encode())


def test_a_node_cannot_fill_the_position_of_all(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    """A stolen node that reports other states in each answer."""
    Node.objects.filter(name="gpu-2").update(gpus=0)
    row = gpud
    for turn in range(4):
        many = [{"health": "Unhealthy", "name": f"{turn}-{number}"} for number in range(400)]
        stand_ins.troubles += [states_of(*many, component=f"disk-{turn}"), Answered(body=b"[]")]
        row = pull(row, at=now + turn * 60 * SECOND)
    assert len(row.cursor["nodes"]["gpu-1"]["shown"]) == kcover_gpud.MAX_SHOWN
    many = [{"health": "Unhealthy", "name": str(number)} for number in range(kcover_gpud.MAX_SHOWN + 7)]
    stand_ins.troubles += [states_of(*many), Answered(body=b"[]")]
    row = pull(row, at=now + 600 * SECOND)
    assert len(row.cursor["nodes"]["gpu-1"]["shown"]) == kcover_gpud.MAX_SHOWN
    assert (row.rejected, row.error["code"]) == (7, "source_list_long")


def test_a_component_beyond_the_bound_is_not_healthy(now: datetime) -> None:
    """Its new state is not read, and its earlier one is gone."""
    many = [{"health": "Unhealthy", "name": str(number)} for number in range(kcover_gpud.MAX_SHOWN)]
    last = {"component": "zeta", "states": [{"health": "Unhealthy", "name": "new"}]}
    states = [{"component": "disk", "states": many}, last]
    found = kcover_gpud.read(states, [], node="gpu-1", shown={"zeta\told": "Unhealthy  None"}, now=now).batch
    assert len(found.rejected) == 1
    assert {one.code for one in found.observations if one.healthy} == set()


def test_the_health_switch_of_an_older_gpud_is_read(now: datetime) -> None:
    """``healthy`` stood in the place of ``health``."""
    old = [
        {"component": "disk", "states": [{"name": "disk", "healthy": False, "reason": "no space"}]},
        {"component": "cpu", "states": [{"name": "cpu", "healthy": True, "reason": "ok"}]},
        {"component": "fan", "states": [{"name": "fan", "health": "Healthy", "healthy": False}]},
        {"component": "odd", "states": [{"name": "odd", "healthy": "no"}, {"name": "mute"}]},
    ]
    found = kcover_gpud.read(old, [], node="gpu-1", shown={"cpu\tcpu": "Unhealthy None None"}, now=now).batch
    assert {(one.code, one.severity, one.healthy) for one in found.observations} == {
        ("disk", "fatal", False),
        ("cpu", "warning", True),
    }
    assert [(one.path, one.reason.code) for one in found.rejected] == [
        ("states/3/states/0/health", "gpud_health_missing"),
        ("states/3/states/1/health", "gpud_health_missing"),
    ]


def test_a_node_has_so_many_events_in_a_reading(gpud: Source, stand_ins: StandIns, now: datetime) -> None:
    Node.objects.filter(name="gpu-2").update(gpus=0)
    event = {"type": "Fatal", "time": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    events = [
        {"component": f"xid-{part}", "events": [{**event, "message": f"XID {part} {number}"} for number in range(400)]}
        for part in range(10)
    ]
    stand_ins.troubles += [Answered(body=b"[]"), Answered(body=json.dumps(events).encode())]
    row = pull(gpud, at=now + SECOND)
    assert row.accepted <= kcover_gpud.MAX_EVENTS
    assert row.error["code"] == "source_list_long"


@pytest.mark.parametrize(
    "address", ["", "gpu-1", "[::1", "x:y", "1.2.3.4:99999", "evil.example/?", "u@evil.example", "::1%/@evil.example"]
)
def test_an_address_that_a_kubelet_forged_stops_no_other_node(
    address: str, east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    """The addresses of a node are in its status, which its kubelet writes."""
    Node.objects.update(gpus=8, address="127.0.0.1")
    source = add(east, "gpud", now=now, url=stand_ins.url.replace("127.0.0.1", "{address}") + "/gpud/{node}")
    Node.objects.filter(name="gpu-1").update(address=address)
    break_gpu(stand_ins, now, node="gpu-2")
    row = pull(source, at=now + SECOND)
    assert seen() == [("gpu-2", COMPONENT, "open", 1)]
    assert (row.error["code"], row.error["params"]["node"], row.attempts) == ("source_nodes_silent", "gpu-1", 0)


@pytest.mark.parametrize("word", ["Initializing", "initializing", "Unknown", "OK"])
def test_only_healthy_ends_a_fault(now: datetime, word: str) -> None:
    """A gpud that has just started does not know yet."""

    def state(health: str) -> list[dict[str, Any]]:
        told = {"name": "error_xid", "health": health, "reason": "XID 79 detected on GPU PCI:0000:2a:00"}
        return [{"component": "accelerator-nvidia-error-xid", "states": [told]}]

    first = kcover_gpud.read(state("UNHEALTHY"), [], node="gpu-1", shown={}, now=now)
    assert [(one.alias, one.severity) for one in first.batch.observations] == [(79, "fatal")]
    then = kcover_gpud.read(state(word), [], node="gpu-1", shown=first.shown, now=now + 60 * SECOND)
    assert (then.batch.observations, then.shown) == ((), first.shown)
    rejected = [] if word.lower() == "initializing" else ["value_not_one_of"]
    assert [one.reason.code for one in then.batch.rejected] == rejected
    last = kcover_gpud.read(state("healthy"), [], node="gpu-1", shown=then.shown, now=now + 120 * SECOND)
    assert [one.healthy for one in last.batch.observations] == [True]


def test_several_xids_in_one_state_have_the_weight_of_their_sender(now: datetime) -> None:
    said = "XID 13 detected on GPU PCI:0000:2a:00; XID 79 detected on GPU PCI:0000:3b:00"
    states = [{"component": "accelerator-nvidia-error-xid", "states": [{"health": "Unhealthy", "reason": said}]}]
    [seen] = kcover_gpud.read(states, [], node="gpu-1", shown={}, now=now).batch.observations
    assert (seen.alias, seen.weight) == (None, "node")


def test_the_xid_in_the_data_of_an_older_gpud_event_is_read(now: datetime) -> None:
    event = {
        "time": stamp(now),
        "name": "error_xid",
        "type": "Fatal",
        "message": "",
        "extra_info": {"data": "43", "device_uuid": "PCI:0000:2a:00"},
    }
    events = [{"component": "accelerator-nvidia-error-xid", "events": [event]}]
    [seen] = kcover_gpud.read([], events, node="gpu-1", shown={}, now=now).batch.observations
    assert (seen.alias, seen.weight, seen.device.slot) == (43, "program", "0000:2a:00")
