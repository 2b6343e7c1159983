"""Events that Alertmanager and NVSentinel send."""

import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from kcover_portal.accounts import services as accounts
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from tests import moment
from tests.portal.sources.conftest import Sender, add, notification, stamp

Make = Callable[..., dict[str, Any]]


def took(response: Any) -> tuple[int, int, list[tuple[str, str]]]:
    assert response.status_code == 202, response.content
    body = response.json()
    assert all(one["reason"] for one in body["rejected"])
    return body["accepted"], body["duplicates"], [(one["path"], one["code"]) for one in body["rejected"]]


def open_incidents() -> list[tuple[str, str, str]]:
    return list(Incident.objects.filter(state="open").order_by("pk").values_list("kind", "code", "device"))


def test_a_firing_alert_opens_an_incident_and_a_resolved_one_closes_it(alertmanager: Sender, alert: Make) -> None:
    assert took(alertmanager.post(notification(alert()))) == (1, 0, [])
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.severity) == ("alert", "GpuEccErrors", "fatal")
    assert incident.node is not None
    assert incident.node.name == "gpu-1"
    assert took(alertmanager.post(notification(alert(status="resolved")))) == (1, 0, [])
    incident.refresh_from_db()
    assert (incident.state, incident.closed_because["code"]) == ("closed", "source_reports_healthy")


def test_an_alert_that_a_portal_sent_is_ignored(alertmanager: Sender, alert: Make) -> None:
    """Its incident would be an alert again. Some of them, such as a pause, name no node."""
    labels = {"kcover_portal": "portal.example", "kcover_alert": "incident-1-opened"}
    pause = {**alert(), "labels": {"alertname": "KcoverAutomationPaused", **labels, "kcover_alert": "entry-east-7"}}
    batch = notification(alert("KcoverIncidentOpened", **labels), pause, alert())
    assert took(alertmanager.post(batch)) == (3, 0, [])
    assert open_incidents() == [("alert", "GpuEccErrors", "")]
    assert took(alertmanager.post(batch)) == (0, 3, [])
    over = alert("KcoverIncidentOpened", status="resolved", **labels)
    assert took(alertmanager.post(notification(over))) == (1, 0, [])


def test_a_repeated_notification_changes_nothing(alertmanager: Sender, alert: Make) -> None:
    for expected in ((1, 0, []), (0, 1, [])):
        assert took(alertmanager.post(notification(alert()))) == expected
    assert Incident.objects.get().count == 1


def test_a_pair_of_prometheus_servers_reports_one_alert(alertmanager: Sender, alert: Make, now: datetime) -> None:
    """Their labels differ in the replica only. The end of one is not the end while the other one fires."""
    first, second = (alert(prometheus_replica=name) for name in ("a", "b"))
    second["startsAt"] = (now - timedelta(seconds=70)).isoformat()
    assert took(alertmanager.post(notification(first))) == (1, 0, [])
    assert took(alertmanager.post(notification(first, second))) == (0, 2, [])
    assert Incident.objects.get().count == 1
    ended = {"status": "resolved", "endsAt": now.isoformat()}
    assert took(alertmanager.post(notification({**first, **ended}, second))) == (1, 1, [])
    assert open_incidents() == [("alert", "GpuEccErrors", "")]
    alertmanager.post(notification({**first, **ended}, {**second, **ended}))
    assert open_incidents() == []


@pytest.mark.parametrize(("seconds", "count"), [(-15, 1), (40, 1), (-3_600, 1), (300, 2)])
def test_an_alert_that_still_fires_is_not_counted_again_from_another_peer(
    alertmanager: Sender, alert: Make, now: datetime, seconds: int, count: int
) -> None:
    """One that begins minutes later is a new one: its end was lost on the way."""
    began = now - timedelta(minutes=6)
    alertmanager.post(notification({**alert(), "startsAt": began.isoformat()}))
    other = {**alert(), "startsAt": (began + timedelta(seconds=seconds)).isoformat()}
    assert took(alertmanager.post(notification(other))) == (count - 1, 2 - count, [])
    assert Incident.objects.get().count == count


