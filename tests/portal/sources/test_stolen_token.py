"""Somebody with the token of a source: how much work may they make?"""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover_portal import asgi
from kcover_portal.accounts import services
from kcover_portal.accounts.models import ApiToken
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.api.v1.sources import sources
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.sources.models import Source, TakenEvent
from tests.portal.accounts.browsers import make_user
from tests.portal.sources.conftest import Sender, add, notification

Make = Callable[..., dict[str, Any]]


def test_one_request_costs_a_bounded_number_of_statements(alertmanager: Sender, alert: Make) -> None:
    """A node may report 64 distinct faults at a time; those beyond are counted together."""
    alerts = [alert(f"Fault{number}") for number in range(300)]
    with CaptureQueriesContext(connection) as made:
        assert alertmanager.post(notification(*alerts)).status_code == 202
    assert Incident.objects.count() <= 65
    assert len(made) < 64, len(made)  # faults that cannot be one are stored together


def test_requests_in_a_row_are_refused_in_the_end(
    alertmanager: Sender, alert: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: LeakyBuckets[int] = LeakyBuckets(rate=10, burst=2, clock=lambda: 0.0)  # time stands still
    monkeypatch.setattr(sources, "request_rates", rates)
    answers = [alertmanager.post(notification(alert(f"Fault{number}"))) for number in range(3)]
    # Alertmanager gives a notification up after 429, and repeats it after 503.
    assert [answer.status_code for answer in answers] == [202, 202, 503]
    assert (answers[-1].json()["code"], answers[-1].headers["Retry-After"]) == ("source_rate", "1")


@pytest.mark.parametrize("is_own", [False, True])
def test_new_events_are_refused_when_very_many_were_stored(
    alertmanager: Sender, alert: Make, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """Each is a row for a week, also one that means nothing: a portal's own alert."""
    clock = Clock()
    monkeypatch.setattr(sources, "event_rates", LeakyBuckets[int](rate=1 / 60, burst=3, retention=3600, clock=clock))
    label = "kcover_portal" if is_own else "series"

    def post(*numbers: int) -> Any:
        return alertmanager.post(notification(*(alert(f"Fault{number}", **{label: str(number)}) for number in numbers)))

    rows = TakenEvent.objects.count
    assert (post(1, 2, 3).status_code, rows()) == (202, 3)
    answer = post(4)
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (
        503,
        "source_events_many",
        "60",
    )
    clock.now += 60
    assert (post(4).status_code, rows()) == (202, 4)
    assert post(5).status_code == 503


def test_repetitions_use_up_no_budget(alertmanager: Sender, alert: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: LeakyBuckets[int] = LeakyBuckets(rate=1 / 3600, burst=2, retention=86_400, clock=Clock())
    monkeypatch.setattr(sources, "event_rates", rates)
    one = notification(alert("Fault"))
    assert [alertmanager.post(one).status_code for _ in range(4)] == 4 * [202]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("kind", "status"), [("alertmanager", 503), ("cloudevents", 429)])
def test_one_request_of_a_source_runs_at_a_time(
    east: Cluster, now: datetime, alert: Make, sentinel: Sender, kind: str, status: int
) -> None:
    sender = Sender(add(east, kind, now=now, name="other"), now=now)
    with sources.in_hand.hold(sender.source.pk):
        answer = sender.post(notification(alert()))
        assert (answer.status_code, answer.json()["code"]) == (status, "source_busy")
        assert answer.headers["Retry-After"] == "2"
        assert sentinel.post([], content_type="application/cloudevents-batch+json").status_code == 202
    assert sender.post([], content_type="application/cloudevents-batch+json").status_code != status


def test_all_sources_together_leave_threads_for_pages(alertmanager: Sender, alert: Make) -> None:
    with ExitStack() as held:
        for number in range(1, sources.MAX_SOURCES_AT_ONCE + 1):
            held.enter_context(sources.in_hand.hold(-number))
        assert alertmanager.post(notification(alert())).json()["code"] == "source_busy"
    assert alertmanager.post(notification(alert())).status_code == 202
    assert sources.MAX_SOURCES_AT_ONCE < asgi.PAGE_THREADS


def test_the_token_of_an_owner_without_the_role_is_refused_and_the_source_shows_it(
    alertmanager: Sender, alert: Make, east: Cluster, now: datetime
) -> None:
    anna = make_user("anna", now, "admin")
    ApiToken.objects.update(owner=anna)
    assert alertmanager.post(notification(alert("Fault1"))).status_code == 202
    services.bind(anna, "operator", actor="test", now=now)
    answer = alertmanager.post(notification(alert("Fault2")))
    assert (answer.status_code, answer.json()["code"]) == (403, "token_owner_role")
    assert Incident.objects.count() == 1
    assert Source.objects.get(pk=alertmanager.source.pk).error["code"] == "token_owner_role"
    services.bind(anna, "admin", cluster=east, actor="test", now=now)
    assert alertmanager.post(notification(alert("Fault2"))).status_code == 202
