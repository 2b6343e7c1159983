"""Leases by name: which process leads, and until when."""

from datetime import datetime, timedelta

import pytest

from kcover_portal.runtime.models import Lease
from kcover_portal.runtime.services import leases

pytestmark = pytest.mark.django_db
TTL = timedelta(minutes=1)


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(now: datetime) -> Clock:
    return Clock(now)


def taken(clock: Clock) -> bool:
    return leases.acquire("work", holder="another", until=clock.now + TTL, now=clock.now)


def test_a_block_leads_until_its_end(clock: Clock) -> None:
    with leases.leading("work", ttl=TTL, clock=clock) as leads:
        assert leads
        with leases.leading("work", ttl=TTL, clock=clock) as second:
            assert not second
            assert not second.renew()
        assert not taken(clock)  # the block that did not lead has not ended the lease
    assert taken(clock)


def test_a_block_that_renews_its_lease_leads_for_longer(clock: Clock) -> None:
    with leases.leading("work", ttl=TTL, clock=clock) as leads:
        for _ in range(3):
            clock.now += TTL - timedelta(seconds=1)
            assert not taken(clock)
            assert leads.renew()
        clock.now += TTL
        assert leads.renew()  # late, but nobody has taken it


@pytest.mark.parametrize("over", [False, True], ids=["another leads", "another has led"])
def test_a_block_whose_lease_another_took_leads_no_more(clock: Clock, *, over: bool) -> None:
    with leases.leading("work", ttl=TTL, clock=clock) as leads:
        clock.now += TTL
        assert taken(clock)
        if over:
            leases.release("work", holder="another", now=clock.now)
        assert not leads.renew()
        assert not leads
    assert Lease.objects.get().holder == "another"
