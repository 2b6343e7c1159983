"""``GET /standbys``: spares, assignments, shortages."""

from datetime import datetime

import pytest

from kcover import reasons
from kcover.decisions import standby
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Assignment, Step
from tests.portal.api.conftest import Api, add_node, add_story, caller, fields, problem

pytestmark = pytest.mark.django_db
SPARE = {standby.LABEL: "true", standby.PROOF: "true"}


def test_spares_assignments_and_shortages(node: Node, west: Cluster, viewer: Api, now: datetime) -> None:
    rescue = add_story(node, now)
    free = add_node(node.cluster, "spare-1", datetime.now(now.tzinfo), labels=SPARE)
    ill = add_node(node.cluster, "spare-2", datetime.now(now.tzinfo), labels=SPARE, ready=False)
    busy = add_node(west, "spare-3", datetime.now(now.tzinfo), labels={})
    Assignment.objects.create(spare=busy, origin=node, rescue=rescue, state="active", reserved_at=now)
    Step.objects.create(
        rescue=rescue,
        index=9,
        name="standby",
        state="done",
        progress={"shortage": True},
        because=reasons.of("standby_shortage", standbys=0).to_json(),
        finished_at=now,
    )

    found = viewer.get("standbys").json()

    assert [(one["node"], one["free"], one["because"]) for one in found["spares"]] == [
        (free.name, True, ""),
        (ill.name, False, "Standby spare-2 is not Ready."),
    ]
    assert [(one["cluster"], one["spare"], one["origin"], one["state"]) for one in found["assignments"]] == [
        ("west", "spare-3", "gpu-1", "active")
    ]
    assert [(one["rescue"], one["node"], one["because"]) for one in found["shortages"]] == [
        (rescue.pk, "gpu-1", "None of 0 standbys is available. The plan continues without one.")
    ]
    assert viewer.get("standbys?cluster=west").json()["spares"] == []


@pytest.mark.parametrize(
    ("query", "named"),
    [("state=ready", ["spare-1"]), ("state=unfit", ["other-2"]), ("q=SPARE", ["spare-1"]), ("q=e&state=reserved", [])],
)
def test_spares_are_found_by_state_and_name(
    node: Node, viewer: Api, now: datetime, query: str, named: list[str]
) -> None:
    add_node(node.cluster, "spare-1", datetime.now(now.tzinfo), labels=SPARE)
    add_node(node.cluster, "other-2", datetime.now(now.tzinfo), labels=SPARE, ready=False)
    assert [one["node"] for one in viewer.get(f"standbys?{query}").json()["spares"]] == named
    assert "state" in fields(viewer.get("standbys?state=busy"))


def test_only_standbys_of_visible_clusters_are_listed(node: Node, west: Cluster, now: datetime) -> None:
    add_node(node.cluster, "spare-1", now, labels=SPARE)
    add_node(west, "spare-2", now, labels=SPARE)
    api = caller("viewer", now, cluster=west)
    assert [one["node"] for one in api.get("standbys").json()["spares"]] == ["spare-2"]
    problem(api.get("standbys?cluster=east"), 404)
    assert "nonsense" in fields(api.get("standbys?nonsense=1"))
    problem(Api().get("standbys"), 401)
