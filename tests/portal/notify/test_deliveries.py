"""Deliveries survive receivers that are down, slow or invalid, and workers that die; no known success is sent again."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover import reasons
from kcover.notify import retries
from kcover_portal.notify import queries, senders, services
from kcover_portal.notify.models import Channel, Delivery, Notice
from kcover_portal.notify.senders import webhook
from kcover_portal.notify.services import deliveries
from kcover_portal.operate import metrics
from tests import codes, servers
from tests.portal.notify.conftest import SECRET, make_channel, tell
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import World
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]


class Killed(BaseException):
    """``kill -9``: nothing of the worker runs any more."""


def gathered(world: World) -> Delivery:
    """A delivery that is due."""
    world.fault(62)
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    return Delivery.objects.latest("pk")


def test_a_receiver_that_is_down_is_retried_at_growing_intervals(
    world: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    receiver.statuses = [500, 503, 200]
    gathered(world)
    tell(world)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts, codes.code_of(delivery.because)) == ("pending", 1, "host_answered")
    assert delivery.due_at == world.now + retries.RETRY_DELAYS[0]
    channel.refresh_from_db()
    assert reasons.text(channel.trouble) == "127.0.0.1 answered HTTP 500."
    delivered(retries.RETRY_DELAYS[0].total_seconds())
    delivered(retries.RETRY_DELAYS[1].total_seconds())
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, codes.code_of(delivery.because)) == ("sent", 3, "answered")
    assert len({one["delivery"] for one in receiver.asked}) == 1
    channel.refresh_from_db()
    assert (channel.trouble, channel.sent_at) == ({}, world.now)


def test_a_delivery_is_given_up_after_an_hour_and_may_be_retried_by_a_person(
    world: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    receiver.statuses = [502]
    gathered(world)
    for wait in [timedelta(), *retries.RETRY_DELAYS, timedelta(hours=1), timedelta(hours=1)]:
        delivered(wait.total_seconds())
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("failed", len(retries.RETRY_DELAYS) + 1)
    assert delivery.closed_at is not None
    receiver.statuses = [200]
    assert services.again(delivery, now=world.now)
    delivered(0)
    delivery.refresh_from_db()
    assert delivery.state == "sent"
    assert not services.again(delivery, now=world.now)


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 410])
def test_a_refusal_is_not_repeated_and_no_redirect_followed(
    world: World, channel: Channel, receiver: Receiver, status: int
):
    receiver.statuses = [status]
    gathered(world)
    tell(world)
    delivery = Delivery.objects.get()
    assert (delivery.state, reasons.text(delivery.because)) == ("failed", f"127.0.0.1 answered HTTP {status}.")
    assert receiver.paths == ["/hook/hush"]


def test_a_delivery_to_an_address_without_a_listener_stays_pending(
    world: World, channel: Channel, delivered: Delivered
):
    with servers.refusing_port() as port:
        url = f"http://127.0.0.1:{port}/"
        services.CHANNELS.change(channel, {"url": url, "secret": SECRET}, actor="test", reason="", now=world.now)
        gathered(world)
        tell(world)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("pending", 1)
    assert codes.code_of(delivery.because) == "host_not_answering"


def test_a_slow_receiver_is_left_after_the_time(
    world: World, channel: Channel, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(webhook, "SECONDS", 0.2)
    answers = threading.Event()
    receiver.meanwhile = lambda: answers.wait(HANG_SECONDS)
    gathered(world)
    tell(world)
    answers.set()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("pending", 1)
    assert codes.code_of(delivery.because) == "host_too_slow"


def test_a_blocked_address_receives_no_delivery(world: World, channel: Channel):
    url = "http://169.254.169.254/latest/"
    services.CHANNELS.change(channel, {"url": url, "secret": SECRET}, actor="test", reason="", now=world.now)
    gathered(world)
    tell(world)
    assert codes.code_of(Delivery.objects.get().because) == "address_blocked"


def test_a_channel_that_is_down_gets_one_message_afterwards(
    world: World, channel: Channel, receiver: Receiver, delivered: Delivered
):
    receiver.statuses = [500, 200]
    gathered(world)
    tell(world)
    Delivery.objects.update(due_at=world.now + timedelta(hours=1))
    for code in (31, 43, 48, 79):
        world.fault(code, pci=f"0000:{code}:00")
        delivered(300)
    assert len(receiver.asked) == 1
    assert Delivery.objects.count() == 2
    delivered(3600)
    delivered(61)
    assert [len(one["events"]) for one in receiver.asked] == [1, 1, 4]


def test_a_worker_that_dies_before_it_settles_leaves_a_lease_and_the_same_key(
    world: World, channel: Channel, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    """At least once: the receiver had it, nobody wrote that down, it comes again under the same name."""
    delivery = gathered(world)
    real = senders.send

    def dying(*args: Any) -> str:
        real(*args)
        raise Killed

    monkeypatch.setattr(senders, "send", dying)
    with pytest.raises(Killed):
        services.send(delivery.pk, clock=world.clock)
    monkeypatch.undo()
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("sending", 1)
    tell(world)
    assert len(receiver.asked) == 1  # its lease holds
    world.now += deliveries.LEASE
    tell(world)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("sent", 2)
    assert [one["delivery"] for one in receiver.asked] == [str(delivery.key)] * 2


def test_a_message_that_kills_every_worker_is_given_up(world: World, channel: Channel, monkeypatch: pytest.MonkeyPatch):
    delivery = gathered(world)

    def dying(*_: Any) -> str:
        raise Killed

    monkeypatch.setattr(senders, "send", dying)
    for _ in range(len(retries.RETRY_DELAYS) + 1):
        with pytest.raises(Killed):
            services.send(delivery.pk, clock=world.clock)
        world.now += deliveries.LEASE
    services.send(delivery.pk, clock=world.clock)
    delivery.refresh_from_db()
    assert (delivery.state, codes.code_of(delivery.because)) == ("failed", "workers_died")


def test_a_worker_that_lost_its_lease_does_not_settle_a_delivery(world: World, channel: Channel, receiver: Receiver):
    """It hung for longer than its lease; meanwhile another one sent the message."""
    delivery = gathered(world)
    late = deliveries.claim(delivery.pk, now=world.now)
    assert late is not None
    world.now += deliveries.LEASE
    services.send(delivery.pk, clock=world.clock)
    deliveries.settle(late, Delivery.State.FAILED, reasons.of("workers_died"), now=world.now)
    delivery.refresh_from_db()
    assert (delivery.state, codes.code_of(delivery.because), delivery.attempts) == ("sent", "answered", 2)


def test_two_workers_send_once(world: World, channel: Channel, receiver: Receiver):
    delivery = gathered(world)
    assert deliveries.claim(delivery.pk, now=world.now) is not None
    assert deliveries.claim(delivery.pk, now=world.now) is None
    assert queries.due(now=world.now) == []


def test_at_most_two_deliveries_are_pending_if_all_hang(world: World, receiver: Receiver):
    names = ("a", "b", "c")
    made = [services.test(make_channel(receiver, name=n, now=world.now), actor="t", now=world.now) for n in names]
    claimed = [deliveries.claim(one.pk, now=world.now) for one in made]
    assert [one is not None for one in claimed] == [True, True, False]
    world.now += deliveries.LEASE
    assert deliveries.claim(made[2].pk, now=world.now) is not None


def test_a_test_is_sent_at_once_and_tried_once(world: World, receiver: Receiver):
    row = make_channel(receiver, now=world.now)
    receiver.statuses = [500]
    delivery = services.test(row, actor="user:anna", now=world.now)
    services.send(delivery.pk, clock=world.clock)
    delivery.refresh_from_db()
    assert (delivery.state, codes.code_of(delivery.because)) == ("failed", "host_answered")
    (document,) = receiver.asked
    assert document["test"] is True
    assert document["lines"] == ["This is a test message. The channel on-call works."]


def test_a_channel_that_was_switched_off_meanwhile_drops_its_messages(
    world: World, channel: Channel, receiver: Receiver
):
    delivery = gathered(world)
    services.CHANNELS.change(channel, {"enabled": False}, actor="test", reason="", now=world.now)
    services.send(delivery.pk, clock=world.clock)
    delivery.refresh_from_db()
    assert (delivery.state, receiver.asked) == ("dropped", [])


def test_old_deliveries_are_forgotten(world: World, channel: Channel, delivered: Delivered, settings: Any):
    settings.KCOVER_KEEP_DAYS = 30
    world.fault(62)
    delivered()
    assert services.prune(now=world.now + timedelta(days=29)) == 0
    services.prune(now=world.now + timedelta(days=31))
    assert not Delivery.objects.exists()
    assert not Notice.objects.exists()


def test_metrics_count_deliveries_and_show_the_age_of_the_oldest(world: World, channel: Channel, receiver: Receiver):
    receiver.statuses = [500]
    gathered(world)
    assert "kcover_notify_waiting_seconds 0.0" in metrics.render().decode()
    tell(world)
    said = metrics.render().decode()
    assert 'kcover_notify_deliveries{channel="on-call",state="pending"} 1.0' in said
    seconds = float(said.split("\nkcover_notify_waiting_seconds ")[1].split()[0])
    assert seconds == pytest.approx((timezone.now() - Delivery.objects.get().opened_at).total_seconds(), abs=60)
