"""Claims of rows: which worker holds one, and until when."""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from kcover_portal.anchors.models import Verification
from kcover_portal.fleet.models import Cluster
from kcover_portal.jobs import queries as jobs
from kcover_portal.jobs.models import JobOrder
from kcover_portal.jobs.services import order_calls
from kcover_portal.notify import queries as notify
from kcover_portal.notify.models import Delivery
from kcover_portal.policies.models import PolicyTry
from kcover_portal.runtime.services import claims

SECOND = timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.parametrize(("until", "is_free"), [(None, True), (-SECOND, True), (timedelta(), True), (SECOND, False)])
def test_a_row_is_free_without_a_lease_and_when_it_ends(until: timedelta | None, *, is_free: bool, now) -> None:
    lease = None if until is None else now + until
    PolicyTry.objects.create(owner="user:ann", past=False, total=0, requested_at=now, lease_until=lease)
    assert PolicyTry.objects.filter(claims.free(now=now)).exists() is is_free


@pytest.mark.django_db
@pytest.mark.parametrize("mark", ["token", "holder"])
def test_a_worker_whose_lease_has_ended_writes_only_until_another_takes_the_row(mark: str, now: datetime) -> None:
    model: Any = Delivery if mark == "token" else Verification
    times = {"key": uuid4(), "opened_at": now} if mark == "token" else {"owner": "user:ann", "requested_at": now}
    row = model.objects.create(state="waiting", **times)
    kit: Any = claims.Claims(
        model=model, due=lambda now: model.objects.filter(state="waiting"), lasts=60 * SECOND, mark=mark
    )
    first = kit.take(row.pk, now=now)
    assert kit.take(row.pk, now=now + 59 * SECOND) is None
    assert kit.renew(first, now=now + 59 * SECOND)
    assert kit.take(row.pk, now=now + 118 * SECOND) is None
    second = kit.take(row.pk, now=now + 119 * SECOND)
    assert [kit.write(worker, state="done") for worker in (first, second)] == [False, True]
    assert (first.state, second.state, model.objects.get().state) == ("waiting", "done", "done")


def make_order(*, now: datetime, **about: Any) -> JobOrder:
    cluster = Cluster.objects.create(name="c1", created_at=now)
    return JobOrder.objects.create(cluster=cluster, kind="Job", name="llm", requested_at=now, due_at=now, **about)


def verifications() -> "claims.Claims[Verification]":
    return claims.Claims(
        model=Verification, due=lambda now: Verification.objects.all(), lasts=60 * SECOND, mark="holder"
    )


@pytest.mark.django_db
def test_a_row_that_somebody_settled_is_no_longer_the_workers(now: datetime) -> None:
    row = Verification.objects.create(owner="user:ann", requested_at=now)
    kit = verifications()
    taken = kit.take(row.pk, now=now, state="running")
    assert taken is not None
    Verification.objects.update(state="failed")
    assert not kit.put_back(taken)
    assert Verification.objects.get().lease_until is not None
    kit.release(taken)
    assert (Verification.objects.get().state, Verification.objects.get().lease_until) == ("failed", None)


@pytest.mark.django_db
def test_a_row_that_its_worker_settled_is_not_written_again(now: datetime) -> None:
    row = make_order(now=now)
    order = order_calls.CLAIMS.take(row.pk, now=now)
    assert order is not None
    assert order_calls.CLAIMS.put_back(order, state="done")
    assert not order_calls.CLAIMS.write(order, state="held")
    assert JobOrder.objects.get().state == order.state == "done"


@pytest.mark.django_db
def test_a_late_worker_does_not_end_the_lease_of_the_next_one(now: datetime) -> None:
    row, later = Verification.objects.create(owner="user:ann", requested_at=now), now + 60 * SECOND
    kit = verifications()
    first, _second = (kit.take(row.pk, now=moment) for moment in (now, later))
    assert first is not None
    kit.release(first)
    assert Verification.objects.get().lease_until == later + 60 * SECOND


@pytest.mark.django_db
def test_a_sweep_leaves_out_the_due_rows_that_a_worker_has(now: datetime) -> None:
    make_order(now=now, lease_until=now + SECOND, token=1)
    Delivery.objects.create(key=uuid4(), opened_at=now, due_at=now, lease_until=now + SECOND)
    for due, claimable in ((jobs.due_orders, jobs.claimable_orders), (notify.due_deliveries, notify.sendable)):
        assert due(now=now).count() == 1
        assert not claimable(now=now).exists()
        assert claimable(now=now + SECOND).count() == 1
