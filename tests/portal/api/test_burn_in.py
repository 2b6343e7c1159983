"""Burn-ins over REST: the settings of the cluster, and the nodes before their first work."""

from collections.abc import Iterator

import pytest

from kcover.nodes import readiness_taint
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from tests.portal.api.conftest import Api, problem
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(nodes=1)
    made.kube.add_node("gpu-2", gpus=8, taints=(port.Taint(*readiness_taint.TAINT),))
    made.sync()
    yield made
    made.uninstall()


def test_a_node_in_its_burn_in_is_filtered_and_shown(world: World, viewer: Api) -> None:
    assert [one["name"] for one in viewer.get("nodes?burn_in=true").json()["results"]] == ["gpu-2"]
    assert [one["name"] for one in viewer.get("nodes?burn_in=false").json()["results"]] == ["gpu-1"]
    assert viewer.get("nodes/c1/gpu-2").json()["not_ready_since"] is not None
    assert viewer.get("nodes/c1/gpu-1").json()["not_ready_since"] is None
    problem(viewer.get("nodes?burn_in=perhaps"), 400)


def test_an_admin_switches_burn_ins_on(world: World, operator: Api, admin: Api) -> None:
    problem(operator.call("patch", "clusters/c1", {"burn_in": "tainted"}), 403)
    assert problem(admin.call("patch", "clusters/c1", {"burn_in": "always"}), 400)["errors"][0]["field"] == "burn_in"
    problem(admin.call("patch", "clusters/c1", {"burn_in_profile": "quick"}), 400)
    shown = admin.call(
        "patch", "clusters/c1", {"burn_in": "new", "burn_in_profile": "full", "reason": "new racks"}
    ).json()
    assert (shown["burn_in"], shown["burn_in_profile"]) == ("new", "full")
    assert Cluster.objects.get().burn_in_new_since is not None
    admin.call("patch", "clusters/c1", {"burn_in": "tainted"})
    assert Cluster.objects.get().burn_in_new_since is None


def test_the_stage_of_a_node_in_its_burn_in(world: World, viewer: Api) -> None:
    world.kube.label_node("gpu-2", {"kcover.io/state": "burn-in"})
    world.sync()
    assert viewer.get("nodes/c1/gpu-2").json()["stage"] == "burn-in"
