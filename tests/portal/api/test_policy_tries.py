"""Tries of policies as jobs: in slices, cancelled, interrupted, bounded, and read by their owner only."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.policies.models import PolicyTry, PolicyTryResult
from kcover_portal.rescue.decide import policy_tries
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.runtime.services import concurrency_limits, retention, slices
from tests.portal.api.conftest import Api, add_node, person, problem
from tests.portal.api.test_policies_dry_run import add_incident
from tests.portal.policies.texts import policy

pytestmark = pytest.mark.django_db
INCIDENTS = 45


@pytest.fixture
def many(east: Cluster, now: datetime) -> list[Incident]:
    return [add_incident(add_node(east, f"many-{number}", now), now) for number in range(INCIDENTS)]


def begin(api: Api, **scope: object) -> int:
    answer = api.post("policies/try", {"yaml": policy("a"), **scope})
    assert answer.status_code == 202, answer.content
    assert answer.headers["Location"].endswith(f"/api/v1/policies/tries/{answer.json()['id']}")
    return int(answer.json()["id"])


def state(api: Api, pk: int) -> str:
    return str(api.get(f"policies/tries/{pk}").json()["state"])


def work(pk: int) -> None:
    """As many slices as the machine needs."""
    while pk in policy_tries.due(now=timezone.now()):
        policy_tries.advance(pk, clock=timezone.now)


def ticking(seconds: float) -> Iterator[datetime]:
    now = timezone.now()
    while True:
        yield now
        now += timedelta(seconds=seconds)


def test_a_try_writes_nothing_but_its_result(many: list[Incident], viewer: Api) -> None:
    before = (Decision.objects.count(), Rescue.objects.count())
    pk = begin(viewer, now=True)
    body = viewer.get(f"policies/tries/{pk}").json()
    assert (body["state"], body["progress"], body["incidents"]) == ("waiting", {"done": 0, "total": INCIDENTS}, 0)
    work(pk)
    body = viewer.get(f"policies/tries/{pk}").json()
    assert (body["state"], body["progress"]) == ("done", {"done": INCIDENTS, "total": INCIDENTS})
    assert body["incidents"] == len(body["results"]) == INCIDENTS
    assert sum(body["answers"]["after"].values()) == INCIDENTS
    assert set(body["rules"]) == {"a#1"}
    assert len(body["nodes"]) == body["changed"]
    assert {"before", "after", "rescue", "changed"} < set(body["results"][0])
    assert body["results"][0]["after"]["reasons"][0]["code"]
    assert (Decision.objects.count(), Rescue.objects.count()) == before


def test_a_try_that_lost_its_worker_goes_on_where_it_was(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    row = PolicyTry.objects.get(pk=pk)
    died_at = timezone.now()
    rows = PolicyTry.objects.filter(pk=pk)
    rows.update(state="running", holder="dead", lease_until=died_at + slices.LEASE_TIME, pending=row.pending[:10])
    policy_tries.advance(pk, clock=timezone.now)
    assert state(viewer, pk) == "running"  # the lease of the dead worker
    assert policy_tries.due(now=died_at) == []
    later = died_at + slices.LEASE_TIME + timedelta(seconds=1)
    assert policy_tries.due(now=later) == [pk]
    while pk in policy_tries.due(now=later):
        policy_tries.advance(pk, clock=lambda: later)
    assert state(viewer, pk) == "done"
    assert PolicyTryResult.objects.count() == 10


def test_a_try_that_loses_every_worker_fails_with_a_reason(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    PolicyTry.objects.filter(pk=pk).update(slices=slices.MAX_SLICES, state="running")
    policy_tries.advance(pk, clock=timezone.now)
    row = PolicyTry.objects.get(pk=pk)
    assert (row.state, row.because["code"]) == ("failed", "try_interrupted")
    assert viewer.get(f"policies/tries/{pk}").json()["because"]


def test_a_try_has_a_deadline(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    clock = ticking(policy_tries.MAX_DURATION.total_seconds())
    policy_tries.advance(pk, clock=lambda: next(clock))
    row = PolicyTry.objects.get(pk=pk)
    assert (row.state, row.because["code"]) == ("failed", "try_too_long")


def test_a_cancelled_try_stops_at_its_next_write(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    calls = 0

    def clock() -> datetime:
        nonlocal calls
        calls += 1
        if calls == 3:  # during the first piece of work
            assert viewer.post(f"policies/tries/{pk}/cancel").json()["state"] == "cancelled"
        return timezone.now()

    policy_tries.advance(pk, clock=clock)
    assert state(viewer, pk) == "cancelled"
    assert PolicyTryResult.objects.count() < INCIDENTS
    assert viewer.post(f"policies/tries/{pk}/cancel").status_code == 200
    policy_tries.advance(pk, clock=timezone.now)
    assert state(viewer, pk) == "cancelled"


def test_a_person_has_one_try_at_a_time(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    refused = viewer.post("policies/try", {"yaml": policy("a")})
    assert problem(refused, 429)["code"] == "try_own_open"
    assert refused.headers["Retry-After"]
    viewer.post(f"policies/tries/{pk}/cancel")
    begin(viewer)


def test_the_portal_has_a_bounded_number_of_tries(viewer: Api, now: datetime) -> None:
    rows = [PolicyTry(owner=f"user:{-n}", past=False, total=0, requested_at=now) for n in range(policy_tries.MAX_OPEN)]
    PolicyTry.objects.bulk_create(rows)
    assert problem(viewer.post("policies/try", {"yaml": policy("a")}), 429)["code"] == "tries_full"


def test_two_tries_are_worked_on_at_a_time(viewer: Api) -> None:
    pk = begin(viewer)
    taken = [
        concurrency_limits.take(concurrency_limits.TRIES, f"try:{-number}", now=timezone.now())
        for number in range(concurrency_limits.TRIES.size)
    ]
    policy_tries.advance(pk, clock=timezone.now)
    assert state(viewer, pk) == "waiting"
    taken[0].give_back(now=timezone.now())
    policy_tries.advance(pk, clock=timezone.now)
    assert state(viewer, pk) == "done"


def test_the_try_of_another_person_is_not_found(viewer: Api, admin: Api) -> None:
    pk = begin(viewer)
    problem(admin.get(f"policies/tries/{pk}"), 404)
    problem(admin.post(f"policies/tries/{pk}/cancel"), 404)
    problem(Api().get(f"policies/tries/{pk}"), 401)


def test_a_try_shows_only_clusters_that_are_still_visible(
    many: list[Incident], east: Cluster, west: Cluster, now: datetime
) -> None:
    wanda = person("wanda", "viewer", now, cluster=east)
    pk = begin(wanda)
    work(pk)
    assert wanda.get(f"policies/tries/{pk}").json()["incidents"] == INCIDENTS
    PolicyTryResult.objects.update(cluster=west.pk)
    assert wanda.get(f"policies/tries/{pk}").json()["results"] == []


def test_an_incident_that_is_gone_is_left_out(many: list[Incident], viewer: Api) -> None:
    pk = begin(viewer)
    Incident.objects.filter(pk=many[0].pk).delete()
    work(pk)
    body = viewer.get(f"policies/tries/{pk}").json()
    assert (body["state"], body["incidents"]) == ("done", INCIDENTS - 1)


def test_tries_are_deleted_after_a_day(viewer: Api, node: Node) -> None:
    pk = begin(viewer)
    work(pk)
    policy_tries.prune(now=timezone.now())
    assert state(viewer, pk) == "done"
    with transaction.atomic():
        policy_tries.prune(now=timezone.now() + retention.time(PolicyTry) + timedelta(minutes=1))
    problem(viewer.get(f"policies/tries/{pk}"), 404)
