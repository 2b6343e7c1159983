"""/readyz: 503 if a dependency of the portal fails; a cluster that does not answer is reported without a 503."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone

from kcover import reasons
from kcover_portal.anchors.models import Publication
from kcover_portal.fleet.models import Cluster
from kcover_portal.operate import watcher
from kcover_portal.runtime.models import Heartbeat, Lease
from kcover_portal.runtime.services import heartbeats, leases
from tests import moment

WATCH_FAILURE = reasons.of("cluster_unavailable", error="GET /version: connection refused")
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _clock_that_stands() -> Iterator[None]:
    """Facts are told in whole seconds, and a busy machine takes one to answer."""
    with time_machine.travel(moment.START.timestamp(), tick=False):
        yield


@pytest.fixture(autouse=True)
def _running(settings: Any, _clock_that_stands: None) -> None:
    """A portal in one process, all of whose parts beat, with two clusters that are heard of."""
    settings.REDIS_URL = ""
    now = timezone.now()
    heartbeats.beat("sweep", now=now)
    leases.acquire(watcher.LEASE, holder="here", until=now + timedelta(seconds=15), now=now)
    for name in ("east", "west"):
        Cluster.objects.create(name=name, created_at=now, watched_at=now)
    for place in ("key", "log"):
        Publication.objects.create(place=place, published_at=now)


def readyz() -> tuple[int, dict[str, Any]]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()


def late(name: str, **time: float) -> None:
    at = timezone.now() - timedelta(**time)
    Heartbeat.objects.filter(name=name).update(at=at)
    Lease.objects.filter(name=name).update(renewed_at=at)


def test_a_healthy_portal_is_ready() -> None:
    status, found = readyz()
    found.pop("encryption key", None)  # the tests' PostgreSQL has none
    assert status == 200
    heads = ["audit log key", "audit log log"]
    assert list(found) == ["database", "broker", "sweep", "watch", *heads, "watch east", "watch west"]
    assert all(one["well"] for one in found.values())
    assert [name for name, one in found.items() if not one["needed"]] == [*heads, "watch east", "watch west"]
    assert found["broker"]["fact"] == "embedded"


@pytest.mark.parametrize(("name", "seconds"), [("sweep", 31), ("watch", 31)])
def test_a_missing_heartbeat_makes_the_portal_unready(name: str, seconds: int) -> None:
    late(name, seconds=seconds - 5)
    assert readyz()[0] == 200
    late(name, seconds=seconds)
    status, found = readyz()
    assert (status, found[name]["well"]) == (503, False)
    assert f"{seconds} s ago" in found[name]["fact"]
    Heartbeat.objects.filter(name=name).delete()
    Lease.objects.filter(name=name).delete()
    status, found = readyz()
    assert status == 503
    assert found[name]["fact"].startswith("never ran: check that a ")


def test_a_silent_cluster_is_reported_and_readiness_stays() -> None:
    Cluster.objects.filter(name="west").update(
        watched_at=timezone.now() - timedelta(minutes=5), watch_error=WATCH_FAILURE.to_json()
    )
    status, found = readyz()
    assert status == 200
    assert found["watch west"] == {
        "well": False,
        "needed": False,
        "fact": f"last contact 300 s ago; last error: {WATCH_FAILURE}",
    }
    assert found["watch east"]["well"]
    Cluster.objects.update(watched_at=None, watch_error={})
    status, found = readyz()
    assert (status, found["watch east"]["fact"]) == (200, "never connected to the cluster")
    assert 'kcover_well{check="watch east"} 0.0' in Client().get("/metrics").content.decode()


def test_without_clusters_no_watch_is_needed() -> None:
    Cluster.objects.all().delete()
    Lease.objects.filter(name=watcher.LEASE).delete()
    status, found = readyz()
    assert (status, found["watch"]["fact"]) == (200, "no cluster to watch yet")


def test_a_broker_that_does_not_answer_makes_the_portal_unready(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    status, found = readyz()
    assert (status, found["broker"]["well"]) == (503, False)
    assert "127.0.0.1:1" in found["broker"]["fact"]


def test_a_broker_that_answers(settings: Any) -> None:
    if not (url := settings.CELERY_BROKER_URL).startswith("redis"):
        pytest.skip("runs where the tests have a Redis")
    settings.REDIS_URL = url
    assert readyz()[1]["broker"] == {"well": True, "needed": True, "fact": "answers"}
