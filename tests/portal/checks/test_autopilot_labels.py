"""Autopilot's labels: only if enabled, one patch, only on change; only invasive runs write EVICT and TESTING."""

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.checks import autopilot
from kcover.faults.fault import Check
from kcover_portal.checks import services as check_runs, tasks
from kcover_portal.checks.models import CheckRun
from kcover_portal.checks.services import autopilot_labels
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import CheckResult, Cluster, Node
from kcover_portal.fleet.services import cluster_settings, node_selection
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.models import Mode
from tests.portal.fleet.real_agent import RealAgent
from tests.portal.rescue import agents
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
HEALTH = autopilot.GPU_HEALTH


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=2)
    made.cluster.autopilot_labels = True
    made.cluster.save()
    for number in (1, 2):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def result(world: World, status: str, *, node: str = "gpu-1", name: str = "pciebw", device: str = "GPU-0") -> None:
    RealAgent(world, node).tells(Check(name=name, status=status, device=device))


def write(world: World) -> int:
    cluster = Cluster.objects.get(pk=world.cluster.pk)
    written = autopilot_labels.write(cluster, clock=world.clock, rng=random.Random(1))
    world.sync()
    return written


def label(world: World, node: str = "gpu-1") -> str | None:
    return world.kube.get_node(node).labels.get(HEALTH)


def patches(world: World) -> int:
    return len([call for call in world.kube.calls if call.verb == "apply_node" and call.wrote])


def test_a_label_follows_the_periodic_results_and_is_written_on_change_only(world: World) -> None:
    result(world, "pass")
    result(world, "fail", node="gpu-2", name="ping")  # a peer is no GPU
    assert (write(world), label(world), label(world, "gpu-2")) == (1, "PASS", None)
    assert (write(world), patches(world)) == (0, 1)
    result(world, "fail", device="GPU-1")
    assert (write(world), label(world)) == (1, "WARN")
    result(world, "error", device="GPU-1")
    assert (write(world), label(world)) == (1, "PASS")
    assert patches(world) == 3
    verbs = [entry.verb for entry in Entry.objects.filter(node="gpu-1", verb__startswith="autopilot").order_by("pk")]
    assert verbs == ["autopilot_labels.begun", "autopilot_labels.done"] * 3
    assert Entry.objects.filter(verb="autopilot_labels.done").latest("pk").data["answer"]["after"] == {HEALTH: "PASS"}


def test_results_that_are_no_longer_reported_set_no_label(world: World) -> None:
    result(world, "fail", name="remapped", device="GPU-old")
    world.now += timedelta(hours=24, seconds=1)
    world.report()
    result(world, "pass", name="remapped")
    write(world)
    assert label(world) == "PASS"
    result(world, "fail", name="dcgm", device="gpu0 PCIe")
    world.now += timedelta(days=3)  # it was not run again
    world.report()
    write(world)
    assert label(world) == "WARN"


def test_a_ring_is_labelled_testing_and_leaves_gpu_results_alone(world: World) -> None:
    result(world, "pass")
    assert (write(world), label(world)) == (1, "PASS")
    for number in (1, 2):
        Node.objects.filter(name=f"gpu-{number}").update(address=f"10.0.0.{number}")
    nodes = node_selection.nodes(world.cluster)
    run = check_runs.begin(world.cluster, nodes, checks=("iperf",), actor="user:ann", now=world.now)
    check_runs.advance(run.pk, now=world.now)
    assert (write(world), label(world), label(world, "gpu-2")) == (2, "TESTING", "TESTING")
    for name in ("gpu-1", "gpu-2"):
        [command] = agents.commands("run_check", name)
        sent = {"name": "iperf", "device": command.args["hosts"][0], "status": "pass", "value": 90.0}
        agents.answers(world, command, checks=[sent])
    check_runs.advance(run.pk, now=world.now)
    write(world)
    assert (label(world), label(world, "gpu-2")) == ("PASS", "")


@pytest.mark.parametrize("kept", ["EVICT", "TESTING"])
def test_periodic_results_never_overwrite_evict_or_testing(world: World, kept: str) -> None:
    result(world, "pass")
    world.kube.label_node("gpu-1", {HEALTH: kept})  # the watch has not told yet
    assert (write(world), label(world)) == (0, kept)
    world.sync()
    begun = Entry.objects.count()
    assert (write(world), label(world), Entry.objects.count()) == (0, kept, begun)


