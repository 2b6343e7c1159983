"""A pager in a test's world, what came there, and what opens and ends its pages."""

from typing import Any

from kcover import reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure
from kcover_portal.notify import services
from kcover_portal.notify.models import Channel
from tests.portal.notify.receiver import Receiver
from tests.portal.notify.test_pagers import KEY
from tests.portal.rescue.world import World

FAULTS = ("incident.opened",)


def pager(
    world: World, receiver: Receiver, *kinds: str, name: str = "pager", service: str = "pagerduty", **given: Any
) -> Channel:
    given = {"url": receiver.url, "secret": KEY, **given}
    row = services.CHANNELS.make(Channel(name=name, kind=service), given, actor="test", now=world.now)
    services.make_route(row, kinds=kinds, actor="test", now=world.now)
    return row


def came(receiver: Receiver) -> list[tuple[str, str]]:
    """What came: the action, and the page without the portal's own prefix."""
    return [(one["event_action"], one["dedup_key"].partition("-")[2].partition("-")[2]) for one in receiver.asked]


def called(receiver: Receiver) -> list[tuple[str, str]]:
    """What came: the action, and what the page of that name was opened for."""
    opened = {one["dedup_key"]: one["payload"]["class"] for one in receiver.asked if "payload" in one}
    return [(one["event_action"], opened.get(one["dedup_key"], "")) for one in receiver.asked]


def close(world: World, *incidents: Incident) -> None:
    closure.close(
        [one.pk for one in incidents],
        because=reasons.of("closed_by_because", by="test", why="proved"),
        actor="test",
        now=world.now,
    )


def pause(world: World) -> None:
    fleet.pause(cluster=None, reason="fire drill", actor="user:anna", now=world.now)


def go_on(world: World) -> None:
    fleet.resume(cluster=None, reason="over", actor="user:anna", now=world.now)
