"""Several checks, of one source or of several, tell one fault: it ends when all have passed, in any order."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.sources.services import held_passes
from tests.portal.sources.conftest import Sender, add, notification, stamp
from tests.portal.sources.test_late_reports import rebooted
from tests.portal.sources.test_witnesses import agent_reports, xid

__all__ = ["rebooted"]

Make = Callable[..., dict[str, Any]]
SECOND = timedelta(seconds=1)
SLOT = {"pci_bus_id": "00000000:4E:00.0", "err_code": "79"}
RULES = ("GPUXidCritical", "GPUXidAny", "GPUXidOfTeam")
OVER = {"isHealthy": True, "isFatal": False, "errorCode": [], "recommendedAction": 0}


def closing(act: Callable[[], object]) -> None:
    """Acts, and gives the thread's connection back."""
    try:
        act()
    finally:
        connection.close()


def is_open() -> bool:
    row = Incident.objects.get()
    return row.state == Incident.State.OPEN


@pytest.fixture
def fires(alert: Make, now: datetime) -> Make:
    def make(name: str, *, ended: bool = False, began: int = 60, end: int = 0) -> dict[str, Any]:
        told = {**alert(name, status="resolved" if ended else "firing", **SLOT)}
        return {
            **told,
            "startsAt": stamp(now - began * SECOND),
            **({"endsAt": stamp(now - end * SECOND)} if ended else {}),
        }

    return make


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_incident_ends_with_the_last_of_its_alerts(
    alertmanager: Sender, fires: Make, order: tuple[int, ...]
) -> None:
    for name in RULES:
        alertmanager.post(notification(fires(name)))
    for place, number in enumerate(order):
        assert is_open()
        alertmanager.post(notification(fires(RULES[number], ended=True, end=10 - place)))
    assert not is_open()


def test_alerts_of_one_notification_end_together(alertmanager: Sender, fires: Make) -> None:
    alertmanager.post(notification(*map(fires, RULES)))
    alertmanager.post(notification(*(fires(name, ended=True) for name in RULES[:2]), fires(RULES[2])))
    assert is_open()
    alertmanager.post(notification(*(fires(name, ended=True) for name in RULES)))
    assert not is_open()


def test_an_alert_that_began_after_the_end_of_another_ends_by_itself(alertmanager: Sender, fires: Make) -> None:
    alertmanager.post(notification(fires(RULES[0], began=60)))
    alertmanager.post(notification(fires(RULES[1], began=20)))
    alertmanager.post(notification(fires(RULES[0], ended=True, began=60, end=30)))
    assert is_open()
    alertmanager.post(notification(fires(RULES[1], ended=True, began=20, end=5)))
    assert not is_open()


def test_an_alert_that_fires_again_keeps_the_incident_open(alertmanager: Sender, fires: Make) -> None:
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name)))
    alertmanager.post(notification(fires(RULES[0], ended=True, end=40)))
    alertmanager.post(notification(fires(RULES[0], began=30)))
    alertmanager.post(notification(fires(RULES[1], ended=True, end=20)))
    assert is_open()
    alertmanager.post(notification(fires(RULES[0], ended=True, began=30, end=10)))
    assert not is_open()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_clock_that_was_ahead_keeps_none_open(alertmanager: Sender, fires: Make, count: int) -> None:
    """Nor does somebody with the token, by a time of up to ten minutes ahead."""
    for name in RULES[:count]:
        alertmanager.post(notification(fires(name, began=-300)))
    for name in RULES[:count]:
        alertmanager.post(notification(fires(name, ended=True, began=-300, end=-10)))
    assert not is_open()


def test_the_end_of_an_alert_about_another_gpu_ends_no_incident(alertmanager: Sender, alert: Make, fires: Make) -> None:
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name)))
    other = {"pci_bus_id": "00000000:5E:00.0", "err_code": "79"}
    for name in RULES[:2]:
        alertmanager.post(notification(alert(name, status="resolved", **other)))
    assert is_open()


def test_checks_of_nvsentinel(sentinel: Sender, health: Make, now: datetime) -> None:
    checks = ("SysLogsXIDError", "GpuXidWatch")
    for number, name in enumerate(checks):
        sentinel.post([health(f"{number}", at=now - 60 * SECOND, checkName=name)])
    sentinel.post([health("3", at=now - 20 * SECOND, checkName=checks[0], **OVER)])
    assert is_open()
    sentinel.post([health("4", at=now - 10 * SECOND, checkName=checks[1], **OVER)])
    assert not is_open()


