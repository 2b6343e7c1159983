"""Events of AWS Health, as EventBridge sends them. Their form is that of AWS's documentation (``kcover.sources``)."""

import copy
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from tests.portal.sources.conftest import Sender, add, stamp
from tests.portal.sources.test_push import open_incidents, took

INSTANCE, OTHER, FOREIGN = "i-0abcd111122223333", "i-0abcd111122224444", "i-0abcd111122229999"


@pytest.fixture
def cloud(east: Cluster, now: datetime) -> Sender:
    for name, instance in (("gpu-1", INSTANCE), ("gpu-2", OTHER)):
        Node.objects.filter(name=name).update(provider_id=f"aws:///us-west-2a/{instance}")
    return Sender(add(east, "cloudevents", now=now, name="cloud"), now=now)


def health(event: str, at: datetime, *instances: str, **detail: Any) -> dict[str, Any]:
    entities = [{"entityValue": one, "status": "IMPAIRED", "lastUpdatedTime": "x"} for one in instances]
    code = "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED"
    return {
        "version": "0",
        "id": event,
        "detail-type": "AWS Health Event",
        "source": "aws.health",
        "account": "123456789012",
        "time": stamp(at),
        "region": "us-west-2",
        "resources": list(instances),
        "detail": {
            "eventArn": f"arn:aws:health:us-west-2::event/EC2/{code}/1",
            "service": "EC2",
            "eventTypeCode": code,
            "eventTypeCategory": "scheduledChange",
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "statusCode": "upcoming",
            "startTime": "Mon, 01 Dec 2098 08:00:00 GMT",
            "endTime": "Mon, 01 Dec 2098 10:30:00 GMT",
            "eventDescription": [{"language": "en_US", "latestDescription": "Reboot of the host."}],
            "affectedEntities": entities,
            "affectedAccount": "123456789012",
            "page": "1",
            "totalPages": "1",
            **detail,
        },
    }


def test_a_scheduled_change_opens_an_incident_on_each_node_until_it_is_closed(cloud: Sender, now: datetime) -> None:
    given = health("1", now - timedelta(minutes=2), INSTANCE, OTHER, FOREIGN, "vol-1")
    assert took(cloud.post(given)) == (3, 0, [])
    assert took(cloud.post(given)) == (0, 3, [])
    assert open_incidents() == [("other", "maintenance", "")] * 2
    row = Incident.objects.get(node__name="gpu-1")
    window, code, text = row.message.split(": ")
    assert window == "2098-12-01 08:00:00 UTC - 2098-12-01 10:30:00 UTC"
    assert (code, text) == ("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", "Reboot of the host.")
    resolved = health("2", now - timedelta(minutes=1), INSTANCE)
    resolved["detail"]["affectedEntities"][0]["status"] = "RESOLVED"
    assert took(cloud.post(resolved)) == (1, 0, [])
    assert [row.node.name for row in Incident.objects.filter(state="open")] == ["gpu-2"]
    assert took(cloud.post(health("3", now, f"arn:aws:ec2:us-west-2:1:instance/{OTHER}", statusCode="closed")))[0] == 1
    assert open_incidents() == []


def test_an_instance_that_two_nodes_state_is_nobodys(cloud: Sender, now: datetime) -> None:
    """A node states its instance itself. One of the two was chosen by chance."""
    Node.objects.filter(name="gpu-2").update(provider_id=f"aws:///us-west-2a/{INSTANCE}")
    accepted, _, rejected = took(cloud.post(health("1", now - timedelta(minutes=2), INSTANCE)))
    assert (accepted, [code for _, code in rejected]) == (0, ["source_node_ambiguous"])
    assert open_incidents() == []


def test_the_copy_in_the_backup_region_is_the_same_communication(cloud: Sender, now: datetime) -> None:
    first = health("1", now - timedelta(minutes=3), INSTANCE, communicationId="c1-1")
    copy = {**health("2", now - timedelta(minutes=2), INSTANCE, communicationId="c1-1"), "region": "us-east-1"}
    assert [took(cloud.post(one)) for one in (first, copy)] == [(1, 0, []), (0, 1, [])]
    assert Incident.objects.get().count == 1
    over = health("3", now - timedelta(minutes=1), INSTANCE, communicationId="c2-1", statusCode="closed")
    assert took(cloud.post(over)) == (1, 0, [])
    assert open_incidents() == []


def test_a_notice_of_days_ago_counts_while_its_window_is_still_to_come(cloud: Sender, now: datetime) -> None:
    assert took(cloud.post(health("1", now - timedelta(days=2), INSTANCE))) == (1, 0, [])
    assert open_incidents() == [("other", "maintenance", "")]


def test_an_issue_is_a_fault_by_its_type(cloud: Sender, now: datetime) -> None:
    code = "AWS_EC2_INSTANCE_STORE_DRIVE_PERFORMANCE_DEGRADED"
    issue = {"eventTypeCategory": "issue", "eventTypeCode": code, "statusCode": "open", "endTime": None}
    assert took(cloud.post(health("1", now, INSTANCE, **issue))) == (1, 0, [])
    assert open_incidents() == [("other", code, "")]


@pytest.mark.parametrize(
    "detail",
    [
        {"service": "RDS"},
        {"eventTypeCategory": "accountNotification"},
        {"endTime": format_datetime(datetime.fromisoformat("2020-01-01T00:00:00Z"), usegmt=True)},
        {"affectedEntities": []},
    ],
    ids=["another service", "another category", "a past window", "nothing affected"],
)
def test_other_events_open_no_incident(cloud: Sender, now: datetime, detail: dict[str, Any]) -> None:
    assert took(cloud.post(health("1", now, INSTANCE, **detail))) == (1, 0, [])
    assert open_incidents() == []


@pytest.mark.parametrize(
    ("change", "status", "path"),
    [
        ({"id": ""}, 400, "id"),
        ({"time": "9999"}, 400, "time"),
        ({"detail": []}, 400, "detail"),
        ({"detail/startTime": "soon"}, 400, "detail/startTime"),
        ({"detail/startTime": "Fri, 31 Dec 9999 23:00:00 -1400"}, 400, "detail/startTime"),
        ({"detail/eventTypeCode": "a\u202eb"}, 400, "detail/eventTypeCode"),
        ({"detail/affectedEntities": {}}, 400, "detail/affectedEntities"),
        ({"detail/affectedEntities": [7]}, 202, "detail/affectedEntities/0"),
        ({"detail/affectedEntities": [{"entityValue": 7}]}, 202, "detail/affectedEntities/0/entityValue"),
    ],
)
def test_an_invalid_event_is_refused_by_its_path(
    cloud: Sender, now: datetime, change: dict[str, Any], status: int, path: str
) -> None:
    body = copy.deepcopy(health("1", now, INSTANCE))
    for name, value in change.items():
        place, _, key = name.rpartition("/")
        (body[place] if place else body)[key] = value
    answer = cloud.post(body)
    assert answer.status_code == status
    listed = answer.json()["errors" if status == 400 else "rejected"]
    assert [one["field" if status == 400 else "path"] for one in listed] == [path]
    assert open_incidents() == []
