"""A pod whose owner reference cannot be resolved, on a node that is to be rescued."""

import pytest

from kcover_portal.kube import port
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job, deleted
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
HOSTILE = "a%b"  # the API server answers 400 to this name


@pytest.fixture
def world():
    one = World(policy=POLICY, nodes=3, fake=WithOperators)
    one.cluster.guards = GUARDS
    one.cluster.save()
    yield one
    one.uninstall()


def test_a_hostile_pod_does_not_delay_the_rescue_of_its_node(world: World) -> None:
    add_job(world, "a-hostile", "gpu-1", protected="")
    add_job(world, "llm", "gpu-1", "gpu-2")
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": HOSTILE, "uid": "u", "controller": True}
    world.kube.objects.merge("PyTorchJob", "train", "a-hostile", {"metadata": {"ownerReferences": [reference]}})
    answer = port.RefusedByServer(f"GET …/pytorchjobs/{HOSTILE}: 400 BadRequest: Name parameter invalid")
    world.kube.fail("workload", answer, times=1_000, name=HOSTILE)
    world.fault(62)
    world.until("succeeded")
    assert deleted(world) == ["llm-0", "llm-1"]


@pytest.mark.parametrize(("protected", "state"), [("", "succeeded"), ("pod", "failed")])
def test_a_job_that_cannot_be_read_ends_the_rescue_only_if_its_pod_consents(
    world: World, protected: str, state: str
) -> None:
    add_job(world, "a-hostile", "gpu-1", protected=protected)
    add_job(world, "llm", "gpu-1", "gpu-2")
    world.kube.fail("workload", port.RefusedByServer("403 Forbidden"), times=1_000, name="a-hostile")
    world.fault(62)
    world.until(state)
    assert deleted(world) == (["llm-0", "llm-1"] if state == "succeeded" else [])
