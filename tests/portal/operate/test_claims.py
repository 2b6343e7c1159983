"""When a claimed row is free again, and how long a failure makes it wait."""

from datetime import timedelta

import pytest

from kcover_portal.policies.models import PolicyTry
from kcover_portal.runtime.services import claims

SECOND = timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.parametrize(("until", "is_free"), [(None, True), (-SECOND, True), (timedelta(), True), (SECOND, False)])
def test_a_row_is_free_without_a_lease_and_when_it_ends(until: timedelta | None, *, is_free: bool, now) -> None:
    lease = None if until is None else now + until
    PolicyTry.objects.create(owner="user:ann", past=False, total=0, requested_at=now, lease_until=lease)
    assert PolicyTry.objects.filter(claims.free(now=now)).exists() is is_free


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (3, 8), (7, 60), (10_000, 60)])
def test_the_wait_doubles_up_to_a_limit(failures: int, seconds: int) -> None:
    assert claims.doubled(failures, least=2 * SECOND, most=60 * SECOND) == seconds * SECOND


@pytest.mark.parametrize(("asked", "seconds"), [(1.0, 4), (90.0, 90), (1e6, 1800)])
def test_the_other_side_may_ask_for_a_longer_wait(asked: float, seconds: int) -> None:
    assert claims.doubled(2, least=2 * SECOND, most=60 * SECOND, asked=asked) == seconds * SECOND


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1.0), (6, 60.0), (7, 60.0)])
def test_calls_are_tried_again_later_and_later(failures: int, seconds: float) -> None:
    assert claims.retry_seconds(failures) == seconds
