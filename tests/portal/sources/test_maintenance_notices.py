"""Maintenance that a cloud announces for a node, as CloudEvents of a type that the source's settings name."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from tests.portal.sources.conftest import Sender, add, stamp
from tests.portal.sources.test_push import open_incidents, took

TYPE = "com.example.maintenance"


@pytest.fixture
def cloud(east: Cluster, now: datetime) -> Sender:
    return Sender(add(east, "cloudevents", now=now, name="cloud", maintenance_types=TYPE), now=now)


def notice(event: str, at: datetime, *, subject: Any = "gpu-1", **data: Any) -> dict[str, Any]:
    named = {"specversion": "1.0", "type": TYPE, "source": "bus", "id": event, "time": stamp(at)}
    return {**named, "subject": subject, "data": data}


def test_a_notice_opens_an_incident_that_its_end_closes(cloud: Sender, now: datetime) -> None:
    start, end = datetime.fromisoformat("2098-12-01T08:00:00Z"), datetime.fromisoformat("2098-12-01T10:30:00Z")
    given = notice("1", now - timedelta(minutes=2), start=stamp(start), end=stamp(end), message="host reboot")
    assert took(cloud.post([given])) == (1, 0, [])
    assert took(cloud.post([given])) == (0, 1, [])
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.severity) == ("other", "maintenance", "warning")
    assert incident.message == "2098-12-01 08:00:00 UTC - 2098-12-01 10:30:00 UTC: host reboot"
    assert took(cloud.post([notice("2", now, over=True)])) == (1, 0, [])
    assert open_incidents() == []


def test_a_past_window_opens_no_incident(cloud: Sender, now: datetime) -> None:
    past = stamp(now - timedelta(minutes=1))
    assert took(cloud.post([notice("1", now, end=past)])) == (1, 0, [])
    assert open_incidents() == []


@pytest.mark.parametrize(
    ("wrong", "path", "code"),
    [
        ({"subject": ""}, "0/subject", "source_node_missing"),
        ({"subject": "a b"}, "0/subject", "source_node_invalid"),
        ({"start": "soon"}, "0/data/start", "source_time_invalid"),
        ({"end": 7}, "0/data/end", "source_time_invalid"),
        ({"over": "yes"}, "0/data/over", "source_not_boolean"),
        ({"message": []}, "0/data/message", "source_not_text"),
    ],
)
def test_an_invalid_notice_is_rejected_by_its_path(
    cloud: Sender, now: datetime, wrong: dict[str, Any], path: str, code: str
) -> None:
    assert took(cloud.post([notice("1", now, **wrong)])) == (0, 0, [(path, code)])


def test_only_types_that_the_settings_name_are_notices(sentinel: Sender, now: datetime) -> None:
    (rejected,) = took(sentinel.post([notice("1", now)]))[2]
    assert rejected == ("0/data/checkName", "source_code_missing")
