"""Quiet hours and digests of a channel. The world's clock starts on a Saturday at 8:00 UTC."""

from collections.abc import Callable
from typing import Any

import pytest

from kcover_portal.fleet import services as fleet
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel, Delivery
from tests.portal.notify.conftest import make_channel
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_pagers import KEY
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
Delivered = Callable[..., list[Any]]
HOUR = 3600


def change(channel: Channel, world: World, **given: str) -> None:
    services.CHANNELS.change(channel, given, actor="test", reason="", now=world.now)


def kinds(document: dict[str, Any]) -> set[str]:
    return {event["kind"] for event in document["events"]}


def test_quiet_hours_delay_events_that_are_not_urgent(world: World, channel: Channel, delivered: Delivered) -> None:
    change(channel, world, quiet_hours="Sat 16:00-19:00", time_zone="Asia/Shanghai")  # 8:00 to 11:00 UTC
    world.fault(62)
    world.work()
    assert delivered(2 * HOUR) == []
    [document] = delivered(HOUR)
    assert "incident.opened" in kinds(document)


def test_an_urgent_event_sends_the_gathered_events_too(world: World, channel: Channel, delivered: Delivered) -> None:
    change(channel, world, quiet_hours="22:00-12:00")
    world.fault(62)
    world.work()
    assert delivered() == []
    fleet.pause(cluster=world.cluster, reason="", actor="user:ann", now=world.now)
    [document] = delivered()
    assert {"automation.paused", "incident.opened"} <= kinds(document)


def test_a_digest_is_one_message_a_day(world: World, channel: Channel, delivered: Delivered) -> None:
    change(channel, world, digest_at="09:30")
    for code in (62, 63):
        world.fault(code)
        world.work()
        assert delivered(600) == []
    [document] = delivered(HOUR + 900)
    assert len([event for event in document["events"] if event["kind"] == "incident.opened"]) == 2
    assert Delivery.objects.filter(batching=True).count() <= 1


def test_an_invalid_schedule_is_refused(world: World, channel: Channel, receiver: Receiver) -> None:
    for given, code in (
        ({"quiet_hours": "at night"}, "quiet_span_invalid"),
        ({"digest_at": "25:00"}, "time_of_day_invalid"),
        ({"time_zone": "Mars/Olympus"}, "time_zone_unknown"),
    ):
        with pytest.raises(FieldError) as raised:
            change(channel, world, **given)
        assert (raised.value.field, raised.value.reason.code) == (next(iter(given)), code)
    with pytest.raises(FieldError) as raised:
        make_channel(receiver, name="pager", kind="pagerduty", now=world.now, secret=KEY, quiet_hours="22:00-07:00")
    assert raised.value.reason.code == "schedule_of_pager"
