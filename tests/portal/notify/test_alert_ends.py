"""The end of a page: it arrives however late, and ends what it was meant for and nothing else."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kcover.notify import events, retries
from kcover_portal.incidents.models import Incident
from kcover_portal.notify import services
from kcover_portal.notify.models import Alert, Channel, Delivery
from kcover_portal.rescue import services as rescue
from tests import codes
from tests.portal.notify.conftest import tell
from tests.portal.notify.pages import FAULTS, came, close, go_on, pager, pause
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_collect import APPROVE
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]


def test_a_late_end_does_not_end_an_alert_opened_since(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, "automation.paused")
    receiver.statuses = [202, 400, 202]
    for act in (pause, go_on, pause):
        act(world)
        delivered()
    services.again(Delivery.objects.get(state="failed"), now=world.now)
    tell(world)
    first, refused, second, late = came(receiver)
    assert (first[0], second[0]) == ("trigger", "trigger")
    assert refused == late == ("resolve", first[1])
    assert second[1] != first[1]


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_an_event_that_reopens_before_its_end_was_sent_is_another_page(
    world: World, receiver: Receiver, delivered: Delivered, looks: int
):
    """However many looks the news of one message comes in."""
    pager(world, receiver, "automation.paused")
    pause(world)
    delivered()
    for place, act in enumerate((go_on, pause, go_on, pause)):
        act(world)
        if place % looks == 0:
            services.sweep(now=world.now)
    delivered()
    assert [action for action, _ in came(receiver)] == ["trigger", "resolve", "resolve", "trigger"]
    (_, first), (_, ended), (_, between), (_, last) = came(receiver)
    assert first == ended
    assert len({first, between, last}) == 3
    assert Alert.objects.get().page == last


def test_a_similar_event_after_the_end_is_another_page(db: None, receiver: Receiver):
    world = World(nodes=2, policy="")
    services.sweep(now=world.now)
    pager(world, receiver, *FAULTS)
    world.fault(79, node="gpu-1")
    services.sweep(now=world.now)
    first = Incident.objects.get()
    close(world, first)
    services.sweep(now=world.now)
    world.fault(79, node="gpu-2")
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    second = Incident.objects.latest("pk")
    assert came(receiver) == [("resolve", f"incident-{first.pk}-opened"), ("trigger", f"incident-{second.pk}-opened")]
    world.uninstall()


@pytest.mark.parametrize("looks", [1, 2])
def test_a_new_similar_event_pages_separately_after_an_approval(db: None, receiver: Receiver, looks: int):
    world = World(nodes=2, policy=APPROVE)
    services.sweep(now=world.now)
    pager(world, receiver, *FAULTS)
    world.fault(62, node="gpu-1")
    world.work()
    services.sweep(now=world.now)
    rescue.approve(world.rescue("gpu-1"), actor="user:bo", reason="", now=world.now)
    if looks == 2:
        services.sweep(now=world.now)
    world.now += timedelta(seconds=1)
    world.fault(62, node="gpu-2")
    services.sweep(now=world.now)
    world.now += timedelta(seconds=61)
    tell(world)
    first, second = (f"incident-{one.pk}-opened" for one in Incident.objects.order_by("pk"))
    assert came(receiver) == [("trigger", first), ("acknowledge", first), ("trigger", second)]
    world.uninstall()


def test_a_pager_that_was_down_for_hours_receives_the_end_and_new_events(
    world: World, receiver: Receiver, delivered: Delivered
):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()
    receiver.statuses = [502]
    close(world, Incident.objects.get())
    delivered()
    for _ in range(15):
        delivered(1800)
    waiting = Delivery.objects.latest("pk")
    assert (waiting.state, codes.code_of(waiting.because), waiting.closed_at) == ("pending", "host_answered", None)
    receiver.asked.clear()
    world.fault(48)
    delivered(61)
    assert [action for action, _ in came(receiver)] == ["trigger"]  # it does not wait for what is tried for a day
    receiver.statuses = [202]
    delivered(1800)
    assert sorted(action for action, _ in came(receiver)[1:]) == ["resolve", "trigger"]
    assert set(Delivery.objects.values_list("state", flat=True)) == {"sent"}


def test_a_delivery_to_a_pager_is_given_up_after_a_day(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    receiver.statuses = [502]
    delivered()
    Delivery.objects.update(attempts=len(retries.RETRY_DELAYS))
    for _ in range(2):
        delivered(1800)
        assert Delivery.objects.get().state == "pending"
    Delivery.objects.update(opened_at=world.now - events.MAX_AGE)
    delivered(1800)
    assert Delivery.objects.get().state == "failed"


def test_an_end_that_is_days_old_resolves_its_page_and_notifies_no_other_channel(
    world: World, receiver: Receiver, channel: Channel, delivered: Delivered
):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()
    close(world, Incident.objects.get())
    world.fault(48)
    receiver.asked.clear()
    world.now += events.MAX_AGE + timedelta(hours=1)
    delivered()
    assert [one["event_action"] for one in receiver.asked] == ["resolve"]
    assert not Alert.objects.exists()


def test_an_event_that_ends_while_the_pager_is_disabled_leaves_no_page_open(db: None, receiver: Receiver):
    world = World(nodes=2, policy="")
    services.sweep(now=world.now)
    row = pager(world, receiver, *FAULTS)

    def pass_time() -> None:
        services.sweep(now=world.now)
        world.now += timedelta(seconds=61)
        tell(world)

    for node in ("gpu-1", "gpu-2"):
        world.fault(79, node=node)
    pass_time()
    first, second = Incident.objects.order_by("pk")
    services.CHANNELS.change(row, {"enabled": False}, actor="test", reason="", now=world.now)
    close(world, first)
    pass_time()
    assert len(receiver.asked) == 1
    assert Delivery.objects.latest("pk").state == "dropped"
    services.CHANNELS.change(row, {"enabled": True}, actor="test", reason="", now=world.now)
    close(world, second)
    pass_time()
    assert [action for action, _ in came(receiver)] == ["trigger", "resolve"]
    world.uninstall()


def test_a_retried_delivery_pages_no_event_that_has_ended_since(world: World, receiver: Receiver, delivered: Delivered):
    pager(world, receiver, *FAULTS)
    world.fault(79)
    receiver.statuses = [400, 202]
    delivered()
    close(world, Incident.objects.get())
    delivered()
    services.again(Delivery.objects.earliest("pk"), now=world.now)
    tell(world)
    assert [action for action, _ in came(receiver)] == ["trigger", "resolve"]
    assert codes.code_of(Delivery.objects.earliest("pk").because) == "no_events"


def test_the_end_of_an_alert_is_sent_after_its_route_is_deleted(world: World, receiver: Receiver, delivered: Delivered):
    row = pager(world, receiver, *FAULTS)
    world.fault(79)
    delivered()
    for route in row.routes.all():
        services.delete_route(route, actor="test", reason="", now=world.now)
    close(world, Incident.objects.get())
    delivered()
    assert [action for action, _ in came(receiver)] == ["trigger", "resolve"]


def test_a_storm_of_omitted_events_omits_no_end(
    world: World, receiver: Receiver, delivered: Delivered, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kcover_portal.notify.services.collect.MAX_NOTICES", 2)
    pager(world, receiver, *FAULTS)
    for code in (48, 79):
        world.fault(code)
    delivered()
    for code in (62, 63, 64):
        world.fault(code, pci=f"0000:{code}:00")
    services.sweep(now=world.now)
    close(world, *Incident.objects.all())
    delivered()
    assert {("resolve", page) for _, page in came(receiver)[:2]} < set(came(receiver)[2:])
    assert not Alert.objects.exists()
