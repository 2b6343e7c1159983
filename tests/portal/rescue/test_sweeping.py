"""The sweep rings for what is due, and not again and again for what workers have yet to come to."""

from datetime import timedelta

import pytest

from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.services import sweeping

pytestmark = pytest.mark.django_db


@pytest.fixture
def rings(world, monkeypatch):
    """What was rung for from now on, by task and row: a fault waits to be judged."""
    heard = []
    services.sweep(now=world.now)  # the rules are no news
    world.fault()
    monkeypatch.setattr(sweeping.doorbell, "ring", lambda task, *ids: heard.append((task, *ids)))
    return heard


def judged(rings):
    return [one for one in rings if one[0] == "rescue.judge"]


def test_what_waits_for_a_worker_is_rung_for_once_in_five_seconds(world, rings):
    incident, rung = Incident.objects.get(), services.Rung()
    for _ in range(8):
        services.sweep(now=world.now, rung=rung)
        world.now += timedelta(seconds=0.5)
    assert judged(rings) == [("rescue.judge", incident.pk)]
    world.now += timedelta(seconds=1)
    services.sweep(now=world.now, rung=rung)  # that ring may have been lost
    assert judged(rings) == [("rescue.judge", incident.pk)] * 2


def test_what_is_due_anew_is_rung_for_at_once(world, rings):
    rung = services.Rung()
    services.sweep(now=world.now, rung=rung)
    world.now += timedelta(seconds=1)
    Incident.objects.update(judge_at=world.now)  # it was judged meanwhile, and is to be judged again
    services.sweep(now=world.now, rung=rung)
    assert len(judged(rings)) == 2


def test_a_rescue_that_a_worker_took_up_and_left_is_rung_for_at_once(world, rings):
    world.work()
    rings.clear()
    rescue, rung = Rescue.objects.get(), services.Rung()
    run = ("rescue.run", rescue.pk)
    Rescue.objects.update(state="waiting", due_at=world.now, lease_until=None)
    services.sweep(now=world.now, rung=rung)
    services.sweep(now=world.now, rung=rung)
    assert rings.count(run) == 1
    Rescue.objects.update(token=rescue.token + 1, lease_until=world.now)  # claimed by a worker that died
    services.sweep(now=world.now, rung=rung)
    assert rings.count(run) == 2


def test_another_workers_sweep_knows_of_nothing(world, rings):
    services.sweep(now=world.now, rung=services.Rung())
    services.sweep(now=world.now, rung=services.Rung())
    assert len(judged(rings)) == 2