def test_an_alert_that_fires_after_its_end_counts(alertmanager: Sender, alert: Make, now: datetime) -> None:
    began = now - timedelta(minutes=6)
    alertmanager.post(notification({**alert(), "startsAt": began.isoformat()}))
    ended = {"status": "resolved", "endsAt": (began + timedelta(seconds=10)).isoformat()}
    alertmanager.post(notification({**alert(), "startsAt": began.isoformat(), **ended}))
    assert open_incidents() == []
    again = {**alert(), "startsAt": (began + timedelta(seconds=20)).isoformat()}
    assert took(alertmanager.post(notification(again))) == (1, 0, [])
    assert open_incidents() == [("alert", "GpuEccErrors", "")]


def test_an_alert_that_resolves_because_its_node_is_gone_stays_open(alertmanager: Sender, alert: Make) -> None:
    alertmanager.post(notification(alert()))
    Node.objects.filter(name="gpu-1").update(ready=False)
    assert took(alertmanager.post(notification(alert(status="resolved")))) == (1, 0, [])
    assert open_incidents() == [("alert", "GpuEccErrors", "")]


@pytest.mark.parametrize(("minutes", "is_over"), [(9, False), (11, True)])
def test_an_alert_that_resolved_without_its_node_is_over_when_the_node_stays(
    alertmanager: Sender, alert: Make, now: datetime, minutes: int, is_over: bool
) -> None:
    """Within ten minutes it would fire again: that is the time of its scrape, its ``for`` and its range."""
    alertmanager.post(notification(alert(), alert("Other")))
    Node.objects.filter(name="gpu-1").update(ready=False, ready_since=None)
    alertmanager.post(notification(alert(status="resolved")))
    later = now + timedelta(minutes=30)
    services.apply_held_passes(now=later)
    assert len(open_incidents()) == 2
    Node.objects.filter(name="gpu-1").update(ready=True, ready_since=later - timedelta(minutes=minutes))
    services.apply_held_passes(now=later)
    assert open_incidents() == [("alert", "GpuEccErrors", ""), ("alert", "Other", "")][is_over:]


def test_an_alert_that_fires_after_its_node_came_back_is_not_over(
    alertmanager: Sender, alert: Make, now: datetime
) -> None:
    later = now + timedelta(minutes=30)
    alertmanager.post(notification(alert(gpu="0"), alert(gpu="1"), alert("Again")))
    Node.objects.filter(name="gpu-1").update(ready=False, ready_since=None)
    alertmanager.post(notification(alert(gpu="0", status="resolved"), alert("Again", status="resolved")))
    Node.objects.filter(name="gpu-1").update(ready=True, ready_since=later - timedelta(minutes=11))
    moment.move_to(later)
    alertmanager.post(notification({**alert("Again"), "startsAt": stamp(later - timedelta(minutes=1))}))
    services.apply_held_passes(now=later)
    assert sorted(open_incidents()) == [("alert", "Again", ""), ("alert", "GpuEccErrors", "gpu 1")]


def test_bad_items_are_rejected_and_good_ones_are_kept(alertmanager: Sender, alert: Make, now: datetime) -> None:
    tomorrow = (now + timedelta(days=365 * 50)).isoformat()
    batch = notification(
        alert(),
        alert(node="elsewhere"),
        {**alert("Late"), "startsAt": tomorrow},
        alert("a\u202eb"),
        {**alert(), "labels": {"alertname": "NoNode"}},
        {**alert(), "status": "pending"},
        "nothing",  # type: ignore[arg-type]
        {**alert(), "labels": {"alertname": 7}},
    )
    accepted, duplicates, rejected = took(alertmanager.post(batch))
    assert (accepted, duplicates) == (1, 0)
    assert sorted(rejected) == [
        ("alerts/1", "source_node_unknown"),
        ("alerts/2/startsAt", "source_clock_ahead"),
        ("alerts/3/labels/alertname", "source_code_invalid"),
        ("alerts/4/labels", "alert_node_missing"),
        ("alerts/5/status", "alert_status"),
        ("alerts/6", "source_not_object"),
        ("alerts/7/labels/alertname", "source_not_text"),
    ]
    source = Source.objects.get(pk=alertmanager.source.pk)
    assert (source.accepted, source.rejected, source.error["code"]) == (1, 7, "source_node_unknown")