def test_labels_are_off_by_default_and_not_written_in_shadow_or_pause(world: World) -> None:
    result(world, "pass")
    for setting in ({"autopilot_labels": False}, {"mode": "shadow", "autopilot_labels": True}, {"mode": "paused"}):
        cluster_settings.set_cluster(world.cluster, setting, actor="t", reason="", now=world.now)
        assert write(world) == 0
    assert patches(world) == 0
    fleet.resume(cluster=world.cluster, reason="", actor="t", now=world.now, mode="approve")
    assert write(world) == 1
    assert Cluster.objects.create(name="new", created_at=world.now).autopilot_labels is False


def test_a_pause_stops_a_round_in_its_middle(world: World, monkeypatch: Any) -> None:
    result(world, "pass")
    result(world, "pass", node="gpu-2")
    apply = world.kube.apply_node

    def pausing(*args: Any, **named: Any) -> Any:
        Cluster.objects.update(mode=Mode.PAUSED)
        return apply(*args, **named)

    monkeypatch.setattr(world.kube, "apply_node", pausing)
    assert (write(world), patches(world)) == (1, 1)


def test_a_node_that_refuses_its_label_does_not_block_the_other_nodes(world: World) -> None:
    result(world, "pass")
    result(world, "pass", node="gpu-2")
    world.kube.fail("apply_node", port.RefusedByServer("forbidden"), times=9, name="gpu-1")
    assert (write(world), label(world), label(world, "gpu-2")) == (1, None, "PASS")
    assert Entry.objects.filter(verb="autopilot_labels.failed", node="gpu-1").count() == 1
    world.kube.fail("apply_node", port.Unavailable("gone"), times=9)
    assert write(world) == 0


def test_a_round_is_bounded(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(autopilot_labels, "MAX_NODES_PER_ROUND", 1)
    monkeypatch.setattr(autopilot_labels, "MAX_RANKED_NODES", 0)
    for node in ("gpu-1", "gpu-2"):
        result(world, "pass", node=node)
    assert [write(world), write(world), write(world)] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(4))
def test_nodes_with_new_results_are_labelled_first_and_every_node_gets_its_turn(
    world: World, monkeypatch: Any, seed: int
) -> None:
    monkeypatch.setattr(autopilot_labels, "MAX_NODES_PER_ROUND", 2)
    monkeypatch.setattr(autopilot_labels, "MAX_RANKED_NODES", 1)
    names = [f"gpu-{number}" for number in range(1, 6)]
    for name in names[2:]:
        world.kube.add_node(name, gpus=8)
    world.sync()
    for name in names:
        result(world, "pass", node=name)
    run = begin(world)
    end(world, run, dcgm("pass"))
    begin(world, node="gpu-2")
    for wanted in ("gpu-1", "gpu-2"):
        autopilot_labels.write(world.cluster, clock=world.clock, rng=random.Random(seed))
        world.sync()
        assert label(world, wanted)
    assert len([name for name in names if label(world, name)]) == 4


def test_an_excluded_node_is_left_alone(world: World) -> None:
    result(world, "pass")
    world.kube.label_node("gpu-1", {"kcover.io/exclude": "true"})
    assert (write(world), label(world)) == (0, None)
    world.sync()
    assert (write(world), label(world)) == (0, None)


def begin(world: World, *, level: int = 3, node: str = "gpu-1") -> CheckRun:
    nodes = node_selection.nodes(world.cluster, hosts=[node])
    run = check_runs.begin(world.cluster, nodes, checks=("dcgm",), level=level, actor="user:ann", now=world.now)
    check_runs.advance(run.pk, now=world.now)
    return run


def end(world: World, run: CheckRun, *results: Check) -> None:
    RealAgent(world, "gpu-1", *results).obeys()
    check_runs.advance(run.pk, now=world.now)


def dcgm(status: str, device: str = "") -> Check:
    return Check(name="dcgm", status=status, device=device)


def test_an_invasive_run_tests_and_evicts_and_only_another_one_takes_it_back(world: World) -> None:
    result(world, "pass")
    write(world)
    run = begin(world)
    assert (write(world), label(world), write(world)) == (1, "TESTING", 0)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    assert (write(world), label(world)) == (1, "EVICT")
    node = world.kube.get_node("gpu-1")
    assert node.labels[autopilot.LEVEL_3] == "ERR_2026-11-21_08.00.00UTC"
    assert node.annotations[autopilot.LEVEL_3_OUTPUT] == "gpu_memory.3"
    assert (write(world), label(world)) == (0, "EVICT")
    again = begin(world)
    write(world)
    assert label(world) == "TESTING"
    end(world, again, dcgm("pass"), dcgm("pass", "gpu3 GPU Memory"))
    assert (write(world), label(world), write(world)) == (1, "PASS", 0)


