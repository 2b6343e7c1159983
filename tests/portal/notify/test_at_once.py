"""Many concurrent workers: each event is notified once, and each message is sent by one worker."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection

from kcover.notify import events
from kcover_portal.notify import services
from kcover_portal.notify.models import Delivery, Notice
from kcover_portal.policies import services as policies
from tests import codes
from tests.portal.notify.conftest import make_channel
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_steps import POLICY
from tests.portal.rescue.world import World

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread"),
]
TOGETHER = 6


@pytest.fixture
def busy(transactional_db: None, receiver: Receiver) -> Iterator[World]:
    """A channel that gets everything, faults that nobody has looked at yet, and a rescue that waits for its word."""
    made = World(policy="", nodes=5)
    services.sweep(now=made.now)
    row = make_channel(receiver, now=made.now)
    services.make_route(row, kinds=events.KINDS, actor="test", now=made.now)
    policies.apply(POLICY.format(attribute="channel: on-call"), author="test", reason="", now=made.now)
    for index in range(1, 6):
        made.fault(62 if index == 1 else 79, node=f"gpu-{index}")
    made.work()
    yield made
    made.uninstall()


def together(act: Callable[[], object]) -> None:
    start = Barrier(TOGETHER)

    def run(_: int) -> None:
        start.wait(60)
        try:
            act()
        finally:
            connection.close()

    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(run, range(TOGETHER)))


def test_concurrent_sweeps_record_each_event_once_and_send_each_message_once(busy: World, receiver: Receiver):
    together(lambda: services.sweep(now=busy.now))
    services.sweep(now=busy.now)
    assert Delivery.objects.count() == 1
    delivered = Notice.objects.filter(kind="incident.opened").count(), Notice.objects.filter(kind="rule.notify").count()
    assert delivered == (5, 1)
    busy.now += timedelta(seconds=61)
    (delivery,) = Delivery.objects.all()
    receiver.seconds = 0.2
    together(lambda: services.send(delivery.pk, clock=busy.clock))
    assert len(receiver.asked) == 1
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("sent", 1)
    assert codes.code_of(busy.step("notify").progress["result"]["because"]) == "notify_delivered"


def test_an_event_during_a_claim_is_in_this_message_or_the_next(busy: World, receiver: Receiver):
    services.sweep(now=busy.now)
    busy.now += timedelta(seconds=61)
    (delivery,) = Delivery.objects.all()
    for index in range(2, 6):
        busy.fault(48, node=f"gpu-{index}")

    def act() -> None:
        services.send(delivery.pk, clock=busy.clock)
        services.sweep(now=busy.now)

    together(act)
    services.sweep(now=busy.now)
    busy.now += timedelta(seconds=61)
    for row in Delivery.objects.filter(state="pending"):
        services.send(row.pk, clock=busy.clock)
    said = [one["record"] for asked in receiver.asked for one in asked["events"] if one["kind"] == "incident.opened"]
    assert len(said) == len(set(said)) == 9
