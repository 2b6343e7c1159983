"""Alerts at an Alertmanager: one for each event that needs attention, sent again until it ends."""

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.incidents.models import Incident
from kcover_portal.notify import senders, services
from kcover_portal.notify.models import Alert, Channel
from kcover_portal.notify.senders import PagerEvent, SendError
from kcover_portal.notify.services import open_alerts
from kcover_portal.policies import services as policies
from tests.portal.notify.conftest import tell
from tests.portal.notify.pages import FAULTS, close, pager, pause
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_pagers import NOW
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def _public(settings: Any) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"


def alertmanager(world: World, receiver: Receiver, *kinds: str, **given: Any) -> Channel:
    return pager(world, receiver, *kinds, service="alertmanager", **{"secret": "", **given})


def came(receiver: Receiver) -> list[tuple[str, str, str]]:
    """Of each alert that came, in order: its name, its node, and until when it lasts."""
    return [
        (one["labels"]["alertname"], one["labels"].get("node", ""), one["endsAt"])
        for body in receiver.asked
        for one in body
    ]


def test_a_fault_is_an_alert_until_its_incident_is_closed(world: World, receiver: Receiver, delivered: Delivered):
    row = alertmanager(world, receiver, *FAULTS)
    opened_at = world.now
    world.fault(79)
    delivered()
    incident = Incident.objects.get()
    alert = {
        "labels": {
            "alertname": "KcoverIncidentOpened",
            "severity": "critical",
            "cluster": "c1",
            "node": "gpu-1",
            "fault": "xid 79",
            "kcover_portal": "portal.example",
            "kcover_alert": f"incident-{incident.pk}-opened",
        },
        "annotations": {"summary": "Incident opened: Xid 79 (fatal) · gpu-1 · c1"},
        "startsAt": opened_at.isoformat(),
        "generatorURL": f"https://portal.example/incidents/{incident.pk}/",
    }
    lasts = timedelta(minutes=5)
    assert receiver.paths == ["/hook/hush/api/v2/alerts"]
    assert receiver.asked == [[{**alert, "endsAt": (world.now + lasts).isoformat()}]]

    assert services.repeat(now=world.now) == 1
    assert services.repeat(now=world.now + timedelta(seconds=59)) == 0
    world.now += timedelta(seconds=60)
    world.fault(79)  # which changes nothing of it
    assert services.repeat(now=world.now) == 1
    assert receiver.asked[2] == [{**alert, "endsAt": (world.now + lasts).isoformat()}]

    close(world, incident)
    closed_at = world.now
    delivered()
    assert receiver.asked[3:] == [[{**alert, "endsAt": closed_at.isoformat()}]]
    assert services.repeat(now=world.now + timedelta(hours=1)) == 0
    row.refresh_from_db()
    assert (Alert.objects.count(), row.trouble) == (0, {})


def test_similar_faults_are_separate_alerts_for_alertmanager(db: None, receiver: Receiver):
    world = World(nodes=3, policy="")
    services.sweep(now=world.now)
    alertmanager(world, receiver, *FAULTS)
    for index in range(1, 4):
        world.fault(79, node=f"gpu-{index}")
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    assert [node for _, node, _ in came(receiver)] == ["gpu-1", "gpu-2", "gpu-3"]
    assert services.repeat(now=world.now) == 3
    assert len(receiver.asked[3]) == 3  # in one request
    world.uninstall()


def test_an_alert_that_ends_during_a_repetition_stays_ended(
    world: World, receiver: Receiver, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
):
    """The end may overtake the repetition, which would let the alert fire again."""
    alertmanager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()

    real = senders.send_alerts

    def meanwhile(*args: Any, **more: Any) -> reasons.Reason:
        if Incident.objects.filter(state="open").exists():
            close(world, *Incident.objects.all())
            services.sweep(now=world.now)
        return real(*args, **more)

    monkeypatch.setattr(senders, "send_alerts", meanwhile)
    services.repeat(now=world.now)
    assert [at for _, _, at in came(receiver)][-1] == world.now.isoformat()


def test_a_notice_of_a_rule_lasts_an_hour(world: World, receiver: Receiver):
    alertmanager(world, receiver, "rescue.failed")
    policies.delete("heal", author="test", reason="", now=world.now)
    word = CORDON.replace(
        "{name: cordon}]", '{name: cordon}, {name: notify, attribute: {channel: pager, message: "Hi"}}]'
    )
    policies.apply(word.replace("rescue.ksyun.com", "kcover.io"), author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    tell(world)
    world.now += timedelta(seconds=2)
    tell(world)
    ((alert,),) = receiver.asked
    assert (alert["labels"]["alertname"], alert["annotations"]["description"]) == ("KcoverRuleNotify", "Hi")
    assert services.repeat(now=world.now) == 1
    assert services.repeat(now=world.now + open_alerts.MESSAGE_LASTS) == 0
    assert not Alert.objects.exists()


def test_an_alertmanager_that_is_down_or_switched_off_gets_the_alert_later(
    world: World, receiver: Receiver, delivered: Delivered
):
    row = alertmanager(world, receiver, "automation.paused")
    pause(world)
    receiver.statuses, receiver.answer = [503, 400, 200], '"bad label name"'
    delivered()
    assert services.repeat(now=world.now) == 0
    row.refresh_from_db()
    assert reasons.text(row.trouble) == "127.0.0.1 answered HTTP 400: bad label name"
    world.now += timedelta(minutes=1)
    assert services.repeat(now=world.now) == 1
    row.refresh_from_db()
    assert row.trouble == {}
    services.CHANNELS.change(row, {"enabled": False}, actor="test", reason="", now=world.now)
    assert services.repeat(now=world.now + timedelta(minutes=1)) == 0
    services.CHANNELS.change(row, {"enabled": True}, actor="test", reason="", now=world.now)
    assert services.repeat(now=world.now + timedelta(minutes=1)) == 1


def test_a_test_is_an_alert_that_ends_by_itself(world: World, receiver: Receiver):
    row = alertmanager(world, receiver, "rescue.failed")
    delivery = services.test(row, actor="user:anna", now=world.now)
    services.send(delivery.pk, clock=world.clock)
    assert came(receiver) == [("KcoverTest", "", (world.now + open_alerts.LASTS).isoformat())]
    assert receiver.asked[0][0]["labels"]["kcover_alert"] == f"test-{delivery.key}"
    assert services.repeat(now=world.now) == 0


@pytest.mark.parametrize(
    ("secret", "sent"),
    [
        ("", None),
        ("eyJhbGciOi.x-y_z", "Bearer eyJhbGciOi.x-y_z"),
        ("kcover:pa:ss", "Basic " + base64.b64encode(b"kcover:pa:ss").decode()),
    ],
)
def test_the_secret_is_a_token_or_a_user_with_a_password(receiver: Receiver, secret: str, sent: str | None):
    row = Channel(name="x", kind="alertmanager", url=receiver.url, secret=secret, created_at=NOW)
    event = PagerEvent(action="trigger", page="p", summary="", severity="info", body={"labels": {"alertname": "a"}})
    receiver.statuses, receiver.answer = [401], f'"nobody knows {secret}"' if secret else '"who are you"'
    with pytest.raises(SendError) as refusal:
        senders.page(row, event, key="k")
    assert receiver.headers[0].get("Authorization") == sent
    assert not secret or secret not in str(refusal.value)