def test_the_result_of_an_invasive_run_counts_until_the_next_one(world: World) -> None:
    """The agent's own results come in beside its answer: the label goes on following them after the run."""
    run = begin(world)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    found = CheckResult.objects.filter(node__name="gpu-1", name="dcgm").values_list("device", "status")
    assert dict(found) == {"": "fail", "gpu3 GPU Memory": "fail"}
    assert (write(world), label(world)) == (1, "EVICT")
    again = begin(world)
    end(world, again, dcgm("pass"))  # and says nothing of the GPU that failed
    assert (write(world), label(world)) == (1, "PASS")
    assert (write(world), label(world)) == (1, "WARN")


def test_fatal_dcgm_errors_are_a_setting(world: World, settings: Any) -> None:
    settings.KCOVER_DCGM_FATAL_ERRORS = ["PCIe"]
    run = begin(world)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    assert (write(world), label(world)) == (1, "WARN")


def test_two_runs_that_ended_before_a_round_are_both_labelled(world: World) -> None:
    run = begin(world)
    write(world)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    again = begin(world)
    world.now += timedelta(hours=2)
    check_runs.advance(again.pk, now=world.now)  # it comes to no end
    assert (write(world), label(world), write(world)) == (1, "EVICT", 0)
    assert world.kube.get_node("gpu-1").annotations[autopilot.LEVEL_3_OUTPUT] == "gpu_memory.3"


def test_a_failure_elsewhere_takes_no_eviction_back(world: World) -> None:
    """DCGM leaves out what comes after a failed test: the memory was not tested again."""
    run = begin(world)
    write(world)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    again = begin(world)  # before the end of the first is told
    write(world)
    end(world, again, dcgm("fail"), dcgm("fail", "gpu3 Deployment"))
    assert (write(world), label(world)) == (1, "EVICT")
    third = begin(world)
    assert (write(world), label(world)) == (1, "TESTING")
    end(world, third, dcgm("fail"), dcgm("fail", "gpu3 Deployment"))
    assert (write(world), label(world)) == (1, "EVICT")
    last = begin(world)
    end(world, last, dcgm("pass"))
    assert (write(world), label(world)) == (1, "PASS")


def test_the_result_of_a_run_is_labelled_again_after_the_next_run(world: World) -> None:
    run = begin(world)
    write(world)
    end(world, run, dcgm("fail"), dcgm("fail", "gpu3 GPU Memory"))
    again = begin(world)
    assert (label(world), write(world), label(world)) == ("TESTING", 1, "TESTING")
    assert write(world) == 0
    world.now += timedelta(hours=2)
    check_runs.advance(again.pk, now=world.now)
    assert (write(world), label(world)) == (1, "EVICT")


@pytest.mark.parametrize(("before", "after"), [("EVICT", "EVICT"), ("WARN", "PASS"), (None, "PASS")])
def test_an_invasive_run_without_an_end_restores_the_earlier_label(
    world: World, before: str | None, after: str
) -> None:
    if before is not None:
        world.kube.label_node("gpu-1", {HEALTH: before})
        world.sync()
    run = begin(world)
    write(world)
    assert label(world) == "TESTING"
    result(world, "pass")
    world.now += timedelta(hours=2)
    check_runs.advance(run.pk, now=world.now)
    assert (write(world), label(world)) == (1, after)
    assert autopilot.LEVEL_3 not in world.kube.get_node("gpu-1").labels
    assert write(world) == 0


def test_level_two_leaves_the_label_of_level_three_alone(world: World) -> None:
    run = begin(world, level=2)
    write(world)
    end(world, run, dcgm("pass"))
    write(world)
    assert label(world) == "PASS"
    assert autopilot.LEVEL_3 not in world.kube.get_node("gpu-1").labels


def test_a_round_is_woken_in_each_cluster_that_asks_and_one_goes_on_at_a_time(world: World, monkeypatch: Any) -> None:
    rung: list[tuple[str, Any]] = []
    monkeypatch.setattr(tasks.doorbell, "ring", lambda task, *ids: rung.append((task, ids)))
    Cluster.objects.create(name="other", created_at=world.now)
    tasks.label_nodes()
    assert rung == [("checks.label_cluster", (world.cluster.pk,))]
    result(world, "pass")
    apply = world.kube.apply_node

    def again(*args: Any, **named: Any) -> Any:
        tasks.label_cluster(world.cluster.pk)  # while the first one hangs
        return apply(*args, **named)

    monkeypatch.setattr(world.kube, "apply_node", again)
    tasks.label_cluster(world.cluster.pk)
    assert (label(world), patches(world)) == ("PASS", 1)
    result(world, "fail")
    world.sync()
    tasks.label_cluster(world.cluster.pk)
    assert (label(world), patches(world)) == ("WARN", 2)
