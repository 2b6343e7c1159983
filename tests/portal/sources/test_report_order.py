"""Reports that arrive out of order: what is over opens nothing, and the end of one alert is not the end of another."""

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover.sources.observation import Observation
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.runtime.services import retention
from kcover_portal.sources import services
from kcover_portal.sources.models import ToldSeries
from kcover_portal.sources.services import told_series
from tests import moment
from tests.portal.sources.conftest import Sender, notification, stamp

Make = Callable[..., dict[str, Any]]
MINUTE = timedelta(minutes=1)


def open_codes() -> list[str]:
    return sorted(Incident.objects.filter(state="open").values_list("code", flat=True))


def fired(alert: Make, began: datetime, ended: datetime | None = None, **labels: str) -> dict[str, Any]:
    """An alert that fires, or has fired, since then; its labels name its series."""
    given = alert("HighMem", status="firing" if ended is None else "resolved", **labels)
    given["fingerprint"] = f"HighMem {sorted(labels.items())}"
    return given | {"startsAt": stamp(began), "endsAt": stamp(ended) if ended else "0001-01-01T00:00:00Z"}


def test_inv_04_a_firing_older_than_its_resolve_opens_no_incident(
    alertmanager: Sender, alert: Make, now: datetime
) -> None:
    began, ended = now - 10 * MINUTE, now - 6 * MINUTE
    alertmanager.post(notification(fired(alert, began, ended)))
    alertmanager.post(notification(fired(alert, began)))
    alertmanager.post(notification(fired(alert, began - MINUTE)))
    assert open_codes() == []
    alertmanager.post(notification(fired(alert, ended + MINUTE)))
    assert open_codes() == ["HighMem"]


def test_an_alert_that_fires_again_from_its_first_start_reopens_its_incident(
    alertmanager: Sender, alert: Make, now: datetime
) -> None:
    """Prometheus could not reach Alertmanager, which ended the alert. Then it is sent again, with its first start."""
    began, ended = now - 60 * MINUTE, now - 2 * MINUTE
    alertmanager.post(notification(fired(alert, began)))
    alertmanager.post(notification(fired(alert, began, ended)))
    moment.move_to(now + 5 * MINUTE)
    alertmanager.post(notification(fired(alert, began)))  # may have been overtaken
    assert open_codes() == []
    moment.move_to(now + 30 * MINUTE)
    answer = alertmanager.post(notification(fired(alert, began)))
    assert (answer.json()["accepted"], open_codes()) == (1, ["HighMem"])
    moment.move_to(now + 90 * MINUTE)
    answer = alertmanager.post(notification(fired(alert, began)))
    assert (answer.json()["accepted"], Incident.objects.get(state="open").count) == (0, 1)


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_four_reports_of_one_alert_end_alike_in_any_order(
    alertmanager: Sender, alert: Make, now: datetime, order: tuple[int, ...]
) -> None:
    """It fired, ended, fired again and still fires."""
    at = [now - minutes * MINUTE for minutes in (20, 15, 10)]
    told = [fired(alert, at[0]), fired(alert, at[0], at[1]), fired(alert, at[2]), fired(alert, at[0])]
    for number in order:
        alertmanager.post(notification(told[number]))
    assert open_codes() == ["HighMem"]
    alertmanager.post(notification(fired(alert, at[2], now)))
    assert not Incident.objects.filter(state="open", ended_at=None).exists()


@pytest.mark.parametrize("together", [True, False])
def test_the_end_of_one_series_is_not_the_end_of_another(
    alertmanager: Sender, alert: Make, now: datetime, together: bool
) -> None:
    """Neither names a device: two file systems of one node."""
    one, other = ({"mountpoint": place} for place in ("/var", "/data"))
    for labels in (one, other):
        alertmanager.post(notification(fired(alert, now - 9 * MINUTE, **labels)))
    ends = [fired(alert, now - 9 * MINUTE, now - MINUTE, **labels) for labels in (one, other)]
    if together:
        alertmanager.post(notification(*ends))
        assert open_codes() == []
        return
    alertmanager.post(notification(ends[0]))
    assert open_codes() == ["HighMem"]
    alertmanager.post(notification(ends[1]))
    assert open_codes() == []


