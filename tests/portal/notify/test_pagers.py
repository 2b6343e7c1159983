"""The request to an on-call service for one event, and the handling of its answer."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.notify import senders
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import PagerEvent, SendError, pagers
from tests.portal.notify.receiver import Receiver

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
KEY = "0123456789abcdef0123456789abcdef"
EVENT = PagerEvent(
    action="trigger",
    page="incident-41",
    summary="Incident opened: Xid 79 (fatal) · gpu-1 · c1",
    severity="fatal",
    kind="incident.opened",
    lines=("Incident opened: Xid 79 (fatal) · gpu-1 · c1 https://portal.example/incidents/41/",),
    source="gpu-1",
    component="xid 79",
    cluster="c1",
    link="https://portal.example/incidents/41/",
    at=NOW,
    details={"cluster": "c1", "nodes": "gpu-1"},
)


def channel(kind: str, url: str, **more: Any) -> Channel:
    return Channel(**{"name": "x", "kind": kind, "url": url, "secret": KEY, "created_at": NOW, **more})


def but(**more: Any) -> PagerEvent:
    return PagerEvent(**{**{name: getattr(EVENT, name) for name in EVENT.__dataclass_fields__}, **more})


def test_pagerduty_gets_an_event_of_its_second_version(receiver: Receiver):
    receiver.statuses, receiver.answer = [202], '{"status":"success","message":"PagerEvent processed"}'
    assert senders.page(channel("pagerduty", receiver.url), EVENT, key="5d4c") == reasons.of("answered", status="202")
    assert receiver.paths == ["/hook/hush/v2/enqueue"]
    assert receiver.headers[0]["X-Kcover-Delivery"] == "5d4c"
    assert "X-Kcover-Signature" not in receiver.headers[0]
    assert receiver.asked == [
        {
            "routing_key": KEY,
            "event_action": "trigger",
            "dedup_key": "kcover-20261121T080000-incident-41",
            "payload": {
                "summary": EVENT.summary,
                "source": "gpu-1",
                "severity": "critical",
                "component": "xid 79",
                "group": "c1",
                "class": "incident.opened",
                "timestamp": "2026-11-21T08:00:00+00:00",
                "custom_details": {"cluster": "c1", "nodes": "gpu-1", "what": list(EVENT.lines)},
            },
            "client": "kcover portal",
            "client_url": "https://portal.example/incidents/41/",
            "links": [{"href": "https://portal.example/incidents/41/", "text": "kcover portal"}],
        }
    ]


@pytest.mark.parametrize("action", ["acknowledge", "resolve"])
def test_pagerduty_gets_no_more_of_an_end_than_its_name(receiver: Receiver, action: str):
    senders.page(channel("pagerduty", receiver.url), but(action=action), key="k")
    name = "kcover-20261121T080000-incident-41"
    assert receiver.asked == [{"routing_key": KEY, "event_action": action, "dedup_key": name}]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("info", "info"), ("warning", "warning"), ("degraded", "error"), ("fatal", "critical")]
)
def test_pagerdutys_severities(receiver: Receiver, ours: str, theirs: str):
    senders.page(channel("pagerduty", receiver.url), but(severity=ours), key="k")
    assert receiver.asked[0]["payload"]["severity"] == theirs


def test_pagerduty_takes_a_summary_of_so_many_characters_and_always_wants_a_source(receiver: Receiver):
    senders.page(channel("pagerduty", receiver.url), but(summary="故" * 2000, source="", link=""), key="k")
    (body,) = receiver.asked
    assert (len(body["payload"]["summary"]), body["payload"]["source"]) == (1024, "kcover portal")
    assert "links" not in body


def test_opsgenie_gets_an_alert(receiver: Receiver):
    receiver.statuses, receiver.answer = [202], '{"result":"Request will be processed","requestId":"r"}'
    assert senders.page(channel("opsgenie", receiver.url), EVENT, key="5d4c") == reasons.of("answered", status="202")
    assert receiver.paths == ["/hook/hush/v2/alerts"]
    assert receiver.headers[0]["Authorization"] == f"GenieKey {KEY}"
    assert receiver.asked == [
        {
            "message": EVENT.summary,
            "alias": "kcover-20261121T080000-incident-41",
            "description": f"{EVENT.lines[0]}\nhttps://portal.example/incidents/41/",
            "priority": "P1",
            "source": "portal.example",
            "entity": "gpu-1",
            "tags": ["kcover", "incident.opened", "c1"],
            "details": {"cluster": "c1", "nodes": "gpu-1", "link": "https://portal.example/incidents/41/"},
        }
    ]


@pytest.mark.parametrize(("action", "verb"), [("acknowledge", "acknowledge"), ("resolve", "close")])
def test_opsgenie_closes_an_alert_by_its_alias(receiver: Receiver, action: str, verb: str):
    event = but(action=action, page="pause-a b/c", summary="Automation goes on")
    senders.page(channel("opsgenie", receiver.url), event, key="k")
    path = f"/hook/hush/v2/alerts/kcover-20261121T080000-pause-a%20b%2Fc/{verb}?identifierType=alias"
    assert receiver.paths == [path]
    assert receiver.asked == [{"source": "kcover portal", "note": "Automation goes on"}]
    assert receiver.headers[0]["Authorization"] == f"GenieKey {KEY}"


@pytest.mark.parametrize(("ours", "theirs"), [("info", "P5"), ("warning", "P3"), ("degraded", "P2"), ("fatal", "P1")])
def test_opsgenies_priorities(receiver: Receiver, ours: str, theirs: str):
    senders.page(channel("opsgenie", receiver.url), but(severity=ours), key="k")
    assert receiver.asked[0]["priority"] == theirs


def test_opsgenie_takes_so_much_of_each(receiver: Receiver):
    long = but(summary="故" * 400, lines=("x" * 400,) * 50, cluster="c" * 100, details={"why": "y" * 2000}, link="")
    senders.page(channel("opsgenie", receiver.url), long, key="k")
    (body,) = receiver.asked
    assert (len(body["message"]), len(body["description"]), len(body["tags"][2])) == (130, 15_000, 50)
    assert (len(body["details"]["why"]), body["source"]) == (1000, "kcover portal")


def test_a_refusal_of_opsgenie_has_its_reason(receiver: Receiver):
    receiver.statuses = [422]
    receiver.answer = '{"message":"not processable","errors":{"message":"can not be empty"},"took":0.1}'
    with pytest.raises(SendError, match=r"answered HTTP 422: message: can not be empty$") as refusal:
        senders.page(channel("opsgenie", receiver.url), EVENT, key="k")
    assert not refusal.value.later


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://api.eu.opsgenie.com", "https://api.eu.opsgenie.com/v2/alerts"),
        ("https://api.opsgenie.com/v2/alerts", "https://api.opsgenie.com/v2/alerts"),
        ("https://api.atlassian.com/jsm/ops/integration/", "https://api.atlassian.com/jsm/ops/integration/v2/alerts"),
    ],
)
def test_the_address_of_opsgenie_is_completed(url: str, address: str):
    assert pagers.address("opsgenie", url) == address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://events.eu.pagerduty.com", "https://events.eu.pagerduty.com/v2/enqueue"),
        ("https://events.eu.pagerduty.com/", "https://events.eu.pagerduty.com/v2/enqueue"),
        ("https://events.pagerduty.com/v2/enqueue", "https://events.pagerduty.com/v2/enqueue"),
        ("http://proxy.local/pd", "http://proxy.local/pd/v2/enqueue"),
    ],
)
def test_the_address_of_pagerduty_is_completed(url: str, address: str):
    assert pagers.address("pagerduty", url) == address


@pytest.mark.parametrize(
    ("status", "answer", "said", "later"),
    [
        (
            400,
            '{"status":"invalid event","message":"is invalid","errors":["Length of routing_key\\nis wrong"]}',
            "400: Length of routing_key is wrong",
            False,
        ),
        (400, '{"message":"no"}', "400: no", False),
        (403, "<html>", "403.", False),
        (429, "", "429.", True),
        (500, "[]", "500.", True),
        (503, "[" * 5000, "503.", True),
    ],
)
def test_a_refusal_has_its_reason(receiver: Receiver, status: int, answer: str, said: str, later: bool):
    receiver.statuses, receiver.answer = [status], answer
    with pytest.raises(SendError) as refusal:
        senders.page(channel("pagerduty", receiver.url), EVENT, key="k")
    assert (str(refusal.value), refusal.value.later) == (f"127.0.0.1 answered HTTP {said}", later)


def test_no_refusal_shows_the_key(receiver: Receiver):
    receiver.statuses, receiver.answer = [400], f'{{"errors":["no integration has {KEY}"]}}'
    with pytest.raises(SendError, match=r"no integration has …$"):
        senders.page(channel("pagerduty", receiver.url), EVENT, key="k")


def test_a_truncated_refusal_does_not_show_a_part_of_the_key(receiver: Receiver):
    receiver.statuses, receiver.answer = [400], f'{{"errors":["{"x" * 180} {KEY} {"y" * 100}"]}}'
    with pytest.raises(SendError, match=r"x … y{17}$"):
        senders.page(channel("pagerduty", receiver.url), EVENT, key="k")


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("90", 90.0),
        (" 7 ", 7.0),
        ("-5", 0.0),
        ("soon", 0.0),
        ("9" * 400, 86_400.0),
        ("٣", 0.0),
        ("Sat, 21 Nov 2020 08:00:00 GMT", 0.0),
        ("Sat, 99999999999999999999 Nov 2020 08:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 86_400.0),
    ],
)
def test_a_busy_pager_defers_the_delivery_by_its_retry_after(receiver: Receiver, header: str, wait: float):
    receiver.statuses, receiver.more_headers = [429], {"Retry-After": header.encode().decode("latin-1")}
    with pytest.raises(SendError) as refusal:
        senders.page(channel("pagerduty", receiver.url), EVENT, key="k")
    assert refusal.value.wait == wait


def test_a_retry_after_date_defers_the_delivery(receiver: Receiver):
    moment = datetime.now(UTC) + timedelta(hours=1)
    receiver.statuses, receiver.more_headers = [503], {"Retry-After": format_datetime(moment, usegmt=True)}
    with pytest.raises(SendError) as refusal:
        senders.page(channel("pagerduty", receiver.url), EVENT, key="k")
    assert 3000 < refusal.value.wait <= 3600


def test_a_blocked_address_receives_no_page():
    with pytest.raises(SendError, match="is a blocked address"):
        senders.page(channel("pagerduty", "http://169.254.169.254"), EVENT, key="k")
