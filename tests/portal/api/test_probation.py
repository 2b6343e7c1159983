"""The probation of a node over REST: its basis, the filter of the list, its early end."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from kcover.nodes.probation_mark import LABEL
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.queries import probations
from tests.portal.api.conftest import Api, person, problem
from tests.portal.rescue.test_probation import POLICY, returned
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
PATH = f"nodes/c1/{NODE}/probation"


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy=POLICY, nodes=2)
    made.now = timezone.now()
    made.report()
    yield made
    made.uninstall()


def test_a_node_shows_its_probation_and_the_basis_of_its_length(world: World, viewer: Api) -> None:
    row = returned(world)
    shown = viewer.get(PATH).json()
    assert (shown["id"], shown["cluster"], shown["node"], shown["rescue"]) == (row.pk, "c1", NODE, row.rescue_id)
    assert (shown["seconds"], shown["because_reason"]["code"], shown["ends_because"]) == (
        *(86_400, "probation_by_rule"),
        None,
    )
    node = viewer.get(f"nodes/c1/{NODE}").json()
    assert node["probation_until"] == shown["until"]
    assert [one["name"] for one in viewer.get("nodes?probation=true").json()["results"]] == [NODE]
    assert [one["name"] for one in viewer.get("nodes?probation=false").json()["results"]] == ["gpu-2"]


def test_a_node_that_is_on_none_has_none(world: World, viewer: Api, operator: Api) -> None:
    assert problem(viewer.get(PATH), 404)["code"] == "no_probation"
    assert viewer.get(f"nodes/c1/{NODE}").json()["probation_until"] is None
    assert problem(operator.post(f"{PATH}/end", {"reason": "why"}), 409)["code"] == "no_probation"
    assert operator.get("nodes/c1/gpu-9/probation").status_code == 404


def test_an_operator_ends_it_early(world: World, viewer: Api, operator: Api) -> None:
    row = returned(world)
    problem(viewer.post(f"{PATH}/end", {"reason": "why"}), 403)
    problem(operator.post(f"{PATH}/end", {}), 400)
    problem(operator.post(f"{PATH}/end", {"reason": "why", "more": 1}), 400)
    assert probations.on_node(world.node()).end_because == {}
    answer = operator.post(f"{PATH}/end", {"reason": "all work waits"})
    assert (answer.status_code, answer.json()["id"]) == (202, row.pk)
    assert "all work waits" in answer.json()["ends_because"]
    world.now = timezone.now() + timedelta(seconds=1)
    world.work()
    assert LABEL not in world.kube.get_node(NODE).labels
    assert problem(operator.get(PATH), 404)["code"] == "no_probation"
    [entry] = Entry.objects.filter(verb="probation.end_requested")
    assert entry.data["reason"] == "all work waits"


def test_people_of_other_clusters_cannot_see_or_end_a_probation(world: World, west: Cluster, now: datetime) -> None:
    returned(world)
    other = person("wilma", "operator", now, cluster=west)
    assert other.get(PATH).status_code == 404
    assert other.post(f"{PATH}/end", {"reason": "why"}).status_code == 404