def test_a_firing_and_another_series_end_in_one_request(alertmanager: Sender, alert: Make, now: datetime) -> None:
    over = fired(alert, now - 9 * MINUTE, now - MINUTE, mountpoint="/var")
    alertmanager.post(notification(over, fired(alert, now - 5 * MINUTE, mountpoint="/data")))
    assert open_codes() == ["HighMem"]


def test_a_health_event_older_than_its_pass_opens_no_incident(sentinel: Sender, health: Make, now: datetime) -> None:
    gpus = [[{"entityType": "GPU", "entityValue": str(number)}] for number in (1, 6)]
    sentinel.post([health("1", isHealthy=True, errorCode=[], at=now - MINUTE, entitiesImpacted=gpus[0])])
    sentinel.post([health("2", at=now - 2 * MINUTE, entitiesImpacted=gpus[0])])
    assert open_codes() == []
    sentinel.post([health("3", at=now - 2 * MINUTE, entitiesImpacted=gpus[1])])
    sentinel.post([health("4", at=now, entitiesImpacted=gpus[0], errorCode=["48"])])
    assert open_codes() == ["SysLogsXIDError/48", "SysLogsXIDError/79"]
    sentinel.post([health("5", isHealthy=True, errorCode=[], at=now, entitiesImpacted=[])])
    sentinel.post([health("6", at=now - MINUTE, entitiesImpacted=gpus[1], errorCode=["62"])])
    assert open_codes() == []
    sentinel.post(
        [health("7", at=now - MINUTE, checkName="GpuMemWatch"), health("8", at=now - MINUTE, nodeName="gpu-2")]
    )
    assert len(open_codes()) == 2


@pytest.mark.parametrize(("healthy", "read"), [(True, ["still"]), (False, [])])
def test_a_report_reads_the_series_of_its_own_check_only(
    alertmanager: Sender, alert: Make, now: datetime, healthy: bool, read: list[str]
) -> None:
    """A node may have told thousands within the days that they are kept."""
    over = [fired(alert, now - 9 * MINUTE, now - 8 * MINUTE, gpu=str(gpu)) for gpu in range(9)]
    others = [alert(f"Other{number}") for number in range(9)]
    alertmanager.post(notification(*over, *others, fired(alert, now - 9 * MINUTE, gpu="still")))
    given = {"kind": "alert", "code": "HighMem", "check": "HighMem", "series": "new", "seen_at": now}
    one = Observation(path="", key="1", node="gpu-1", healthy=healthy, **given)
    nodes = {"gpu-1": Node.objects.get(name="gpu-1")}
    told = told_series.tell(alertmanager.source, [one], nodes, now=now)
    assert [row.device[2].removeprefix("gpu ") for row in told.rows] == read


def test_a_clock_that_is_ahead_hides_no_later_fault(sentinel: Sender, health: Make, now: datetime) -> None:
    sentinel.post([health("1", isHealthy=True, errorCode=[], at=now + 9 * MINUTE)])
    sentinel.post([health("2", at=now + MINUTE)])
    assert open_codes() == ["SysLogsXIDError/79"]


def test_reported_series_are_deleted_after_their_retention(alertmanager: Sender, alert: Make, now: datetime) -> None:
    alertmanager.post(notification(fired(alert, now - 9 * MINUTE, now - MINUTE)))
    assert ToldSeries.objects.get().node == Node.objects.get(name="gpu-1")
    services.prune(now=now + retention.time(ToldSeries) - MINUTE)
    assert ToldSeries.objects.exists()
    services.prune(now=now + retention.time(ToldSeries) + MINUTE)
    assert not ToldSeries.objects.exists()