@pytest.mark.parametrize(
    "name", ["GPU温度过高", "Übertemperatur", "Перегрев GPU", "जीपीयू त्रुटि", "خطای GPU", "حرارة عالية"]
)
def test_an_alert_has_its_name_in_any_script(name: str, alertmanager: Sender, alert: Make) -> None:
    assert took(alertmanager.post(notification(alert(name)))) == (1, 0, [])
    assert open_incidents() == [("alert", name, "")]
    assert took(alertmanager.post(notification(alert(name, status="resolved")))) == (1, 0, [])
    assert open_incidents() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        ("text", 400),
        ({"version": "3", "alerts": []}, 400),
        ({"version": "4", "alerts": {}}, 400),
        ({"version": "4", "alerts": [{}] * 1_001}, 400),
        (b"{", 400),
        (b'{"version": NaN}', 400),
        (b"\xff", 400),
        (b" " * (1024 * 1024 + 1), 413),
    ],
)
def test_a_request_that_is_no_notification_is_a_clear_error(alertmanager: Sender, body: Any, status: int) -> None:
    response = alertmanager.post(body)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/problem+json"
    assert Incident.objects.count() == 0


def test_the_label_of_the_node_is_a_setting(east: Cluster, alert: Make, now: datetime) -> None:
    sender = Sender(add(east, "alertmanager", now=now, node_label="instance"), now=now)
    assert took(sender.post(notification(alert(node="other", instance="gpu-2:9400")))) == (1, 0, [])
    assert Incident.objects.get().node == Node.objects.get(name="gpu-2")


def test_a_health_event_opens_an_incident_with_its_advice(sentinel: Sender, health: Make) -> None:
    assert took(sentinel.post(health(), content_type="application/cloudevents+json")) == (1, 0, [])
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.device) == ("health", "SysLogsXIDError/79", "0000:4e:00")
    assert (incident.severity, incident.advice) == ("fatal", "RESTART_BM")


@pytest.mark.parametrize(
    ("action", "custom", "advice"),
    [
        (28, "", "REMEDIATE"),
        (39, "", "RESTART_APP"),
        (27, "swap the tray", "CUSTOM: swap the tray"),
        ("CUSTOM", "swap the tray", "CUSTOM: swap the tray"),
        (27, "", "CUSTOM"),
        (24, "not shown", "RESTART_BM"),
        (1000, "", "1000"),
    ],
)
def test_the_advice_of_a_health_event(sentinel: Sender, health: Make, action: object, custom: str, advice: str) -> None:
    event = health(recommendedAction=action, customRecommendedAction=custom)
    assert took(sentinel.post(event, content_type="application/cloudevents+json")) == (1, 0, [])
    assert Incident.objects.get().advice == advice


@pytest.mark.parametrize(
    ("check", "code", "alias"),
    [
        ("SysLogsXIDError", "79", "xid 79"),
        ("SysLogsSXIDError", "12028", "health SysLogsSXIDError/12028"),
        ("GpuXidWatch", "Xid 62", "xid 62"),
        ("GpuThermalWatch", "79", "health GpuThermalWatch/79"),
    ],
)
def test_an_xid_by_its_other_name(sentinel: Sender, health: Make, check: str, code: str, alias: str) -> None:
    sentinel.post([health(checkName=check, errorCode=[code])])
    assert Incident.objects.get().alias == alias


def test_the_three_modes_of_cloudevents(sentinel: Sender, health: Make) -> None:
    assert took(sentinel.post(health("1"), content_type="application/cloudevents+json; charset=utf-8")) == (1, 0, [])
    batch = [
        health("1"),
        health("2", errorCode=["62"]),
        health("3", errorCode=["48"], specversion="9"),
        {**health("4"), "specversion": "0.3"},
    ]
    answer = took(sentinel.post(batch, content_type="application/cloudevents-batch+json"))
    assert answer == (2, 1, [("3/specversion", "cloudevent_version")])
    event = health("5", nodeName="gpu-2")
    attributes = {f"ce_{name}": event[name] for name in ("specversion", "type", "source", "id", "time")}
    assert took(sentinel.post(event["data"], **attributes)) == (1, 0, [])
    assert took(sentinel.post(event["data"], **attributes)) == (0, 1, [])