def test_another_witness_keeps_the_incident_open(
    east: Cluster, alertmanager: Sender, fires: Make, now: datetime
) -> None:
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name)))
    agent_reports(east, xid(), at=now)
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name, ended=True)))
    assert is_open()


def test_ends_that_came_while_the_node_was_not_ready(alertmanager: Sender, fires: Make, now: datetime) -> None:
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name)))
    Node.objects.filter(name="gpu-1").update(ready=False)
    for name in RULES[:2]:
        alertmanager.post(notification(fires(name, ended=True)))
    assert is_open()
    Node.objects.filter(name="gpu-1").update(ready=True, ready_since=now + 60 * SECOND)
    held_passes.apply(now=now + timedelta(minutes=30))
    assert not is_open()


@pytest.mark.parametrize("first", ["alert", "health"])
@pytest.mark.parametrize("ends_first", ["alert", "health"])
def test_two_sources_report_one_fault_in_different_formats(
    alertmanager: Sender, sentinel: Sender, fires: Make, health: Make, now: datetime, first: str, ends_first: str
) -> None:
    def tell(form: str, *, ended: bool) -> None:
        if form == "alert":
            alertmanager.post(notification(fires(RULES[0], ended=ended, end=10)))
        else:
            sentinel.post([health(f"{ended}", at=now - (10 if ended else 60) * SECOND, **(OVER if ended else {}))])

    forms = ("alert", "health")
    for form in sorted(forms, key=lambda form: form != first):
        tell(form, ended=False)
    assert Incident.objects.count() == 1
    for form in sorted(forms, key=lambda form: form != ends_first):
        assert is_open()
        tell(form, ended=True)
    assert not is_open()


def test_two_sources_of_one_kind_with_the_same_alert(east: Cluster, fires: Make, now: datetime) -> None:
    senders = [Sender(add(east, "alertmanager", now=now, name=name), now=now) for name in ("a", "b")]
    for sender in senders:
        sender.post(notification(fires(RULES[0])))
    senders[0].post(notification(fires(RULES[0], ended=True, end=30)))
    assert is_open()
    senders[0].post(notification(fires(RULES[0], began=20)))
    senders[1].post(notification(fires(RULES[0], ended=True, end=15)))
    assert is_open()  # the first one fires again
    senders[0].post(notification(fires(RULES[0], began=20, ended=True, end=5)))
    assert not is_open()


def test_a_fault_reported_by_an_agent_is_not_ended_by_a_source(
    east: Cluster, alertmanager: Sender, sentinel: Sender, fires: Make, health: Make, now: datetime
) -> None:
    alertmanager.post(notification(fires(RULES[0])))
    sentinel.post([health("1", at=now - 60 * SECOND)])
    agent_reports(east, xid(), at=now)
    alertmanager.post(notification(fires(RULES[0], ended=True)))
    sentinel.post([health("2", at=now, **OVER)])
    assert is_open()


def test_two_alerts_that_began_close_after_a_reboot(
    alertmanager: Sender, alert: Make, now: datetime, rebooted: datetime
) -> None:
    """Each may be of the boot before, and stands none the less."""

    def tell(name: str, **more: Any) -> None:
        told = {**alert(name, **SLOT), "startsAt": stamp(rebooted + 30 * SECOND), **more}
        alertmanager.post(notification(told))

    for name in RULES[:2]:
        tell(name)
    tell(RULES[0], status="resolved", endsAt=stamp(now))
    assert is_open()
    tell(RULES[1], status="resolved", endsAt=stamp(now))
    assert not is_open()


@pytest.mark.postgres(reason="two transactions lock one row")
@pytest.mark.django_db(transaction=True)
def test_two_sources_report_their_ends_at_once(
    alertmanager: Sender, sentinel: Sender, fires: Make, health: Make, now: datetime
) -> None:
    """None of the two ends is lost, or the incident would stay open for ever."""
    for number in range(10):
        Incident.objects.all().delete()
        alertmanager.post(notification(fires(f"{RULES[0]}{number}")))
        sentinel.post([health(f"{number}", at=now - 60 * SECOND)])
        assert Incident.objects.count() == 1
        ends = (
            lambda number=number: alertmanager.post(notification(fires(f"{RULES[0]}{number}", ended=True))),
            lambda number=number: sentinel.post([health(f"{number}-over", at=now, **OVER)]),
        )
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(closing, one) for one in ends]:
                done.result()
        assert not is_open(), number
