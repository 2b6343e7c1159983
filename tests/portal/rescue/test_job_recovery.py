"""The cluster's ``job_recovery`` in rescues that restart jobs: the strictest of it and the modes holds."""

from collections.abc import Iterator

import pytest

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue import services
from kcover_portal.rescue.models import JobRestart
from tests import proofs
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job, deleted
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy=POLICY, nodes=3, fake=WithOperators)
    made.cluster.guards = GUARDS
    made.cluster.save()
    yield made
    made.uninstall()


@pytest.fixture
def job(world: World) -> None:
    """A protected job with a pod on the node that will be faulty."""
    add_job(world, "llm", NODE, "gpu-2")


def recover(world: World, recovery: str) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(job_recovery=recovery)


def recover_before(world: World, verb: str, recovery: str) -> None:
    """An admin sets ``job_recovery`` right before the next call of this verb."""
    real = getattr(world.kube, verb)

    def called(*args: object, **more: object) -> object:
        recover(world, recovery)
        return real(*args, **more)

    setattr(world.kube, verb, called)


@pytest.mark.parametrize("recovery", ["off", "shadow"])
@pytest.mark.usefixtures("job")
def test_inv_48_job_recovery_off_and_shadow_leave_all_jobs_alone(world: World, recovery: str) -> None:
    recover(world, recovery)
    world.fault(62)
    rescue = world.until("succeeded")
    assert deleted(world) == []
    assert not JobRestart.objects.exists()
    assert world.kube.get_node(NODE).unschedulable
    assert world.step("restart_jobs").why == reasons.both(
        reasons.of("job_recovery_forbids", cluster=world.cluster.name, recovery=recovery),
        reasons.of("jobs_left_alone", jobs="train/llm"),
    )
    assert proofs.broken_claim(rescue) == ""


def test_a_node_without_protected_jobs_needs_no_approval(world: World) -> None:
    recover(world, "approve")
    world.fault(62)
    world.until("succeeded")


@pytest.mark.usefixtures("job")
def test_a_person_approves_the_restart(world: World) -> None:
    recover(world, "approve")
    world.fault(62)
    rescue = world.until("held")
    assert deleted(world) == []
    assert (rescue.hold, rescue.gate) == ("approval", world.step("restart_jobs").index)
    services.approve(rescue, actor="user:ann", reason="seen", now=world.now, via="console")
    rescue = world.until("succeeded")
    assert deleted(world) == ["llm-0", "llm-1"]
    assert proofs.broken_claim(rescue) == ""


@pytest.mark.usefixtures("job")
def test_a_setting_changed_between_decision_and_restart_applies(world: World) -> None:
    world.fault(62)
    recover_before(world, "list_pods", "off")
    world.until("succeeded")
    assert deleted(world) == []


@pytest.mark.usefixtures("job")
def test_a_restart_that_has_begun_is_completed(world: World) -> None:
    world.fault(62)
    recover_before(world, "delete_pod", "off")
    world.until("succeeded")
    assert deleted(world) == ["llm-0", "llm-1"]