def test_a_pass_closes_only_incidents_of_the_same_check(sentinel: Sender, health: Make) -> None:
    events = [
        health("1"),
        health("2", checkName="GpuMemWatch", errorCode=["DCGM_FR_ROW_REMAP"]),
        health("3", nodeName="gpu-2"),
        health("4", errorCode=["48"], entitiesImpacted=[{"entityType": "PCI", "entityValue": "0000:5e:00"}]),
    ]
    sentinel.post(events)
    assert len(open_incidents()) == 4
    sentinel.post([health("5", isHealthy=True, isFatal=False, errorCode=[])])
    assert sorted(open_incidents()) == [
        ("health", "GpuMemWatch/DCGM_FR_ROW_REMAP", "0000:4e:00"),
        ("health", "SysLogsXIDError/48", "0000:5e:00"),
        ("health", "SysLogsXIDError/79", "0000:4e:00"),
    ]
    sentinel.post([health("6", isHealthy=True, errorCode=[], entitiesImpacted=[])])
    assert Incident.objects.filter(state="open", node__name="gpu-1").count() == 1


def test_a_health_event_that_is_exported_again_counts_once(sentinel: Sender, health: Make, now: datetime) -> None:
    """The exporter gives it another id each time. Without a time of its own, the id is all that tells it apart."""
    sentinel.post([health("1"), health("2")])
    assert took(sentinel.post(health("3"))) == (0, 1, [])
    assert Incident.objects.get().count == 1
    assert took(sentinel.post(health("4", generatedTimestamp=(now - timedelta(seconds=1)).isoformat()))) == (1, 0, [])
    assert took(sentinel.post(health("5", errorCode=["62"]))) == (1, 0, [])
    assert took(sentinel.post(health("6", isHealthy=True))) == (1, 0, [])
    untimed = health("7", checkName="Other", generatedTimestamp="")
    assert took(sentinel.post([untimed, {**untimed, "id": "8"}])) == (2, 0, [])
    assert Incident.objects.get(code__startswith="Other").count == 2


def test_a_late_pass_closes_no_newer_fault(sentinel: Sender, health: Make, now: datetime) -> None:
    sentinel.post([health("1")])
    earlier = now - timedelta(minutes=2)
    assert took(sentinel.post([health("2", at=earlier, isHealthy=True)])) == (1, 0, [])
    assert len(open_incidents()) == 1


def test_a_clock_that_was_ahead_does_not_keep_a_fault_open(sentinel: Sender, health: Make, now: datetime) -> None:
    sentinel.post([health("1", at=now + timedelta(minutes=5))])
    assert len(open_incidents()) == 1
    later = now + timedelta(minutes=2)
    moment.move_to(later)
    sentinel.post([health("2", at=later, isHealthy=True)])
    assert open_incidents() == []


def test_ended_events_open_no_incident(sentinel: Sender, health: Make, now: datetime) -> None:
    """A backfill: a fault and its end in any order, and a fault of weeks ago."""
    events = [
        health("1", isHealthy=True, at=now - timedelta(minutes=1)),
        health("2", at=now - timedelta(minutes=3)),
        health("3", at=now - timedelta(days=60), checkName="Old"),
    ]
    assert took(sentinel.post(events)) == (3, 0, [])
    assert open_incidents() == []


def test_the_lag_is_that_of_the_newest_event_in_whatever_order_they_come(
    sentinel: Sender, health: Make, now: datetime
) -> None:
    def lag_after(age: timedelta) -> float | None:
        sentinel.post([health(str(age), at=now - age)])
        return Source.objects.get(pk=sentinel.source.pk).lag

    assert lag_after(timedelta(days=80)) is None  # backfill says nothing about the delay
    assert 3_600 <= lag_after(timedelta(hours=1)) < 3_660
    assert 5 <= lag_after(timedelta(seconds=5)) < 60
    assert 5 <= lag_after(timedelta(hours=3)) < 60
    assert 5 <= lag_after(timedelta(days=70)) < 60
    assert lag_after(-timedelta(minutes=5)) == 0


def test_an_old_event_is_decided_only_after_its_end_could_follow(sentinel: Sender, health: Make, now: datetime) -> None:
    sentinel.post([health("1", at=now - timedelta(hours=2))])
    incident = Incident.objects.get()
    assert incident.decide_at is not None
    assert incident.decide_at > now + timedelta(minutes=5)
    sentinel.post([health("2", at=now)])
    incident.refresh_from_db()
    assert incident.decide_at < now + timedelta(minutes=5)


