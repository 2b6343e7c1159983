"""People of every role in front of the console, with a real engine on a fake cluster behind it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import User
from kcover_portal.fleet.models import Cluster
from tests.portal.rescue.world import World

PASSWORD = "long-enough-1"
Person = Callable[..., Client]


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World()
    yield made
    made.uninstall()


@pytest.fixture
def make(db: None) -> Iterator[Callable[..., World]]:
    """Makes worlds with options: ``make(nodes=2, policy="")``."""
    made: list[World] = []

    def world(**options: Any) -> World:
        made.append(World(**options))
        return made[-1]

    yield world
    for one in made:
        one.uninstall()


@pytest.fixture
def person(db: None, now) -> Person:
    """A signed-in browser: ``person("operator")``, ``person("viewer", cluster=...)``, ``person(None)``: no role."""

    def sign_in(role: str | None, *, cluster: Cluster | None = None, name: str = "") -> Client:
        name = name or f"{role or 'nobody'}-{User.objects.count()}"
        if role is None:
            user = User.objects.create_user(name, password=PASSWORD)
        else:
            user = accounts.make_user(name, password=PASSWORD, role=role, cluster=cluster, created_by="test", now=now)
        client = Client()
        client.force_login(user)
        return client

    return sign_in
