"""The page of a node on probation, and the dialog that ends the probation."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from kcover import reasons
from kcover.nodes.probation_mark import LABEL
from kcover_portal.rescue.queries import probations
from tests.portal.console.conftest import Person
from tests.portal.rescue.test_probation import POLICY, returned
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
PAGE = f"/nodes/c1/{NODE}/"
END = f"{PAGE}probation/end/"


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy=POLICY, nodes=2)
    made.now = timezone.now()
    made.report()
    yield made
    made.uninstall()


def shows_end(client: Client) -> bool:
    return END in client.get(PAGE).content.decode()


def test_an_operator_ends_a_probation_with_a_reason(world: World, person: Person) -> None:
    operator, viewer = person("operator"), person("viewer")
    assert not shows_end(operator)
    row = returned(world)
    assert (shows_end(operator), shows_end(viewer)) == (True, False)
    assert operator.get(PAGE).context["probation"] == row
    assert (viewer.get(END).status_code, viewer.post(END, {"reason": "why"}).status_code) == (403, 403)
    assert operator.get(END).status_code == 200
    assert operator.post(END, {"reason": ""}).status_code == 422
    assert operator.post(END, {"reason": "work waits"}).status_code == 302
    assert not shows_end(operator)
    world.now = timezone.now() + timedelta(seconds=1)
    world.work()
    assert LABEL not in world.kube.get_node(NODE).labels
    assert operator.get(PAGE).context["probation"] is None
    refused = operator.post(END, {"reason": "again"})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["__all__"])


def test_the_list_marks_and_filters_nodes_on_probation(world: World, person: Person) -> None:
    returned(world)
    viewer = person("viewer")
    shown = viewer.get("/nodes/?probation=true").context["rows"]
    assert [node.name for node, *_ in shown] == [NODE]
    assert len(viewer.get("/nodes/").context["rows"]) == 2


def test_the_page_shows_why_the_probation_lasts_so_long(world: World, person: Person) -> None:
    row = returned(world, 48)
    assert probations.on_node(world.node()) == row
    page = person("viewer").get(PAGE).content.decode()
    assert str(reasons.from_json(row.because)).split(".")[0] in page


def test_a_policy_shows_its_probations(world: World, person: Person) -> None:
    page = person("viewer").get("/policies/returns/").content.decode()
    assert "probation 1day" in page
    assert "probation of a chosen length" in page
