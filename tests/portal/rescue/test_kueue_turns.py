"""Kueue replaces one failed node of a workload: two of its nodes are never drained at once unless the rule says so."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.kube import port
from kcover_portal.workloads.training_jobs import PROTECTED
from tests.codes import code_of, codes_of
from tests.portal.rescue.operators import WithOperators
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, KUBEFLOW
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
OTHER = "gpu-2"
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: move}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: cordon}, %s{name: drain, attribute: {waittime: 5min%s}}]
"""
QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}


def make(*, before: str = "", more: str = "") -> World:
    world = World(policy=POLICY % (before, more), nodes=4, fake=WithOperators)
    world.cluster.guards = GUARDS
    world.cluster.save()
    return world


@pytest.fixture
def world() -> Iterator[World]:
    one = make()
    yield one
    one.uninstall()


def add_job(world: World, *nodes: str, name: str = "llm", queued: bool = True, **labels: str) -> None:
    """A job in a queue of Kueue with one pod a node."""
    world.kube.add_workload("PyTorchJob", "train", name, labels=QUEUE if queued else {})
    add_pods(world, *nodes, name=name, **{KUBEFLOW: name, **labels})


def add_pods(world: World, *nodes: str, name: str = "llm", **labels: str) -> None:
    for node in nodes:
        of = {"node": node, "owner_kind": "PyTorchJob", "owner_name": name, "gpus": 8}
        world.kube.add_pod("train", f"{name}-{node}", labels=labels, **of)


def evicted(world: World) -> set[str]:
    return {call.name for call in world.kube.called("evict")}


def break_both(world: World) -> None:
    for node in (NODE, OTHER):
        world.fault(62, node=node)
    world.work()


def last_drain(world: World) -> str:
    """The code of the drain of the second node."""
    return code_of(world.step("drain", OTHER).because)


@pytest.mark.parametrize("how", ["queue", "placed", "group"])
def test_the_second_node_of_a_workload_waits_until_its_pods_run_again(world: World, how: str) -> None:
    if how == "group":
        add_pods(world, NODE, OTHER, **{port.KUEUE_POD_GROUP_LABEL: "llm"})
    else:
        labels = {port.KUEUE_TAS_LABEL: "true"} if how == "placed" else {}
        add_job(world, NODE, OTHER, queued=how == "queue", **labels)
    break_both(world)
    assert evicted(world) == {f"llm-{NODE}"}
    assert last_drain(world) == "workload_drained"
    world.kube.full = True
    world.pass_time(2)
    world.pass_time(2)
    assert world.rescue().state == "succeeded"
    assert last_drain(world) == "workload_not_whole"
    world.kube.full = False
    world.kube.objects.remove("Pod", "train", f"llm-{NODE}")
    add_pods(world, "gpu-3", **world.kube.list_pods(node=OTHER)[0].labels)
    world.pass_time(2)
    assert evicted(world) == {f"llm-{NODE}", f"llm-{OTHER}"}
    for _ in range(3):
        world.pass_time(2)
    assert world.rescue(OTHER).state == "succeeded"


def test_a_workload_that_does_not_come_back_is_held_for_a_person(world: World) -> None:
    add_job(world, NODE, OTHER)
    world.kube.broken = frozenset({"llm"})
    break_both(world)
    world.pass_time(2)
    world.pass_time(2)
    world.pass_time(timedelta(minutes=5).total_seconds())
    assert world.rescue(OTHER).state == "held"
    assert codes_of(world.step("drain", OTHER).because) == ["workload_not_whole", "workload_turn_late"]
    assert evicted(world) == {f"llm-{NODE}"}


def test_the_wait_does_not_count_for_the_drain(world: World) -> None:
    add_job(world, NODE, OTHER)
    world.kube.broken = frozenset({"llm"})
    break_both(world)
    world.pass_time(2)
    world.pass_time(240)
    add_pods(world, "gpu-3", **{KUBEFLOW: "llm"})
    world.kube.set_ready(OTHER, False)  # its kubelet ends nothing any more
    world.pass_time(5)
    world.pass_time(120)
    assert (world.rescue(OTHER).state, last_drain(world)) == ("waiting", "drain_leaving")
    world.pass_time(240)
    assert (world.rescue(OTHER).state, last_drain(world)) == ("held", "drain_timeout")


@pytest.mark.parametrize("how", ["told", "no queue", "two jobs"])
def test_nodes_are_drained_at_once_where_nothing_forbids_it(how: str) -> None:
    world = make(more=', kueueTogether: "true"' if how == "told" else "")
    if how == "two jobs":
        add_job(world, NODE)
        add_job(world, OTHER, name="other")
    else:
        add_job(world, NODE, OTHER, queued=how == "told")
    break_both(world)
    assert len(evicted(world)) == 2
    world.uninstall()


def test_a_job_that_kueue_placed_is_not_restarted_as_a_whole() -> None:
    world = make(before="{name: restartJobs}, ")
    add_job(world, NODE, OTHER, **{port.KUEUE_TAS_LABEL: "true", PROTECTED: "true"})
    world.fault(62)
    world.until("succeeded")
    assert world.step("restart_jobs").why == reasons.both(
        reasons.of("no_protected_job"), reasons.of("jobs_swapped", jobs="train/llm")
    )
    assert (world.kube.called("delete_pod"), evicted(world)) == ([], {f"llm-{NODE}"})
    world.uninstall()


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_concurrent_workers_drain_one_node_of_a_workload(world: World) -> None:
    nodes = [f"gpu-{number}" for number in range(1, 5)]
    add_job(world, *nodes)
    world.break_at_once(nodes)
    assert len(evicted(world)) == 1
    codes = sorted(code_of(world.step("drain", node).because) for node in nodes)
    assert codes == ["drain_leaving", *["workload_drained"] * 3]
