"""Each sweep's check finds the work of its task."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover import audit
from kcover_portal.celery import app
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.fleet.models import Command, Hardware
from kcover_portal.jobs.models import JobOrder
from kcover_portal.ledger import services as ledger
from kcover_portal.notify import services as notify
from kcover_portal.notify.models import Channel
from kcover_portal.operate import sweeps
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source
from tests.portal.rescue.world import World


@pytest.fixture
def world(db: None):
    made = World()
    notify.sweep(now=made.now)  # everything up to now is read
    yield made
    made.uninstall()


def with_work(now: Any) -> set[str]:
    return {sweep.task for sweep in sweeps.SWEEPS if sweep.has_work(now)}


@pytest.mark.django_db
def test_a_quiet_portal_has_no_work() -> None:
    notify.sweep(now=timezone.now())
    assert with_work(timezone.now()) == set()


def test_all_sweeps_are_tasks() -> None:
    app.autodiscover_tasks(force=True)
    assert {sweep.task for sweep in sweeps.SWEEPS} <= app.tasks.keys()


def a_fault(world: World) -> None:
    world.fault()


def a_waiting_rescue(world: World) -> None:
    world.fault()
    world.work()
    Rescue.objects.update(state=Rescue.State.WAITING, due_at=world.now, lease_until=None)
    notify.sweep(now=world.now)


def a_late_command(world: World) -> None:
    late = world.now - timedelta(seconds=1)
    Command.objects.create(node=world.node(), key="late", kind="run_checks", created_at=late, expires_at=late)


def an_entry(world: World) -> None:
    ledger.record("", audit.ChannelTested(channel="x"), actor="test", now=world.now)


def a_source(world: World) -> None:
    given = {"interval": 5}
    sources.SOURCES.make(
        Source(name="loki", kind="loki", cluster=world.cluster),
        {"url": "http://loki", "settings": given},
        actor="test",
        now=world.now,
    )
    notify.sweep(now=world.now)


def an_order(world: World) -> None:
    names = {"namespace": "default", "kind": "Job", "name": "train", "requested_by": "test"}
    JobOrder.objects.create(
        cluster=world.cluster, action="stop", cause="person", requested_at=world.now, due_at=world.now, **names
    )


def a_check_run(world: World) -> None:
    CheckRun.objects.create(cluster=world.cluster, requested_by="test", requested_at=world.now)


def a_waiting_validation(world: World) -> None:
    names = {"profile": "full", "document": {}, "requested_by": "test"}
    Validation.objects.create(cluster=world.cluster, requested_at=world.now, **names)


def an_inventory(world: World) -> None:
    Hardware.objects.create(node=world.node(), changed_at=world.now)


def an_alert_at_an_alertmanager(world: World) -> None:
    given = {"url": "http://alertmanager.example:9093"}
    channel = notify.CHANNELS.make(Channel(name="am", kind="alertmanager"), given, actor="test", now=world.now)
    channel.alerts.create(name="incident-1", page="incident-1-opened", opened_at=world.now)


@pytest.mark.parametrize(
    ("happens", "tasks"),
    [
        (a_fault, {"rescue.sweep", "notify.sweep"}),
        (a_waiting_rescue, {"rescue.sweep"}),
        (a_late_command, {"rescue.sweep"}),
        (an_entry, {"notify.sweep"}),
        (a_source, {"sources.sweep"}),
        (an_order, {"jobs.sweep"}),
        (a_check_run, {"checks.advance_runs"}),
        (a_waiting_validation, {"checks.advance_runs"}),
        (an_inventory, {"parts.sweep"}),
        (an_alert_at_an_alertmanager, {"notify.repeat"}),
    ],
)
def test_the_check_sees_the_work(world: World, happens: Callable[[World], None], tasks: set[str]) -> None:
    happens(world)
    assert tasks <= with_work(world.now)
