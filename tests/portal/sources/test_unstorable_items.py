"""An item that cannot be stored is rejected with its place, and fails no other item of its request."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import DataError, connection

from kcover.sources import cloudevents
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.sources.models import Source
from tests.portal.sources.conftest import Sender, add, notification, pull
from tests.portal.sources.stand_ins import Answered, StandIns

Make = Callable[..., dict[str, Any]]
LONE = "a\ud800b"


def told(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 202, answer.content
    return [(one["path"], one["code"]) for one in answer.json()["rejected"]]


def seen() -> set[str]:
    return set(Incident.objects.values_list("code", flat=True))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"fingerprint": LONE}, "alerts/1/fingerprint"),
        ({"annotations": {"summary": LONE}}, "alerts/1/annotations/summary"),
        ({"annotations": {LONE: "x"}}, "alerts/1/annotations"),
        ({"else": [{"x": "y"}, {"x": LONE}]}, "alerts/1/else/1/x"),
        ({"annotations": {"summary": "a\0b"}}, "alerts/1/annotations/summary"),
    ],
)
def test_an_alert_that_cannot_be_stored_is_rejected_alone(
    alertmanager: Sender, alert: Make, change: dict[str, Any], path: str
) -> None:
    answer = alertmanager.post(notification(alert("Before"), alert("Bad") | change, alert("After")))
    assert told(answer) == [(path, "source_not_storable")]
    assert (answer.json()["accepted"], seen()) == (2, {"Before", "After"})


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("codes", [["79", LONE], [LONE]])
def test_a_health_event_that_cannot_be_stored_is_rejected_alone(
    sentinel: Sender, health: Make, is_text: bool, codes: list[str]
) -> None:
    """Its data may be JSON in a text, which the parser of the request does not look into."""
    bad, good = health("1", errorCode=codes), health("2", checkName="Good", errorCode=[])
    path = f"0/data/healthEvent/errorCode/{codes.index(LONE)}"
    if is_text:
        bad["data"] = json.dumps(bad["data"])
    answer = sentinel.post([bad, good], content_type=cloudevents.BATCH)
    assert told(answer) == [(path, "source_not_storable")]
    assert seen() == {"Good"}


def test_a_health_event_whose_text_is_nested_too_deeply_is_rejected_alone(sentinel: Sender, health: Make) -> None:
    bad, good = health("1"), health("2", checkName="Good", errorCode=[])
    bad["data"] = "[" * 100 + '"\\ud800"' + "]" * 100
    answer = sentinel.post([bad, good], content_type=cloudevents.BATCH)
    assert told(answer) == [("0/data", "json_too_deep")]
    assert seen() == {"Good"}


@pytest.fixture
def refusing(db: None) -> Any:
    """The database refuses each item with this text, as it refuses what no reader has thought of."""

    def refuse(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if sql.startswith("INSERT") and "unheard of" in str(params):
            raise DataError("refused\nDETAIL: unheard of")
        return execute(sql, params, *rest)

    with connection.execute_wrapper(refuse):
        yield


@pytest.mark.usefixtures("refusing")
def test_what_the_database_refuses_is_rejected_alone(alertmanager: Sender, alert: Make) -> None:
    alerts = [alert(f"Fault{number}") for number in range(7)]
    for bad in (alerts[2], alerts[5]):
        bad["annotations"]["summary"] = "unheard of"
    answer = alertmanager.post(notification(*alerts))
    assert told(answer) == [("alerts/2", "source_item_refused"), ("alerts/5", "source_item_refused")]
    assert answer.json()["accepted"] == 5
    assert seen() == {f"Fault{number}" for number in (0, 1, 3, 4, 6)}
    source = Source.objects.get(pk=alertmanager.source.pk)
    assert (source.accepted, source.rejected, source.error["code"]) == (5, 2, "source_item_refused")
    again = alertmanager.post(notification(*alerts))
    assert (again.json()["accepted"], again.json()["duplicates"], len(told(again))) == (0, 5, 2)


@pytest.mark.usefixtures("refusing")
def test_what_the_database_refuses_does_not_stop_a_source_that_is_read(
    east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    source = add(east, "prometheus", now=now, url=f"{stand_ins.url}/prometheus", query="bad_gpus")

    def series(name: str) -> dict[str, Any]:
        return {"metric": {"__name__": name, "node": "gpu-1", "summary": name}, "value": [now.timestamp(), "1"]}

    answer = {"status": "success", "data": {"resultType": "vector", "result": [series("unheard of"), series("Good")]}}
    empty = {"status": "success", "data": {"resultType": "vector", "result": []}}
    stand_ins.troubles.extend(Answered(body=json.dumps(body).encode()) for body in (empty, answer))
    read = pull(source, at=now)
    assert (seen(), read.attempts, read.error["code"]) == ({"Good"}, 0, "source_item_refused")
    assert "unheard of" in " ".join(read.cursor["shown"])  # it is not read again and again
