"""``GET /needs-person``: what the first page lists, as data."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import reasons
from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.api.v1.rescues import needs_person as door
from kcover_portal.fleet.models import Cluster
from kcover_portal.needs.queries import items
from tests.portal.api.conftest import WATCH_FAILURE, WHY, Api, add_fault, add_node, caller, fields, problem

pytestmark = pytest.mark.django_db


def by_kind(api: Api, query: str = "") -> dict[str, dict[str, Any]]:
    rows = api.get(f"needs-person{query}").json()["results"]
    found = {row["kind"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_each_kind_has_its_rows_and_its_shape_in_the_order_of_the_kinds() -> None:
    assert list(needs_person._ROWS) == list(Need) == list(items._SHAPES)


def test_every_kind_is_listed_with_its_row(waiting: dict[str, str], viewer: Api, now: datetime) -> None:
    found = by_kind(viewer)
    assert list(found) == list(Need)
    assert {kind: row["about"]["id"] for kind, row in found.items()} == waiting
    assert {row["about"]["type"] for row in found.values()} == set(door.TYPES)
    assert {row["cluster"] for row in found.values()} == {"east"}
    assert [found[kind]["node"] for kind in ("approval", "rescue", "incident", "storm")] == [
        *("gpu-1", "gpu-2", "gpu-3"),
        "",
    ]
    assert found["approval"]["until"] is not None
    assert all(row["since"] for row in found.values())
    assert (found["rescue"]["reasons"], found["rescue"]["reason"]) == ([WHY], str(reasons.from_json(WHY)))
    assert (found["watch"]["reasons"], found["watch"]["reason"]) == (
        [WATCH_FAILURE.to_json()],
        str(WATCH_FAILURE),
    )


def test_the_numbers_are_those_of_the_metrics(waiting: dict[str, str], viewer: Api, now: datetime) -> None:
    counts = viewer.get("needs-person").json()["counts"]
    known = needs_person.counts(list(Cluster.objects.all()), now=now)
    assert counts == {kind: known["east", kind] for kind in Need}


def test_rows_beyond_the_list_limit_are_counted(
    waiting: dict[str, str], viewer: Api, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_LISTED", 1)
    later = add_fault(add_node(Cluster.objects.get(name="east"), "gpu-4", now), now + timedelta(hours=1))
    with CaptureQueriesContext(connection) as asked:
        body = viewer.get("needs-person").json()
    assert (body["count"], body["counts"]["incident"], len(body["results"])) == (11, 2, 10)
    assert str(later.pk) not in [row["about"]["id"] for row in body["results"] if row["kind"] == "incident"]
    assert len(asked) < 30


def test_only_visible_clusters_are_listed(waiting: dict[str, str], west: Cluster, viewer: Api, now: datetime) -> None:
    api = caller("viewer", now, cluster=west)
    assert api.get("needs-person").json() == {"count": 0, "counts": dict.fromkeys(Need, 0), "results": []}
    problem(api.get("needs-person?cluster=east"), 404)
    assert by_kind(viewer, "?cluster=west") == {}
    assert set(by_kind(viewer, "?cluster=east")) == set(Need)
    assert "nonsense" in fields(viewer.get("needs-person?nonsense=1"))
    problem(Api().get("needs-person"), 401)
