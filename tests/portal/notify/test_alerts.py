"""A pager: one page for an alert, its end when the alert is over, and nothing twice, whatever fails in between."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover_portal.incidents.models import Incident
from kcover_portal.notify import senders, services
from kcover_portal.notify.models import Alert, Cursor, Delivery, Notice
from kcover_portal.notify.services import deliveries
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescue
from kcover_portal.rescue.control import approvals
from tests import codes
from tests.portal.notify import scenes
from tests.portal.notify.conftest import tell
from tests.portal.notify.pages import FAULTS, called, came, close, go_on, pager, pause
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_collect import APPROVE
from tests.portal.notify.test_deliveries import Killed
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]


def test_a_fault_pages_once_and_its_end_resolves_the_page(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()
    incident = Incident.objects.get()
    world.fault(79)
    delivered()
    assert came(receiver) == [("trigger", f"incident-{incident.pk}-opened")]
    (event,) = receiver.asked
    assert event["payload"]["summary"] == "Incident opened: Xid 79 (fatal) · gpu-1 · c1"
    assert (event["payload"]["source"], event["payload"]["severity"]) == ("gpu-1", "critical")
    assert Alert.objects.get().name == f"incident-{incident.pk}"
    close(world, incident)
    delivered()
    assert came(receiver)[1:] == [("resolve", f"incident-{incident.pk}-opened")]
    assert not Alert.objects.exists()
    assert [one.state for one in Delivery.objects.all()] == ["sent", "sent"]


def test_opsgenie_receives_the_opening_and_the_end_too(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS, service="opsgenie")
    receiver.statuses = [202]
    world.fault(79)
    delivered()
    close(world, Incident.objects.get())
    delivered()
    opened, closed = receiver.asked
    assert (opened["message"], opened["priority"]) == ("Incident opened: Xid 79 (fatal) · gpu-1 · c1", "P1")
    assert receiver.paths[1] == f"/hook/hush/v2/alerts/{opened['alias']}/close?identifierType=alias"
    assert closed["note"].startswith("Incident closed: Xid 79 (fatal) · gpu-1 · c1")
    assert [codes.code_of(one.because) for one in Delivery.objects.all()] == ["answered", "answered"]


def test_the_end_of_an_unsent_alert_is_not_sent(world: World, receiver: Receiver, delivered: Delivered):
    world.fault(79)
    services.sweep(now=world.now)
    pager(world, receiver, *FAULTS)
    close(world, Incident.objects.get())
    delivered()
    assert receiver.asked == []
    assert not Delivery.objects.exists()


def test_an_event_that_ended_before_it_was_sent_pages_no_person(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    services.sweep(now=world.now)
    close(world, Incident.objects.get())
    delivered()
    assert came(receiver) == [("resolve", f"incident-{Incident.objects.get().pk}-opened")]
    world.fault(62)
    close(world, Incident.objects.latest("pk"))  # the same, but within one look
    delivered()
    assert len(receiver.asked) == 1


def test_similar_faults_are_one_page_that_ends_with_the_last(db: None, receiver: Receiver):
    world = World(nodes=6, policy="")
    services.sweep(now=world.now)
    pager(world, receiver, *FAULTS)
    for index in range(1, 7):
        world.fault(79, node=f"gpu-{index}")
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    first, *others = Incident.objects.order_by("pk")
    assert came(receiver) == [("trigger", f"incident-{first.pk}-opened")]
    assert "gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6" in receiver.asked[0]["payload"]["summary"]
    close(world, first, *others[1:])
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    assert len(receiver.asked) == 1
    assert codes.code_of(Delivery.objects.latest("pk").because) == "no_events"
    close(world, others[0])
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    assert came(receiver)[1:] == [("resolve", f"incident-{first.pk}-opened")]
    world.uninstall()


def test_an_approval_resolves_the_request_and_the_fault(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, "approval.waiting", *FAULTS)
    policies.delete("heal", author="test", reason="", now=world.now)
    policies.apply(APPROVE, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    delivered()
    assert sorted(called(receiver)) == [("trigger", "approval.waiting"), ("trigger", "incident.opened")]
    rescue.approve(world.rescue(), actor="user:bo", reason="go on", now=world.now)
    delivered()
    assert called(receiver)[2:] == [("resolve", "approval.waiting"), ("acknowledge", "incident.opened")]
    (answered,) = Delivery.objects.latest("pk").text.splitlines()
    assert answered.startswith("Approval answered: Xid 62 · gpu-1 · c1 – bo: go on")


def test_the_first_of_two_approvals_resolves_nothing(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, "approval.waiting")
    scenes.a_question_for_two(world, APPROVE)
    delivered()
    rescue.approve(world.rescue(), actor="user:bo", reason="", now=world.now)
    delivered()
    assert [action for action, _ in came(receiver)] == ["trigger"]
    rescue.approve(world.rescue(), actor="user:li", reason="", now=world.now)
    delivered()
    assert [action for action, _ in came(receiver)] == ["trigger", "resolve"]


def test_an_expired_approval_request_opens_a_call_for_a_person(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, "approval.waiting", "rescue.human")
    policies.delete("heal", author="test", reason="", now=world.now)
    policies.apply(APPROVE, author="test", reason="", now=world.now)
    world.fault(62)
    world.work()
    delivered()
    question = world.rescue()
    world.now = question.expires_at + timedelta(seconds=1)
    assert approvals.expire(now=world.now) == 1
    delivered()
    page = "approval.waiting"
    assert called(receiver) == [("trigger", page), ("trigger", "rescue.human"), ("resolve", page)]
    close(world, *Incident.objects.all())
    delivered()
    assert called(receiver)[3:] == [("resolve", "rescue.human")]
    assert not Alert.objects.exists()


def test_a_fault_that_comes_back_too_often_calls_a_person_until_it_is_closed(db: None, receiver: Receiver):
    world = World()
    services.sweep(now=world.now)
    pager(world, receiver, "rescue.human")
    scenes.a_fault_that_comes_back(world)
    for _ in range(3):
        world.pass_time(60)
        tell(world)
    incident = Incident.objects.get(state="open")
    assert called(receiver) == [("trigger", "rescue.human")]
    assert Alert.objects.get().name == f"decision-{incident.pk}"
    close(world, incident)
    for _ in range(2):
        world.now += timedelta(seconds=61)
        tell(world)
    assert called(receiver)[1:] == [("resolve", "rescue.human")]
    world.uninstall()


def test_a_pause_is_over_when_automation_goes_on(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, "automation.paused")
    for _ in range(2):
        pause(world)
        delivered()
        go_on(world)
        delivered()
    assert called(receiver) == [("trigger", "automation.paused"), ("resolve", "automation.paused")] * 2
    assert len(set(came(receiver))) == 4


def test_a_notice_of_a_rule_pages_separately(world: World, receiver: Receiver):
    row = pager(world, receiver, "rescue.failed")
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
    (event,) = receiver.asked
    assert event["payload"]["summary"] == "Message from a rule: Xid 62 · gpu-1 · c1 – Hi"
    assert not row.alerts.exists()
    assert codes.code_of(world.step("notify").progress["result"]["because"]) == "notify_delivered"


def test_reading_the_same_events_again_changes_nothing(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()
    close(world, Incident.objects.get())
    delivered()
    Cursor.objects.filter(name="incidents").update(position=0)
    Cursor.objects.filter(name="ledger c1").update(position=0)
    delivered()
    assert len(receiver.asked) == 2
    assert not Alert.objects.exists()


def test_a_pager_that_is_down_gets_every_event_later_and_none_twice(
    world: World, receiver: Receiver, delivered: Delivered
):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    world.fault(48)
    receiver.statuses, receiver.more_headers = [202, 429, 202], {"Retry-After": "90"}
    delivered()
    delivery = Delivery.objects.get()
    assert (delivery.state, codes.code_of(delivery.because)) == ("pending", "host_answered")
    assert delivery.due_at == world.now + timedelta(seconds=90)
    delivered(90)
    delivery.refresh_from_db()
    assert (delivery.state, codes.code_of(delivery.because)) == ("sent", "answered")
    pages = [page for _, page in came(receiver)]
    assert pages[1] == pages[2] != pages[0]


def test_a_worker_that_dies_pages_again_under_the_same_name_only(
    world: World, receiver: Receiver, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    world.fault(48)
    real, sent = senders.page, []

    def dying(*args: Any, **more: Any) -> str:
        sent.append(real(*args, **more))
        if len(sent) == 2:
            raise Killed
        return sent[-1]

    monkeypatch.setattr(senders, "page", dying)
    with pytest.raises(Killed):
        delivered()
    world.now += deliveries.LEASE
    tell(world)
    pages = [page for _, page in came(receiver)]
    assert len(pages) == 3
    assert pages[1] == pages[2] != pages[0]
    assert Delivery.objects.get().state == "sent"


def test_one_refused_event_does_not_delay_the_others(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    world.fault(48)
    receiver.statuses, receiver.answer = [400, 202], '{"errors": ["odd"]}'
    delivered()
    delivery = Delivery.objects.get()
    assert (delivery.state, codes.codes_of(delivery.because)) == (
        "failed",
        ["host_answered_because", "events_rejected"],
    )
    assert len(receiver.asked) == 2
    services.again(delivery, now=world.now)
    tell(world)
    assert came(receiver)[2] == came(receiver)[0]
    delivery.refresh_from_db()
    assert delivery.state == "sent"


def test_events_beyond_the_time_limit_are_sent_from_where_it_stopped(
    world: World, receiver: Receiver, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
):
    pager(world, receiver, *FAULTS)
    for code in (48, 79, 64):
        world.fault(code)
    monkeypatch.setattr(deliveries, "PAGING_SECONDS", 0.0)
    delivered()
    monkeypatch.undo()
    delivery = Delivery.objects.get()
    assert (delivery.state, reasons.text(delivery.because), delivery.attempts) == (
        "pending",
        "1 of 3 events were sent so far.",
        1,
    )
    delivered(5)
    delivery.refresh_from_db()
    assert (delivery.state, codes.codes_of(delivery.because)) == ("sent", ["answered", "events_accepted"])
    assert len(set(came(receiver))) == len(receiver.asked) == 3


def test_a_test_pages_and_is_left_open(world: World, receiver: Receiver):
    row = pager(world, receiver, "rescue.failed", language="zh-hans")
    receiver.statuses = [202]
    delivery = services.test(row, actor="user:anna", now=world.now)
    services.send(delivery.pk, clock=world.clock)
    delivery.refresh_from_db()
    assert (delivery.state, codes.code_of(delivery.because)) == ("sent", "answered")
    assert came(receiver) == [("trigger", f"test-{delivery.key}")]
    assert receiver.asked[0]["payload"]["severity"] == "info"
    assert "pager" in receiver.asked[0]["payload"]["summary"]
    assert not Notice.objects.exists()
