"""The boot to which the report of a source belongs, by the time that each kind of source gives its faults."""

import html
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources.conditions import Condition
from kcover.sources.observation import Observation, ObservationBatch
from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import doubtful_states
from kcover_portal.kube import port
from kcover_portal.sources import services
from kcover_portal.sources.services import intake
from tests.portal.sources.conftest import Sender, add, notification, pull, stamp
from tests.portal.sources.stand_ins import PCI, Answered, StandIns
from tests.portal.sources.test_source_settings import Admin

Make = Callable[..., dict[str, Any]]
SECOND = timedelta(seconds=1)


@pytest.fixture
def rebooted(east: Cluster, now: datetime) -> datetime:
    """The portal has seen the new boot of gpu-1 five minutes ago."""
    at = now - timedelta(minutes=5)
    Node.objects.filter(name="gpu-1").update(
        gpus=8, boot_id="boot-2", past_boots=["boot-1"], boot_times={"boot-2": at.isoformat()}
    )
    return at


def boots() -> list[str]:
    """The boots of the reports, in the order of their arrival."""
    return list(Occurrence.objects.order_by("pk").values_list("boot_id", flat=True))


@pytest.mark.parametrize(
    ("seconds", "given", "boot"),
    [
        (280, {}, "boot-1"),
        (280, {"delay": 270}, "boot-2"),
        (30, {"delay": 10}, "boot-2"),
        (12, {"delay": 10}, "boot-1"),
    ],
)
def test_an_alert_begins_after_its_fault(
    east: Cluster,
    now: datetime,
    rebooted: datetime,
    alert: Make,
    seconds: int,
    given: dict[str, int],
    boot: str,
) -> None:
    sender = Sender(add(east, "alertmanager", now=now, **given), now=now)
    sender.post(notification({**alert(), "startsAt": stamp(rebooted + seconds * SECOND)}))
    assert boots() == [boot]


@pytest.mark.parametrize(("seconds", "boot"), [(3, "boot-1"), (6, "boot-2")])
def test_an_event_has_the_time_of_its_fault_less_the_error_of_a_clock(
    sentinel: Sender, health: Make, rebooted: datetime, seconds: int, boot: str
) -> None:
    sentinel.post([health(at=rebooted + seconds * SECOND)])
    assert boots() == [boot]


def test_a_time_in_the_future_proves_that_the_clock_is_ahead(
    sentinel: Sender, health: Make, now: datetime, rebooted: datetime
) -> None:
    """One event of the node is four minutes ahead, so its other one may be, too; not that of another node."""
    Node.objects.filter(name="gpu-2").update(
        boot_id="boot-2", past_boots=["boot-1"], boot_times={"boot-2": rebooted.isoformat()}
    )
    ahead = health("1", at=now + timedelta(minutes=4), checkName="Other")
    at = rebooted + timedelta(minutes=3)
    sentinel.post([ahead, health("2", at=at), health("3", at=at, nodeName="gpu-2")])
    told = Occurrence.objects.exclude(incident__code__startswith="Other").values_list("node__name", "boot_id")
    assert set(told) == {("gpu-1", "boot-1"), ("gpu-2", "boot-2")}


def test_an_alert_from_the_future_moves_no_other_alert(
    east: Cluster, now: datetime, rebooted: datetime, alert: Make
) -> None:
    sender = Sender(add(east, "alertmanager", now=now, delay=10), now=now)
    ahead = {**alert("Ahead", node="gpu-2"), "startsAt": stamp(now + timedelta(minutes=4))}
    sender.post(notification(ahead, {**alert(), "startsAt": stamp(rebooted + timedelta(minutes=3))}))
    assert Occurrence.objects.get(node__name="gpu-1").boot_id == "boot-2"


def test_an_alert_of_a_clock_that_is_behind_is_in_doubt(east: Cluster, now: datetime, rebooted: datetime) -> None:
    node = Node.objects.get(name="gpu-1")
    Agent.objects.create(node=node, boot_id="boot-2", boot_seen_at=now, seen_at=now, skew=-100)
    services.make_watched_sources(now)
    stuck = Condition(type="KernelDeadlock", status="True", since=rebooted - 50 * SECOND)
    services.ConditionFeed(east).feed([port.Node(name="gpu-1", uid="u", stated=(stuck,))], now=now)
    assert boots() == ["boot-1"]
    assert Occurrence.objects.get().doubt_until is not None


def test_a_node_whose_clock_is_ahead_writes_later_times(east: Cluster, now: datetime, rebooted: datetime) -> None:
    node = Node.objects.get(name="gpu-1")
    Agent.objects.create(node=node, boot_id="boot-2", boot_seen_at=now, seen_at=now, skew=100)
    seen = Observation(path="", key="1", node="gpu-1", kind="xid", code=79, seen_at=rebooted + 60 * SECOND)
    others = {"loki": {"url": "http://logs"}, "cloudevents": {}, "prometheus": {"url": "http://values", "delay": 0}}
    for kind, given in others.items():
        intake.take(add(east, kind, now=now, **given), ObservationBatch(observations=(seen,)), now=now)
    assert boots() == ["boot-1", "boot-1", "boot-2"]  # the clock of a system beside the node is another one


