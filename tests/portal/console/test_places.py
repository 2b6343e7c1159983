"""Expensive requests: few at a time, one per person, and 429 with Retry-After for the others."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.console import exports
from kcover_portal.runtime.models import Lease
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.sources import services as sources
from tests.portal.console.conftest import Person
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
SOME = concurrency_limits.ConcurrencyLimit(name="some", size=2, per_person=1, lasts=timedelta(minutes=1), retry_after=7)


def occupy(pool: concurrency_limits.ConcurrencyLimit, *who: str) -> list[concurrency_limits.ConcurrencySlot]:
    return [concurrency_limits.take(pool, name, now=timezone.now()) for name in who]


def occupy_all(pool: concurrency_limits.ConcurrencyLimit) -> list[concurrency_limits.ConcurrencySlot]:
    return occupy(pool, *(f"user:{-number}" for number in range(1, pool.size + 1)))


def test_a_pool_has_few_places_and_one_a_person(now: datetime) -> None:
    first = concurrency_limits.take(SOME, "user:1", now=now)
    with pytest.raises(concurrency_limits.Busy) as own:
        concurrency_limits.take(SOME, "user:1", now=now)
    assert (own.value.reason.code, own.value.retry_after) == ("places_own_taken", 7)
    second = concurrency_limits.take(SOME, "user:2", now=now)
    with pytest.raises(concurrency_limits.Busy) as full:
        concurrency_limits.take(SOME, "user:3", now=now)
    assert full.value.reason.code == "places_taken"
    first.give_back(now=now)
    concurrency_limits.take(SOME, "user:3", now=now)
    second.give_back(now=now)
    concurrency_limits.take(SOME, "user:1", now=now)


def test_a_refused_person_is_not_counted(now: datetime) -> None:
    first, _second = (concurrency_limits.take(SOME, who, now=now) for who in ("user:1", "user:2"))
    for _ in range(3):
        with pytest.raises(concurrency_limits.Busy):
            concurrency_limits.take(SOME, "user:3", now=now)
    first.give_back(now=now)
    concurrency_limits.take(SOME, "user:3", now=now)


def test_the_place_of_a_dead_process_becomes_free(now: datetime) -> None:
    lost = concurrency_limits.take(SOME, "user:1", now=now)
    assert lost.renew(now=now + timedelta(seconds=50))
    later = now + timedelta(seconds=50) + SOME.lasts
    again = concurrency_limits.take(SOME, "user:1", now=later)
    assert not lost.renew(now=later)
    lost.give_back(now=later)
    with pytest.raises(concurrency_limits.Busy):
        concurrency_limits.take(SOME, "user:1", now=later)
    again.give_back(now=later)


def test_a_person_leaves_no_row_behind(now: datetime) -> None:
    for number in range(20):
        concurrency_limits.take(SOME, f"user:{number}", now=now).give_back(now=now)
    assert Lease.objects.count() == 1


def asks(world: World, client: Client) -> dict[str, Callable[[], Any]]:
    rescue = world.rescue()
    sources.make_watched_sources(world.now)
    api = "/api/v1"
    yaml: dict[str, Any] = {"data": "kind: x", "content_type": "application/yaml"}
    return {
        "export": lambda: client.get("/export/nodes.csv"),
        "validation": lambda: client.post(f"{api}/policies/validate", **yaml),
        "page of validation": lambda: client.post("/policies/validate/", {"text": "kind: x"}),
        "log": lambda: client.post("/incidents/log/", {"text": "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen"}),
        "winners": lambda: client.get(f"{api}/policies/winners"),
        "page of winners": lambda: client.get("/policies/winners/"),
        "bulk preview": lambda: client.get(f"/many/nodes/drain/?picked={world.node().pk}"),
        "node preview": lambda: client.get(f"/nodes/{world.cluster.name}/{world.node().name}/drain/"),
        "jobs": lambda: client.get("/jobs/"),
        "report": lambda: client.get("/reports/"),
        "report over REST": lambda: client.get(f"{api}/reports/reliability"),
        "pods": lambda: client.get(f"/approvals/{rescue.pk}/pods/", headers={"HX-Request": "true"}),
        "source test": lambda: client.post(f"{api}/sources/{world.cluster.name}-pods/test"),
        "page of source test": lambda: client.post(f"/sources/{world.cluster.name}-pods/test/"),
        "dry run": lambda: client.post(
            f"{api}/nodes/{world.cluster.name}/{world.node().name}/drain?dry_run=true",
            "{}",
            content_type="application/json",
        ),
    }


POOLS = {
    "export": concurrency_limits.EXPORTS,
    "validation": concurrency_limits.VALIDATIONS,
    "page of validation": concurrency_limits.VALIDATIONS,
    "log": concurrency_limits.LOGS,
    "winners": concurrency_limits.VALIDATIONS,
    "page of winners": concurrency_limits.VALIDATIONS,
    "bulk preview": concurrency_limits.CLUSTER_READS,
    "node preview": concurrency_limits.CLUSTER_READS,
    "jobs": concurrency_limits.CLUSTER_READS,
    "report": concurrency_limits.REPORTS,
    "report over REST": concurrency_limits.REPORTS,
    "pods": concurrency_limits.CLUSTER_READS,
    "source test": concurrency_limits.SOURCE_TESTS,
    "page of source test": concurrency_limits.SOURCE_TESTS,
    "dry run": concurrency_limits.CLUSTER_READS,
}


@pytest.mark.parametrize("name", POOLS)
def test_an_expensive_request_is_refused_while_all_places_are_taken(name: str, world: World, person: Person) -> None:
    world.fault()
    world.work()
    client = person("admin")
    ask, taken = asks(world, client)[name], occupy_all(POOLS[name])
    refused = ask()
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == str(POOLS[name].retry_after)
    if refused.headers["Content-Type"] == "application/problem+json":
        assert refused.json()["code"] == "places_taken"
    for place in taken:
        place.give_back(now=timezone.now())
    assert ask().status_code in (200, 422)


def test_an_act_needs_no_place(world: World, person: Person) -> None:
    """Readers who hold all places cannot keep an operator from draining a node."""
    world.fault()
    occupy_all(concurrency_limits.CLUSTER_READS)
    path = f"/nodes/{world.cluster.name}/{world.node().name}/cordon/"
    assert person("operator").post(path, {"reason": "smoke"}).status_code in (302, 422)


@pytest.mark.django_db(transaction=True)  # an answer that is closed closes the connection
def test_a_second_export_of_the_same_person_is_refused_until_the_first_ends(person: Person) -> None:
    client = person("viewer")
    first = client.get("/export/nodes.csv")
    assert client.get("/export/incidents.csv").status_code == 429
    assert person("viewer").get("/export/incidents.csv").status_code == 200
    first.close()
    again = client.get("/export/incidents.csv")
    assert again.status_code == 200
    again.getvalue()
    again.close()


def test_a_refused_fragment_loads_itself_again(world: World, person: Person) -> None:
    world.fault()
    world.work()
    row = world.rescue()
    occupy_all(concurrency_limits.CLUSTER_READS)
    refused = person("viewer").get(f"/approvals/{row.pk}/pods/", headers={"HX-Request": "true"})
    assert f'hx-get="/approvals/{row.pk}/pods/"' in refused.content.decode()
    assert "<html" not in refused.content.decode()


def test_an_export_ends_when_its_reader_is_too_slow(now: datetime) -> None:
    moments = [now, now, now + exports.MAX_DURATION + timedelta(seconds=1), now + exports.MAX_DURATION]
    stream = exports.Stream(
        iter(["a", "b"]), concurrency_limits.take(SOME, "user:1", now=now), clock=lambda: moments.pop(0)
    )
    assert next(stream) == "a"
    with pytest.raises(exports.TooSlow):
        next(stream)
    stream.close()


def test_an_export_that_was_not_read_does_not_go_on_beside_another(now: datetime) -> None:
    clock = [now]
    stream = exports.Stream(iter(["a", "b"]), concurrency_limits.take(SOME, "user:1", now=now), clock=lambda: clock[0])
    assert next(stream) == "a"
    clock[0] = now + SOME.lasts
    concurrency_limits.take(SOME, "user:1", now=clock[0])
    with pytest.raises(exports.TooSlow):
        next(stream)


def test_a_token_counts_for_its_owner() -> None:
    assert accounts.place_key(User(pk=3)) == "user:3"
    assert accounts.place_key(ApiToken(pk=7, owner_id=3)) == "user:3"
    assert accounts.place_key(ApiToken(pk=3)) == "token:3"
