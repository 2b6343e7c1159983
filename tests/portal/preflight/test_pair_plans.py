"""What a plan is asked for, and what its Jobs ask for."""

from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_jobs, pair_plans
from kcover_portal.preflight.services.pair_plans import PlanRefused
from tests.portal.jobs.sim_world import SimWorld
from tests.portal.preflight.pair_world import NAMESPACE, begin, names, work

pytestmark = pytest.mark.django_db


def test_nodes_of_a_running_plan_are_refused(sim: SimWorld) -> None:
    first, second, third, *_ = names(sim)
    begin(sim, first, second)
    with pytest.raises(PlanRefused) as refused:
        begin(sim, second, third)
    assert refused.value.reason.code == "pair_nodes_in_plan"


@pytest.mark.parametrize(
    ("wish", "field", "code"),
    [
        ({"rounds": 0}, "rounds", "pair_rounds"),
        ({"rounds": 16}, "rounds", "pair_rounds"),
        ({"rule": "mine"}, "rule", "pair_rule"),
        ({"threshold": 0.0}, "threshold", "pair_threshold"),
        ({"threshold": float("nan")}, "threshold", "pair_threshold"),
    ],
)
def test_an_invalid_wish_is_refused(sim: SimWorld, wish: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(FieldError) as refused:
        begin(sim, **wish)
    assert (refused.value.field, refused.value.reason.code) == (field, code)


def test_excluded_nodes_and_single_nodes_are_refused(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    with pytest.raises(FieldError) as refused:
        begin(sim, first)
    assert refused.value.reason.code == "pair_nodes"
    Node.objects.filter(name=second).update(labels={"kcover.io/exclude": "true"})
    with pytest.raises(FieldError) as refused:
        begin(sim, first, second)
    assert refused.value.reason.code == "pair_nodes_excluded"


def test_a_cluster_without_an_image_runs_no_tests(sim: SimWorld) -> None:
    Cluster.objects.update(nccl_image="")
    sim.cluster.refresh_from_db()
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_no_image"


def test_a_cluster_runs_few_plans_at_once(sim: SimWorld) -> None:
    running = {"cluster": sim.cluster, "rounds": 1, "threshold": 1, "gpus": 8, "requested_at": sim.now}
    PairPlan.objects.bulk_create(PairPlan(**running) for _ in range(pair_plans.MAX_RUNNING_PLANS))
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_plans_full"


def test_the_jobs_ask_for_gpus_and_the_network_of_the_node(sim: SimWorld) -> None:
    cluster_settings.set_cluster(
        sim.cluster, {"nccl_resources": "rdma/hca=1"}, actor="user:ann", reason="", now=sim.now
    )
    plan = begin(sim)
    work(sim, plan)
    found = sim.rig.inside(lambda: list(sim.simulated.objects.list("Job", namespace=NAMESPACE)))
    pods = [job["spec"]["template"]["spec"] for job in found]
    assert all(pod["hostNetwork"] and not pod["containers"][0]["securityContext"]["privileged"] for pod in pods)
    assert {str(pod["containers"][0]["resources"]["limits"]) for pod in pods} == {
        str({"nvidia.com/gpu": str(plan.gpus), "rdma/hca": "1"})
    }
    assert {pod["nodeName"] for pod in pods} == set(names(sim))
    assert all(pod["containers"][0]["command"][2] == pair_jobs.PROGRAM for pod in pods)
    pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)


@pytest.mark.parametrize("value", ["rdma/hca", "rdma/hca=0", "=1", "a b=1"])
def test_bad_resources_are_refused(sim: SimWorld, value: str) -> None:
    with pytest.raises(FieldError) as refused:
        cluster_settings.set_cluster(sim.cluster, {"nccl_resources": value}, actor="user:ann", reason="", now=sim.now)
    assert (refused.value.field, refused.value.reason.code) == ("nccl_resources", "pair_resources")