def test_a_report_without_a_time_may_be_a_day_old(
    sentinel: Sender, health: Make, now: datetime, rebooted: datetime
) -> None:
    event = health(generatedTimestamp="")
    sentinel.post([{**event, "time": ""}])
    assert boots() == ["boot-1"]
    Node.objects.update(boot_times={"boot-2": (now - timedelta(days=2)).isoformat()})
    sentinel.post([{**event, "time": "", "id": "2"}])
    assert boots() == ["boot-1", "boot-2"]


def test_a_state_without_a_time_is_of_the_boot_that_it_outlasts_the_start_of(
    east: Cluster, now: datetime, rebooted: datetime, alert: Make
) -> None:
    Sender(add(east, "alertmanager", now=now), now=now).post(notification({**alert(), "startsAt": ""}))
    assert boots() == ["boot-1"]
    row = Occurrence.objects.get()
    assert row.doubt_until is not None
    assert row.doubt_until >= rebooted + timedelta(minutes=10)
    doubtful_states.settle(now=row.doubt_until + SECOND)
    assert boots() == ["boot-2"]


@pytest.mark.parametrize(("seconds", "boot"), [(50, "boot-1"), (70, "boot-2")])
def test_a_condition_is_written_within_a_minute(
    east: Cluster, now: datetime, rebooted: datetime, seconds: int, boot: str
) -> None:
    services.make_watched_sources(now)
    stuck = Condition(type="KernelDeadlock", status="True", since=rebooted + seconds * SECOND)
    services.ConditionFeed(east).feed([port.Node(name="gpu-1", uid="u", stated=(stuck,))], now=now)
    assert boots() == [boot]


def xid(stand_ins: StandIns, code: int, at: datetime) -> None:
    stand_ins.prometheus.add_kernel_line("gpu-1", f"NVRM: Xid (PCI:{PCI}): {code}, text", at)


