"""The secrets that may sign a callback: the present one, and the previous one for a day."""

from datetime import datetime, timedelta

import pytest

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import cluster_settings

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
FIRST, SECOND = "first" * 4, "second" * 4


def change(secret: str, now: datetime) -> None:
    row = Cluster.objects.get()
    cluster_settings.set_cluster(row, {"decision_secret": secret}, actor="test", reason="", now=now)


def accepted(now: datetime) -> list[str]:
    return queries.callback_secrets(Cluster.objects.get(), now=now)


@pytest.fixture(autouse=True)
def _east(db: None, now: datetime) -> None:
    Cluster.objects.create(name="east", created_at=now)
    change(FIRST, now)


def test_the_previous_secret_is_accepted_for_a_day(now: datetime) -> None:
    assert accepted(now) == [FIRST]
    change(SECOND, now)
    assert accepted(now + DAY / 2) == [SECOND, FIRST]
    assert accepted(now + DAY) == [SECOND]


def test_setting_the_same_secret_again_changes_nothing(now: datetime) -> None:
    change(SECOND, now)
    change(SECOND, now + DAY / 2)
    assert accepted(now + DAY) == [SECOND]


def test_a_stolen_secret_is_replaced_without_an_overlap(now: datetime) -> None:
    change("", now)
    assert accepted(now) == []
    change(SECOND, now)
    assert accepted(now) == [SECOND]