def test_a_second_old_event_does_not_hasten_the_decision(sentinel: Sender, health: Make, now: datetime) -> None:
    """Of a million backfilled events, the second fault of a device arrived before the end of the first."""
    sentinel.post([health("1", at=now - timedelta(hours=4))])
    due = Incident.objects.get().decide_at
    sentinel.post([health("2", at=now - timedelta(hours=2), message="worse", isFatal=True)])
    incident = Incident.objects.get()
    assert (incident.count, incident.decide_at) == (2, due)


def test_store_only_events_are_accepted_without_consequence(sentinel: Sender, health: Make) -> None:
    assert took(sentinel.post([health("1", processingStrategy="STORE_ONLY")])) == (1, 0, [])
    assert open_incidents() == []


@pytest.mark.parametrize(
    ("given", "statements"),
    [({"isHealthy": True, "nodeName": "gpu-2"}, 9), ({}, 12), ({"processingStrategy": "STORE_ONLY"}, 6)],
    ids=["a pass with nothing to close", "a repeated fault", "stored only"],
)
def test_a_routine_event_costs_few_statements(
    sentinel: Sender,
    health: Make,
    now: datetime,
    django_assert_num_queries: Any,
    given: dict[str, Any],
    statements: int,
) -> None:
    """190,000 of them a day must cost next to nothing. Two are the begin and the end of the transaction."""
    at = now - timedelta(seconds=1)
    sentinel.post([health("1", at=at), health("2", at=at, isHealthy=True, nodeName="gpu-2")])
    with django_assert_num_queries(statements):
        assert took(sentinel.post(health("3", **given))) == (1, 0, [])


def test_a_source_creates_no_agent(sentinel: Sender, health: Make) -> None:
    sentinel.post([health("1")])
    assert Agent.objects.count() == 0


@pytest.mark.parametrize("field", ["checkName", "nodeName", "isHealthy", "errorCode", "entitiesImpacted", "message"])
def test_an_invalid_health_event_is_rejected_by_its_path(sentinel: Sender, health: Make, field: str) -> None:
    accepted, _, [(path, _code)] = took(sentinel.post([health("1", **{field: {"a": []}})]))
    assert (accepted, path) == (0, f"0/data/healthEvent/{field}")


def test_a_compressed_body_is_a_clear_error(sentinel: Sender, health: Make) -> None:
    answer = sentinel.post(gzip.compress(json.dumps(health("1")).encode()), Content_Encoding="gzip")
    assert (answer.status_code, answer.json()["code"]) == (415, "source_encoding")


def test_a_disabled_source_refuses_requests(alertmanager: Sender, alert: Make, now: datetime) -> None:
    services.SOURCES.change(alertmanager.source, {"enabled": False}, actor="test", reason="", now=now)
    assert alertmanager.post(notification(alert())).status_code == 409
    assert open_incidents() == []


def test_a_token_feeds_its_own_source_only(alertmanager: Sender, sentinel: Sender, alert: Make) -> None:
    path = f"/api/v1/sources/{sentinel.source.name}/events"
    assert alertmanager.post(notification(alert()), to=path).status_code == 403
    assert alertmanager.post({}, to="/api/v1/pause").status_code == 403
    assert Client().get("/api/v1/nodes", headers=alertmanager.headers).status_code == 403
    assert Client().get("/api/v1/sources", headers=alertmanager.headers).status_code == 403
    assert Client().post(path, data="{}", content_type="application/json").status_code == 401


@pytest.mark.parametrize("kind", ["viewer", "operator", "decision"])
def test_other_tokens_cannot_feed_a_source(alertmanager: Sender, alert: Make, now: datetime, kind: str) -> None:
    _, secret = accounts.make_token(kind, created_by="test", now=now - timedelta(seconds=1))
    alertmanager.headers = {"Authorization": f"Bearer {secret}"}
    assert alertmanager.post(notification(alert())).status_code == 403


def test_the_tokens_of_a_removed_source_end(alertmanager: Sender, alert: Make, east: Cluster, now: datetime) -> None:
    services.SOURCES.delete(alertmanager.source, actor="test", reason="", now=now)
    add(east, "alertmanager", now=now)
    assert alertmanager.post(notification(alert())).status_code == 401