def test_a_gauge_that_changed_between_two_readings_may_have_changed_after_the_first(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    row = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus")
    row = pull(row, at=rebooted - 20 * SECOND)
    xid(stand_ins, 79, rebooted - 10 * SECOND)
    row = pull(row, at=rebooted + 10 * SECOND)
    row = pull(row, at=rebooted + 90 * SECOND)
    xid(stand_ins, 62, rebooted + 100 * SECOND)  # its series was read in this boot
    pull(row, at=rebooted + 120 * SECOND)
    assert boots() == ["boot-1", "boot-2"]


def test_a_series_that_comes_back_with_another_value_was_last_read_before_it_went(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    row = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus")
    xid(stand_ins, 48, rebooted - 100 * SECOND)
    row = pull(row, at=rebooted - 60 * SECOND)
    nothing = Answered(body=json.dumps({"data": {"resultType": "vector", "result": []}}).encode())
    for seconds in (30, 90, 150):
        stand_ins.troubles.append(nothing)
        row = pull(row, at=rebooted + seconds * SECOND)
    xid(stand_ins, 79, rebooted - 50 * SECOND)
    pull(row, at=rebooted + 180 * SECOND)
    assert boots() == ["boot-1", "boot-1"]


def states(*components: str, health: str = "Healthy") -> list[dict[str, Any]]:
    return [{"component": name, "states": [{"name": "x", "health": health}]} for name in components]


def test_a_state_changed_after_it_was_last_read(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    row = add(east, "gpud", now=now, url=stand_ins.url + "/gpud/{node}", node="gpu-1")

    def read(seconds: int, *found: dict[str, Any]) -> None:
        stand_ins.troubles += [Answered(body=json.dumps(answer).encode()) for answer in (list(found), [])]
        pull(row, at=rebooted + seconds * SECOND)

    both = ("disk", "memory")
    read(-60, *states(*both))
    read(20, *states("disk"), *states("memory", health="Unhealthy"))
    read(80, *states("disk"))  # gpud has started again and does not know all its components yet
    read(90, *states(*both))
    read(100, *states("memory"), *states("disk", health="Unhealthy"))
    read(110, *states("disk", health="Unhealthy"))
    read(120, *states("disk"), *states("memory", health="Degraded"))
    assert list(Occurrence.objects.order_by("pk").values_list("incident__code", "boot_id")) == [
        ("memory", "boot-1"),
        ("disk", "boot-2"),
        ("memory", "boot-1"),
    ]


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_state_that_stands_after_a_boot_is_reported_again_and_in_doubt(
    east: Cluster, now: datetime, stand_ins: StandIns, is_repaired: bool
) -> None:
    """The repair of the first boot may have closed the incident meanwhile."""
    Node.objects.filter(name="gpu-1").update(gpus=8)
    row = add(east, "gpud", now=now, url=stand_ins.url + "/gpud/{node}", node="gpu-1")
    at = now - timedelta(minutes=20)

    def read(seconds: int, *found: dict[str, Any]) -> None:
        stand_ins.troubles += [Answered(body=json.dumps(answer).encode()) for answer in (list(found), [])]
        pull(row, at=at + seconds * SECOND)

    read(0, *states("disk", "memory"))
    broken = *states("memory"), *states("disk", health="Unhealthy")
    read(60, *broken)
    begun = at + 100 * SECOND
    read(110, *broken)  # the watch has not seen the boot yet
    boot = {"boot_id": "boot-2", "past_boots": ["boot-1"], "boot_times": {"boot-2": begun.isoformat()}}
    Node.objects.filter(name="gpu-1").update(**boot)
    assert boots() == ["boot-1"]
    if is_repaired:
        Incident.objects.update(state="closed", closed_at=begun, closed_because={"code": "incident_verified"})
    read(160, *broken)
    read(220, *broken)
    told = Occurrence.objects.order_by("pk").values_list("boot_id", "doubt__boot", "incident__state")
    assert list(told) == [("boot-1", None, ["open", "closed"][is_repaired]), ("boot-1", "boot-2", "open")]
    assert Occurrence.objects.latest("pk").doubt_until == begun + 600 * SECOND
    read(280, *states("disk", "memory"))
    assert not Occurrence.objects.filter(doubt_until__isnull=False).exists()
    assert not Incident.objects.filter(state="open", ended_at=None).exists()


def test_a_starting_component_does_not_affect_other_components(
    east: Cluster, now: datetime, rebooted: datetime, stand_ins: StandIns
) -> None:
    row = add(east, "gpud", now=now, url=stand_ins.url + "/gpud/{node}", node="gpu-1")
    first, then = states("disk", "memory"), states("disk", "network")
    broken = states("memory", health="Unhealthy") + states("new", health="Unhealthy")
    for seconds, found in ((60, first), (90, [*then, *broken])):
        stand_ins.troubles += [Answered(body=json.dumps(answer).encode()) for answer in (found, [])]
        pull(row, at=rebooted + seconds * SECOND)
    told = Occurrence.objects.values_list("incident__code", "boot_id")
    assert set(told) == {("memory", "boot-2"), ("new", "boot-1")}


def test_a_late_report_is_shown_as_not_counted(
    sentinel: Sender, health: Make, now: datetime, rebooted: datetime, client: Any
) -> None:
    sentinel.post([health(at=rebooted - 47 * SECOND)])
    incident = Incident.objects.get()
    assert (incident.boot_id, incident.state) == ("boot-1", "open")
    assert incident.opened_at == incident.last_at == rebooted - 47 * SECOND
    _, secret = accounts.make_token("viewer", created_by="test", now=now - SECOND)
    answer = client.get("/api/v1/events", headers={"Authorization": f"Bearer {secret}"})
    [row] = answer.json()["results"]
    assert row["late_reason"]["code"] == "told_late"
    assert row["late_reason"]["params"]["source"] == "nvsentinel"
    assert row["late_seconds"] == pytest.approx(347, abs=1)
    assert datetime.fromisoformat(row["earliest_at"]) == rebooted - 52 * SECOND
    reason = Occurrence.objects.get().late_reason
    assert reason is not None
    pages = Admin("admin", incident.cluster, now).client
    for path in (f"/incidents/{incident.pk}/", "/occurrences/"):
        assert str(reason) in html.unescape(pages.get(path).content.decode())


def test_the_end_of_an_alert_ends_the_doubt_about_its_boot(
    east: Cluster, now: datetime, rebooted: datetime, alert: Make
) -> None:
    sender = Sender(add(east, "alertmanager", now=now), now=now)
    fired = {**alert(), "startsAt": stamp(rebooted + 30 * SECOND)}
    sender.post(notification(fired))
    row = Occurrence.objects.get()
    assert (row.boot_id, row.doubt["boot"]) == ("boot-1", "boot-2")
    assert row.doubt_until is not None
    sender.post(notification({**fired, "status": "resolved", "endsAt": stamp(rebooted + 50 * SECOND)}))
    row.refresh_from_db()
    assert row.doubt_until is None


def test_an_alert_that_began_before_the_boot_is_in_no_doubt(
    east: Cluster, now: datetime, rebooted: datetime, alert: Make
) -> None:
    sender = Sender(add(east, "alertmanager", now=now), now=now)
    sender.post(notification({**alert(), "startsAt": stamp(rebooted - 30 * SECOND)}))
    assert Occurrence.objects.get().doubt_until is None
