"""A small installation whose events are sent to a real receiver."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.notify import events
from kcover_portal.notify import queries, services
from kcover_portal.notify.models import Channel
from tests.portal.notify.receiver import Receiver
from tests.portal.rescue.world import World

SECRET = "a secret of some length"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.stop()


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World()
    services.sweep(now=made.now)  # what was before is nobody's news
    yield made
    made.uninstall()


@pytest.fixture
def channel(world: World, receiver: Receiver) -> Channel:
    """A signed webhook that gets everything."""
    row = make_channel(receiver, now=world.now)
    services.make_route(row, kinds=events.KINDS, actor="test", now=world.now)
    return row


def make_channel(
    receiver: Receiver, *, name: str = "on-call", kind: str = "webhook", now: Any, **given: Any
) -> Channel:
    signed = {"secret": SECRET} if kind == "webhook" else {}
    return services.CHANNELS.make(
        Channel(name=name, kind=kind), {"url": receiver.url, **signed, **given}, actor="test", now=now
    )


def tell(world: World) -> None:
    """What the sweep and the workers that it wakes do once."""
    services.sweep(now=world.now)
    for pk in queries.due(now=world.now):
        services.send(pk, clock=world.clock)


@pytest.fixture
def delivered(world: World, receiver: Receiver) -> Callable[..., list[Any]]:
    """Lets so much time pass that what has gathered is sent; returns the documents that came."""

    def after(seconds: float = 61) -> list[Any]:
        services.sweep(now=world.now)
        world.now += timedelta(seconds=seconds)
        tell(world)
        return receiver.asked

    return after
