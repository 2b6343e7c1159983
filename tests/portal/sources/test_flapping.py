"""Faults that end and come back again and again: their end is not trusted before they have stayed away."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from kcover.nodes import health
from kcover_portal.api.v1.sources import sources
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import queries, services
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue import services as rescue
from tests import moment
from tests.portal.sources.conftest import Sender, notification, stamp

Make = Callable[..., dict[str, Any]]
MINUTE = timedelta(minutes=1)
NEVER = "0001-01-01T00:00:00Z"


class Flapper:
    """An alert that fires for half a minute and is quiet for half a minute."""

    def __init__(self, sender: Sender, alert: Make, start: datetime, name: str = "LinkDown") -> None:
        self.sender, self.alert, self.at, self.name = sender, alert, start, name
        self.since = start

    def fire(self) -> None:
        self.since = self._pass()
        self._post("firing", NEVER)

    def end(self) -> None:
        self._post("resolved", stamp(self._pass()))

    def _pass(self) -> datetime:
        self.at += MINUTE / 2
        moment.move_to(self.at)
        return self.at

    def _post(self, status: str, ends: str) -> None:
        sources.request_rates.forget()
        told = self.alert(self.name, status=status) | {"startsAt": stamp(self.since), "endsAt": ends}
        answer = self.sender.post(notification(told))
        assert (answer.status_code, answer.json()["accepted"]) == (202, 1)


@pytest.fixture
def flapper(alertmanager: Sender, alert: Make, now: datetime) -> Flapper:
    return Flapper(alertmanager, alert, now)


def states() -> list[str]:
    return list(Incident.objects.order_by("pk").values_list("state", flat=True))


def test_twenty_turns_are_one_flapping_incident(flapper: Flapper) -> None:
    for _ in range(20):
        flapper.fire()
        flapper.end()
    assert states() == ["closed", "open"]  # the first end was trusted
    flapping = Incident.objects.get(state="open")
    assert (flapping.count, flapping.ended_at is not None) == (19, True)
    [(_, found)] = queries.health_of(Node.objects.filter(name="gpu-1"), now=flapper.at).items()
    assert [(cause.kind, cause.state) for cause in found.node.causes if cause.about.endswith("LinkDown")] == [
        ("flapping", "degraded")
    ]


def test_a_flapping_incident_is_closed_after_it_has_stayed_away(flapper: Flapper) -> None:
    for _ in range(3):
        flapper.fire()
        flapper.end()
    stable = Incident.objects.get(state="open").ended_at + health.FLAPPING_ENDS_AFTER
    Incident.objects.update(decide_at=None)  # nothing else is left to do
    assert not rescue.has_work(stable - timedelta(seconds=1))
    rescue.sweep(now=stable - timedelta(seconds=1))
    assert states() == ["closed", "open"]
    assert rescue.has_work(stable)
    rescue.sweep(now=stable)
    assert states() == ["closed", "closed"]
    row = Incident.objects.latest("pk")
    assert (row.closed_because["code"], row.ended_at) == ("source_reports_healthy", None)


def test_a_flapping_incident_that_comes_back_stays_open(flapper: Flapper) -> None:
    for _ in range(3):
        flapper.fire()
        flapper.end()
    flapper.fire()
    rescue.sweep(now=flapper.at + 2 * health.FLAPPING_ENDS_AFTER)
    row = Incident.objects.get(state="open")
    assert row.ended_at is None


def test_a_report_that_is_stored_beside_the_end_is_not_closed_with_it(flapper: Flapper) -> None:
    """The sweep has read the row when the fault is told again."""
    for _ in range(2):
        flapper.fire()
        flapper.end()
    row = Incident.objects.get(state="open")
    Incident.objects.filter(pk=row.pk).update(last_at=flapper.at + MINUTE)
    services.close_ended(now=flapper.at + 2 * health.FLAPPING_ENDS_AFTER)
    assert states() == ["closed", "open"]


def test_a_repeated_end_changes_nothing(flapper: Flapper) -> None:
    for _ in range(2):
        flapper.fire()
        flapper.end()
    ended = Incident.objects.get(state="open").ended_at
    flapper.end()
    assert Incident.objects.get(state="open").ended_at == ended


def test_two_turns_an_hour_apart_do_not_flap(flapper: Flapper) -> None:
    for _ in range(4):
        flapper.fire()
        flapper.end()
        flapper.at += timedelta(hours=1)
    assert states() == ["closed"] * 4


def test_the_page_and_the_api_show_why_a_flapping_incident_stays_open(flapper: Flapper, admin_client: Client) -> None:
    for _ in range(2):
        flapper.fire()
        flapper.end()
    row = Incident.objects.get(state="open")
    found = admin_client.get(f"/api/v1/incidents/{row.pk}").json()
    assert found["ended_because_reason"]["code"] == "ended_flapping"
    assert str(row.ended_why) in admin_client.get(f"/incidents/{row.pk}/").content.decode()
