"""One alert or condition tells several Xids of a GPU, one by one: each is a fault of its own, and ends with it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources.conditions import Condition
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.kube import port
from kcover_portal.sources import services
from kcover_portal.sources.models import TakenEvent, ToldSeries
from kcover_portal.sources.services import held_passes
from tests.portal.sources.conftest import Sender, add, notification, stamp
from tests.portal.sources.test_told_checks import closing
from tests.portal.sources.test_witnesses import agent_reports, xid

Make = Callable[..., dict[str, Any]]
SECOND = timedelta(seconds=1)
NAME = "GpuXidErrors"
SLOT = {"pci_bus_id": "00000000:4E:00.0"}


@pytest.fixture
def named(alert: Make, now: datetime) -> Make:
    """An alert whose text names the Xid, as ``{{ $value }}`` does. ``later``: the start of another Prometheus."""

    def make(number: int | None, *, later: float = 0, **more: Any) -> dict[str, Any]:
        text = "GPU errors" if number is None else f"Xid {number} on the GPU"
        began = now + (later - 60) * SECOND
        return {**alert(NAME, **SLOT), "annotations": {"summary": text}, "startsAt": stamp(began), **more}

    return make


def told() -> list[tuple[str, str, int, str]]:
    return list(Incident.objects.order_by("pk").values_list("code", "alias", "count", "state"))


@pytest.mark.parametrize("first", [43, None])
def test_the_text_of_an_alert_names_another_xid(alertmanager: Sender, named: Make, first: int | None) -> None:
    for number in (first, first, 79, 79):
        alertmanager.post(notification(named(number)))
    if first is None:
        assert told() == [(NAME, "xid 79", 2, "open")]
        return
    assert told() == [(NAME, "xid 43", 1, "open"), (f"{NAME}/79", "xid 79", 1, "open")]
    rows = Incident.objects.order_by("pk").values_list("severity", "is_user_fault")
    assert [is_user for _, is_user in rows] == [True, False]


def test_both_incidents_end_with_the_alert(alertmanager: Sender, named: Make, now: datetime) -> None:
    alertmanager.post(notification(named(43)))
    alertmanager.post(notification(named(79)))
    alertmanager.post(notification(named(79, status="resolved", endsAt=stamp(now))))
    assert {state for *_, state in told()} == {"closed"}


def test_the_agent_joins_the_second_one(alertmanager: Sender, named: Make, east: Cluster, now: datetime) -> None:
    alertmanager.post(notification(named(43)))
    alertmanager.post(notification(named(79)))
    agent_reports(east, xid(79), at=now)
    assert [(code, count) for code, _, count, _ in told()] == [(NAME, 1), ("79", 2)]


def test_a_pair_of_prometheus_servers_reports_each_xid_once(alertmanager: Sender, named: Make) -> None:
    for number in (43, 79, 79):
        for later in (0, 5):
            alertmanager.post(notification(named(number, later=later)))
    assert [count for *_, count, _ in told()] == [1, 1]


def test_a_row_of_an_older_portal_is_completed_first(alertmanager: Sender, named: Make) -> None:
    alertmanager.post(notification(named(43)))
    ToldSeries.objects.update(xid=None)
    TakenEvent.objects.all().delete()  # the key of the alert was another one
    alertmanager.post(notification(named(43)))
    assert [count for *_, count, _ in told()] == [1]
    alertmanager.post(notification(named(79)))
    assert [alias for _, alias, *_ in told()] == ["xid 43", "xid 79"]


def test_an_end_that_waited_for_the_node_ends_the_second_one(alertmanager: Sender, named: Make, now: datetime) -> None:
    for number in (43, 79):
        alertmanager.post(notification(named(number)))
    Incident.objects.filter(code=NAME).update(state="closed", closed_at=now)
    Node.objects.filter(name="gpu-1").update(ready=False)
    alertmanager.post(notification(named(79, status="resolved", endsAt=stamp(now))))
    assert {state for *_, state in told()} == {"closed", "open"}
    Node.objects.filter(name="gpu-1").update(ready=True, ready_since=now + 60 * SECOND)
    held_passes.apply(now=now + timedelta(minutes=30))
    assert {state for *_, state in told()} == {"closed"}


def test_an_alert_fires_again_with_another_xid(alertmanager: Sender, named: Make, now: datetime) -> None:
    """Alertmanager heard nothing of it for a while, and had ended it."""
    began, end = -1200, stamp(now - 900 * SECOND)
    alertmanager.post(notification(named(43, later=began)))
    alertmanager.post(notification(named(43, later=began, status="resolved", endsAt=end)))
    ToldSeries.objects.update(at=now - timedelta(minutes=11))
    alertmanager.post(notification(named(79, later=began)))
    assert [(alias, state) for _, alias, _, state in told()] == [("xid 43", "closed"), ("xid 79", "open")]


@pytest.mark.postgres(reason="its columns have a range")
@pytest.mark.parametrize("value", ["2147483648", "4294967295", "9999999999"])
def test_a_number_that_is_no_xid_harms_no_other_alert(
    alertmanager: Sender, named: Make, alert: Make, value: str
) -> None:
    odd = alert("Other", xid=value, err_code=value, **SLOT)
    answer = alertmanager.post(notification(odd, named(79)))
    assert answer.status_code == 202
    assert {alias for _, alias, *_ in told()} == {"alert Other", "xid 79"}


@pytest.mark.postgres(reason="two transactions open one incident")
@pytest.mark.django_db(transaction=True)
def test_two_sources_take_two_xids_of_one_alert_at_once(
    alertmanager: Sender, named: Make, east: Cluster, now: datetime
) -> None:
    second = Sender(add(east, "alertmanager", now=now, name="second"), now=now)
    for number in range(10):
        Incident.objects.all().delete()
        given = {
            "labels": {**named(None)["labels"], "alertname": f"{NAME}Of{chr(97 + number)}"},
            "fingerprint": str(number),
        }
        both = ((alertmanager, named(43, **given)), (second, named(79, **given)))
        acts = [lambda sender=sender, one=one: sender.post(notification(one)) for sender, one in both]
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(closing, act) for act in acts]:
                done.result()
        assert {alias for _, alias, *_ in told()} == {"xid 43", "xid 79"}, number


def test_an_incident_that_was_closed_is_not_that_of_another_xid(
    alertmanager: Sender, named: Make, now: datetime
) -> None:
    alertmanager.post(notification(named(43)))
    Incident.objects.update(state="closed", closed_at=now, closed_because={"code": "closed_by", "params": {}})
    alertmanager.post(notification(named(79)))
    assert told() == [(NAME, "xid 43", 1, "closed"), (NAME, "xid 79", 1, "open")]


def test_the_label_of_a_series_names_another_xid(alertmanager: Sender, named: Make, alert: Make, now: datetime) -> None:
    """Prometheus ends the series and begins another one, in one notification."""
    first, second = ({**alert(NAME, xid=str(number), **SLOT), "startsAt": stamp(now)} for number in (43, 79))
    alertmanager.post(notification(first))
    alertmanager.post(notification({**first, "status": "resolved", "endsAt": stamp(now)}, second))
    assert [(alias, state) for _, alias, _, state in told()][1:] == [("xid 79", "open")]


def test_a_condition_names_another_xid(east: Cluster, now: datetime) -> None:
    services.make_watched_sources(now)
    feed = services.ConditionFeed(east)
    for number in (43, 79):
        stated = Condition(type="XIDErrors", status="True", reason="Bad", message=f"Xid {number}", since=now)
        feed.feed([port.Node(name="gpu-1", uid="u", stated=(stated,))], now=now)
    assert [(code, alias) for code, alias, *_ in told()] == [
        ("XIDErrors=True/Bad", "xid 43"),
        ("XIDErrors=True/Bad/79", "xid 79"),
    ]
    over = Condition(type="XIDErrors", status="False", since=now + SECOND)
    feed.feed([port.Node(name="gpu-1", uid="u", stated=(over,))], now=now + SECOND)
    assert {state for *_, state in told()} == {"closed"}
    assert Occurrence.objects.count() == 2
