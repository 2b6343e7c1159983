"""Drain, restart and stop wait for the next checkpoint of jobs, up to the rule's limit; never for a fatal fault."""

from datetime import datetime, timedelta

import pytest

from kcover.faults import catalog
from kcover.faults.fault import Fault
from kcover_portal.workloads.training_jobs import CHECKPOINT
from tests.codes import code_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, add_job, deleted
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
MILD, FATAL = 63, 62
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: kind}
spec:
  rules:
    - priority: 10
      errorCode: ["62", "63"]
      actions: [{name: cordon}, %s{name: drain, attribute: {waittime: 5min, checkpointWait: 10min}}]
"""


def make(action: str = "") -> World:
    world = World(policy=POLICY % (f"{{name: {action}}}, " if action else ""), nodes=2, fake=WithOperators)
    world.cluster.guards = GUARDS
    world.cluster.save()
    add_job(world, "llm", NODE, "gpu-2")
    checkpoint(world, "2026-11-21T07:00:00Z")
    return world


@pytest.fixture
def world():
    one = make()
    yield one
    one.uninstall()


def checkpoint(world: World, at: str, name: str = "llm") -> None:
    metadata = {"metadata": {"annotations": {CHECKPOINT: at}}}
    world.kube.objects.merge("PyTorchJob", "train", name, metadata)


def evicted(world: World) -> set[str]:
    return {call.name for call in world.kube.called("evict")}


def test_the_codes_are_as_severe_as_these_tests_need() -> None:
    assert (catalog.severity("xid", FATAL), catalog.severity("xid", MILD) == "fatal") == ("fatal", False)


def test_a_drain_waits_for_the_next_checkpoint(world: World) -> None:
    world.fault(MILD)
    for _ in range(5):
        world.pass_time()
    assert evicted(world) == set()
    assert world.kube.get_node(NODE).unschedulable
    step = world.step("drain")
    assert (step.state, code_of(step.because)) == ("waiting", "checkpoint_waits")
    checkpoint(world, "2026-11-20T23:30:00-08:00")  # half past seven: another zone
    world.until("succeeded")
    assert evicted(world) == {"llm-0"}


def test_the_wait_ends_with_the_limit_and_does_not_count_for_the_drain(world: World) -> None:
    world.fault(MILD)
    world.work()
    started = world.now
    world.until("done", step="drain", seconds=30)
    assert timedelta(minutes=10) <= world.now - started < timedelta(minutes=12)
    progress = world.step("drain").progress
    over = datetime.fromisoformat(progress["checkpoint_over"])
    assert over - datetime.fromisoformat(progress["checkpoint_since"]) >= timedelta(minutes=10)


def test_a_fatal_fault_never_waits(world: World) -> None:
    world.fault(FATAL)
    world.work()
    assert evicted(world) == {"llm-0"}


def test_a_fatal_fault_ends_the_wait(world: World) -> None:
    world.fault(MILD)
    world.pass_time()
    assert evicted(world) == set()
    world.report(Fault(kind="xid", code=FATAL, pci=PCI, source="kmsg"))
    world.pass_time(2)
    world.pass_time(2)
    assert evicted(world) == {"llm-0"}


@pytest.mark.parametrize("text", ["", "soon", "2026-11-21T07:00:00", "0001-01-01T00:00:00+23:59", "9" * 5000])
def test_a_job_without_a_checkpoint_time_is_not_waited_for(world: World, text: str) -> None:
    checkpoint(world, text)
    world.fault(MILD)
    for _ in range(2):
        world.pass_time(2)
    assert bool(evicted(world)) is not text.startswith("0001")


def test_a_job_that_ends_is_not_waited_for(world: World) -> None:
    world.fault(MILD)
    world.pass_time()
    world.kube.remove_pod("train", "llm-0")
    world.until("succeeded")


@pytest.mark.parametrize("action", ["restartJobs", "stopJobs"])
def test_jobs_are_restarted_or_stopped_after_their_checkpoint_and_the_drain_waits_no_more(action: str) -> None:
    world = make(action)
    try:
        add_job(world, "free", NODE, protected="")
        checkpoint(world, "2026-11-21T07:00:00Z", "free")
        world.fault(MILD)
        for _ in range(3):
            world.pass_time(2)
        assert (deleted(world), world.kube.called("suspend_workload")) == ([], [])
        for name in ("llm", "free"):
            checkpoint(world, "2026-11-21T07:30:00Z", name)
        started = world.now
        world.until("succeeded")
        assert world.now - started < timedelta(minutes=1)
        assert evicted(world) >= {"free-0"}
    finally:
        world.uninstall()


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_worker_that_dies_does_not_restart_the_wait(world: World, call: int) -> None:
    worker_kills.kill_at(world.kube, "list_pods", call=call, after=False)
    world.fault(MILD)
    died = 0
    for _ in range(12):
        died += worker_kills.work(world)
        world.now += timedelta(seconds=2)
        world.kube.finish_deletions()
        world.sync()
    assert died == 1
    since = world.step("drain").progress["checkpoint_since"]
    world.until("succeeded", seconds=30)
    assert world.step("drain").progress["checkpoint_since"] == since
