"""Plans of pair tests on the simulator's Jobs and kubelets, over HTTP, with a clock moved by hand."""

from typing import Any

from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import node_selection
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans, pair_runs
from kcover_portal.preflight.services.pair_plans import Wish
from tests.portal.jobs.sim_world import SimWorld

NAMESPACE = "kcover-preflight"


def names(sim: SimWorld) -> list[str]:
    return list(Node.objects.filter(cluster=sim.cluster).order_by("name").values_list("name", flat=True))


def begin(sim: SimWorld, *hosts: str, **wish: Any) -> PairPlan:
    nodes = node_selection.nodes(sim.cluster, hosts=hosts)
    return pair_plans.begin(sim.cluster, nodes, Wish(**wish), actor="user:ann", now=sim.now)


def work(sim: SimWorld, plan: PairPlan) -> None:
    pair_runs.advance(plan.pk, clock=lambda: sim.now)
    plan.refresh_from_db()


def clean(sim: SimWorld) -> None:
    """The workers go on until no Job of an ended plan is left."""
    for _ in range(20):
        for plan in PairPlan.objects.filter(cleaned=False).exclude(state="running"):
            work(sim, plan)
        sim.pass_time(10)
    assert jobs(sim) == 0


def finish(sim: SimWorld, plan: PairPlan, *, seconds: int = 600) -> PairPlan:
    for _ in range(seconds // 2):
        work(sim, plan)
        if plan.state != "running":
            return plan
        sim.pass_time(2)
    raise AssertionError("the plan does not end")


def slow(sim: SimWorld, name: str, speed: float = 0.6) -> None:
    sim.simulated.built.machines[name].speed = speed


def jobs(sim: SimWorld) -> int:
    return len(sim.rig.inside(lambda: list(sim.simulated.objects.list("Job", namespace=NAMESPACE))))