@pytest.mark.parametrize(
    "told",
    [
        "10.16.0.3:9100",
        "[2345:425:2ca1::567:5673:23b5]:9100",
        "203.0.113.9",
        "GPU-2.internal.example",
        "gpu-2.internal",
    ],
)
def test_a_node_is_known_by_each_name_of_its_host(told: str, alertmanager: Sender, alert: Make) -> None:
    addresses = ["10.16.0.3", "2345:425:2ca1::567:5673:23b5", "203.0.113.9", "gpu-2.internal.example"]
    Node.objects.filter(name="gpu-2").update(address="10.16.0.3", addresses=addresses)
    assert took(alertmanager.post(notification(alert(node=told)))) == (1, 0, [])
    assert Incident.objects.get().node == Node.objects.get(name="gpu-2")
    assert took(alertmanager.post(notification(alert(node=told, status="resolved")))) == (1, 0, [])
    assert open_incidents() == []
    foreign = alertmanager.post(notification(alert(node="gpu-2.example.com")))
    assert took(foreign)[2] == [("alerts/0", "source_node_unknown")]


def test_a_host_that_several_nodes_may_be_is_rejected(alertmanager: Sender, alert: Make) -> None:
    Node.objects.filter(name__in=("gpu-1", "gpu-2")).update(addresses=["10.16.0.3"])
    rejected = took(alertmanager.post(notification(alert(node="10.16.0.3"), alert(node="10.16.0.4"))))[2]
    assert rejected == [("alerts/0", "source_node_ambiguous"), ("alerts/1", "source_node_unknown")]
    assert Source.objects.get(pk=alertmanager.source.pk).rejected == 2
    Node.objects.filter(name="gpu-1").update(in_cluster=False)
    assert took(alertmanager.post(notification(alert(node="10.16.0.3")))) == (1, 0, [])


def test_an_address_is_of_the_machine_that_had_it_at_the_time(alertmanager: Sender, alert: Make, now: datetime) -> None:
    rows = Node.objects.filter(name="gpu-1")
    rows.update(addresses=["10.16.0.3"], machine_after=now - timedelta(minutes=3), machine_since=now)

    def told(name: str, *, node: str, minutes: int, **more: str) -> tuple[int, int, list[tuple[str, str]]]:
        begun = stamp(now - timedelta(minutes=minutes))
        return took(alertmanager.post(notification(alert(name, node=node, **more) | {"startsAt": begun})))

    assert told("Earlier", node="10.16.0.3", minutes=4) == (0, 0, [("alerts/0", "source_address_earlier")])
    assert open_incidents() == []
    assert told("Unseen", node="10.16.0.3", minutes=2) == (1, 0, [])  # it may have joined by then
    assert told("Over", node="10.16.0.3", minutes=4, status="resolved") == (1, 0, [])
    assert told("ByName", node="gpu-1", minutes=4) == (1, 0, [])
    assert told("ByFullName", node="gpu-1.example.com", minutes=4) == (1, 0, [])
    rows.update(machine_after=None)  # it was there before the portal
    assert told("Earlier", node="10.16.0.3", minutes=4) == (1, 0, [])


def test_a_health_event_about_an_address_is_of_its_node(sentinel: Sender, health: Make) -> None:
    Node.objects.filter(name="gpu-2").update(addresses=["10.0.15.233"])
    event = health()
    event["data"]["healthEvent"]["nodeName"] = "10.0.15.233"
    assert took(sentinel.post(event, content_type="application/cloudevents+json")) == (1, 0, [])
    assert Incident.objects.get().node == Node.objects.get(name="gpu-2")


ADDRESSES = 'SELECT "fleet_node"."name"'


def test_only_a_name_that_no_node_has_costs_a_query_more(alertmanager: Sender, alert: Make) -> None:
    with CaptureQueriesContext(connection) as known:
        alertmanager.post(notification(alert()))
    assert not [query for query in known if query["sql"].startswith(ADDRESSES)]
    with CaptureQueriesContext(connection) as unknown:
        alertmanager.post(notification(alert("Other", node="elsewhere")))
    assert len([query for query in unknown if query["sql"].startswith(ADDRESSES)]) == 1
