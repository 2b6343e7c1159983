"""What closing a storm would do, over REST."""

from collections.abc import Iterator

import pytest
from django.utils import timezone

from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from tests.portal.api.conftest import caller, problem
from tests.portal.rescue.world import HEAL, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy=HEAL, nodes=10)
    made.now = timezone.now()
    guards = {"storm": {"enabled": True}, "rate": {"enabled": False}}
    cluster_settings.set_guards(made.cluster, guards, actor="user:t", reason="t", now=made.now)
    yield made
    made.uninstall()


def test_the_preview_of_closing_a_storm_shows_only_nodes_that_the_caller_sees(world: World) -> None:
    for number in (1, 2, 3):
        world.fault(62, node=f"gpu-{number}")
    world.work()
    world.pass_time(600)
    storm = Incident.objects.get(kind="storm")
    viewer = caller("viewer", world.now, cluster=world.cluster)
    found = viewer.get(f"incidents/{storm.pk}/after-close").json()
    assert [(one["node"], one["held_back_reasons"], one["needs_approval"]) for one in found["continued"]] == [
        ("gpu-1", [], False),
        ("gpu-2", [], False),
    ]
    assert [one["rescue"] for one in found["continued"]] == [world.rescue(f"gpu-{number}").pk for number in (1, 2)]
    assert [step["name"] for step in found["continued"][0]["steps"]][:2] == ["drain", "reboot"]
    (decided,) = found["decided"]
    assert (decided["node"], decided["answer"]) == ("gpu-3", "rescue")
    assert [step["name"] for step in decided["steps"]][:2] == ["cordon", "drain"]
    assert decided["because_reasons"][0]["code"] == "rule_matches"
    fault = Incident.objects.get(node__name="gpu-3")
    nothing = {"continued": [], "decided": []}
    assert viewer.get(f"incidents/{fault.pk}/after-close").json() == nothing
    Incident.objects.filter(pk=storm.pk).update(state="closed")
    assert viewer.get(f"incidents/{storm.pk}/after-close").json() == nothing
    assert problem(viewer.get("incidents/999/after-close"), 404)["code"]
