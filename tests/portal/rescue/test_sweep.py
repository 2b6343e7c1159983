"""The sweep wakes workers for due rows, and in a burst not repeatedly for rows that are still queued."""

from datetime import timedelta

import pytest

from kcover.faults.fault import Fault
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import queries, services, sweep
from kcover_portal.rescue.models import Rescue

pytestmark = pytest.mark.django_db


@pytest.fixture
def rings(monkeypatch):
    """What was rung for, by task and row."""
    heard = []
    monkeypatch.setattr(sweep.doorbell, "ring", lambda task, *ids: heard.append((task, *ids)))
    return heard


@pytest.fixture
def crowd(world, rings):
    """More faults than are rung for in each sweep; the worker's memory of what it rang for."""
    services.sweep(now=world.now)  # the rules are no news
    world.report(
        *(
            Fault(kind="xid", code=62, pci=f"0000:{place:02x}:00", source="kmsg")
            for place in range(sweep.RINGS_PER_TASK + 1)
        )
    )
    rings.clear()
    return services.RecentRings()


def judged(rings):
    found = [one for one in rings if one[0] == "rescue.decide"]
    rings.clear()
    return len(found)


def test_few_due_incidents_ring_at_each_sweep(world, rings):
    services.sweep(now=world.now)
    world.fault()
    rings.clear()
    rung = services.RecentRings()
    for _ in range(3):
        services.sweep(now=world.now, rung=rung)
        assert judged(rings) == 1


def test_many_due_incidents_ring_once_in_two_seconds(world, rings, crowd):
    for seconds, wanted in ((0, 21), (0.5, 0), (1.5, 0), (2.0, 21), (2.5, 0)):
        services.sweep(now=world.now + timedelta(seconds=seconds), rung=crowd)
        assert judged(rings) == wanted


def test_an_incident_that_stays_due_after_its_decision_rings_at_once(world, rings, crowd):
    services.sweep(now=world.now, rung=crowd)
    judged(rings)
    first = Incident.objects.first()
    Incident.objects.filter(pk=first.pk).update(decided_at=world.now)  # a worse line came meanwhile: it stays due
    services.sweep(now=world.now, rung=crowd)
    assert judged(rings) == 1


def test_abandoned_rescues_ring_at_once(world, rings):
    rung, now = sweep.RecentRings(), world.now
    claimed = [(pk, 1) for pk in range(sweep.RINGS_PER_TASK + 1)]
    assert len(list(rung.new("rescue.run", claimed, now=now))) == len(claimed)
    claimed[3] = (3, 2)
    assert list(rung.new("rescue.run", claimed, now=now)) == [3]


def test_a_clock_that_is_set_back_delays_no_ring(world, rings, crowd):
    services.sweep(now=world.now, rung=crowd)
    judged(rings)
    Incident.objects.update(decide_at=world.now - timedelta(hours=1))
    services.sweep(now=world.now - timedelta(minutes=9), rung=crowd)
    assert judged(rings) == 21
    services.sweep(now=world.now - timedelta(minutes=10), rung=crowd)
    assert judged(rings) == 21


def test_recent_rings_are_known_to_one_worker_only(world, rings, crowd):
    services.sweep(now=world.now, rung=crowd)
    services.sweep(now=world.now, rung=services.RecentRings())
    assert judged(rings) == 42


def test_a_due_rescue_is_listed_with_its_token(world):
    world.fault()
    world.work()
    rescue = Rescue.objects.get()
    Rescue.objects.update(state="waiting", due_at=world.now, lease_until=None)
    assert queries.due(now=world.now) == [(rescue.pk, rescue.token)]
