"""The simulator on which plans of pair tests run."""

from collections.abc import Iterator

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans
from tests.contract import over_http
from tests.portal.jobs.sim_world import Simulated, SimWorld
from tests.portal.preflight.pair_world import clean


@pytest.fixture(scope="module")
def simulated() -> Iterator[tuple[Simulated, over_http.SimulatorRig]]:
    made = Simulated(nodes=8)
    with over_http.simulator(made.objects) as rig:
        yield made, rig


@pytest.fixture
def sim(simulated: tuple[Simulated, over_http.SimulatorRig], db: None) -> Iterator[SimWorld]:
    made = SimWorld(*simulated)
    Cluster.objects.update(nccl_image="pytorch:2")
    made.cluster.refresh_from_db()
    yield made
    for host in simulated[0].built.machines.values():
        host.speed = 1.0
    for plan in PairPlan.objects.filter(state="running"):
        pair_plans.cancel(plan, actor="user:ann", reason="", now=made.now)
    Cluster.objects.update(mode="enforce", acted_on_by="")
    clean(made)
    made.uninstall()
