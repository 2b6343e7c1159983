"""Invariants 25 to 28: the pods that a drain may evict, its time limit, and its end state."""

from datetime import timedelta

import pytest

from kcover_portal.rescue import services
from tests.codes import code_of
from tests.portal.rescue.worker_kills import kill_at, work
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db


def with_pod(world: World, *, refuses: bool = False) -> World:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    if refuses:
        world.kube.add_budget("default", "keep", match={"app": "train"})
    return world


def test_inv_24_daemonset_and_mirror_pods_stay(world: World) -> None:
    world.kube.add_pod("kube-system", "ds", node=NODE, owner_kind="DaemonSet")
    world.kube.add_pod("kube-system", "mirror", node=NODE, mirror=True)
    with_pod(world).fault(62)
    world.until("done", step="drain")
    assert [call.name for call in world.kube.called("evict")] == ["train-0"]


def test_inv_25_a_pod_replaced_between_plan_and_eviction_is_not_touched(world: World) -> None:
    with_pod(world)
    list_pods = world.kube.list_pods

    def replaced_at_once(**query: object) -> object:
        found = list_pods(**query)
        world.kube.list_pods = list_pods
        world.kube.replace_pod("default", "train-0")
        return found

    world.kube.list_pods = replaced_at_once
    world.fault(62)
    world.work()
    [pod] = [pod for pod in list_pods(node=NODE) if pod.name == "train-0"]
    assert len(world.kube.called("evict")) == 1
    assert not pod.deleting


def test_inv_26_the_wait_counts_from_a_stored_time_whatever_dies(world: World) -> None:
    """Workers die and restart for nine of the ten minutes; the tenth is the last all the same."""
    with_pod(world, refuses=True).fault(62)
    world.work()
    started = world.step("drain").started_at
    while world.now - started < timedelta(minutes=9):
        kill_at(world.kube, "evict", call=1, after=False)
        world.now += timedelta(seconds=20)
        work(world)
    world.until("held", seconds=10)
    step = world.step("drain")
    assert step.started_at == started
    assert timedelta(minutes=10) <= step.finished_at - started <= timedelta(minutes=11)


def test_inv_27_pods_that_have_ended_do_not_block(world: World) -> None:
    for phase in ("Succeeded", "Failed"):
        world.kube.add_pod("default", phase.lower(), node=NODE, phase=phase)
    world.fault(62)
    world.until("done", step="drain")
    assert world.kube.called("evict") == []
    assert code_of(world.step("drain").because) == "no_pods_to_evict"


@pytest.mark.parametrize(
    ("asked", "state"), [("hold", "failed"), ("proceed", "done"), ("force", "done")], ids=["hold", "proceed", "force"]
)
def test_inv_28_a_drain_that_fails_ends_as_its_rule_says(db: None, asked: str, state: str) -> None:
    policy = HEAL.replace("rescue.ksyun.com", "kcover.io").replace(
        "priority: 10", f"priority: 10\n      onDrainTimeout: {asked}"
    )
    world = with_pod(World(policy=policy), refuses=True)
    world.fault(62)
    world.until(state, step="drain", seconds=20)
    assert world.kube.get_node(NODE).unschedulable
    left = [pod.name for pod in world.kube.list_pods(node=NODE) if pod.name == "train-0"]
    assert left == ([] if asked == "force" else ["train-0"])
    assert (world.rescue().state == "held") == (asked == "hold")
    world.uninstall()


@pytest.mark.parametrize(("asked", "state"), [("hold", "failed"), ("proceed", "done"), ("force", "done")])
def test_inv_28_a_drain_of_a_rule_of_kce_ends_as_its_cluster_says(db: None, asked: str, state: str) -> None:
    world = with_pod(World(policy=HEAL), refuses=True)
    type(world.cluster).objects.update(on_drain_timeout=asked)
    world.fault(62)
    world.until(state, step="drain", seconds=20)
    assert world.kube.get_node(NODE).unschedulable
    left = [pod.name for pod in world.kube.list_pods(node=NODE) if pod.name == "train-0"]
    assert left == ([] if asked == "force" else ["train-0"])
    assert (world.rescue().state == "held") == (asked == "hold")
    world.uninstall()


def test_inv_28_after_a_held_drain_a_person_gives_the_node_back(world: World) -> None:
    with_pod(world, refuses=True).fault(62)
    world.until("held", seconds=30)
    services.request(world.node(), "release", actor="user:ann", reason="the job is worth more", now=world.now)
    world.work()
    assert not world.kube.get_node(NODE).unschedulable
    assert len(world.kube.called("ensure_job")) == 0
