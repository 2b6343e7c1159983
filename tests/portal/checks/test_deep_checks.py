"""Deep checks on a timer: requested by the portal in clusters with Autopilot's labels, with results in the labels."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.checks import autopilot
from kcover.decisions import guards
from kcover.faults.fault import Check
from kcover_portal.checks import services as check_runs, tasks
from kcover_portal.checks.models import CheckRun
from kcover_portal.checks.services import autopilot_labels, eligibility
from kcover_portal.fleet.models import Cluster, Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.kube import bounds, port
from kcover_portal.rescue import services as rescue
from tests.portal.fleet.real_agent import RealAgent
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
EVERY = timedelta(hours=4)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=3)
    made.cluster.autopilot_labels = True
    made.cluster.save()
    for number in (1, 2, 3):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def again(world: World) -> CheckRun | None:
    return check_runs.begin_again(world.cluster, every=EVERY, now=world.now)


def over(world: World, run: CheckRun) -> None:
    CheckRun.objects.filter(pk=run.pk).update(state=CheckRun.State.FINISHED, finished_at=world.now)


def nodes_of(run: CheckRun | None) -> list[str]:
    assert run is not None
    return list(run.targets.order_by("place").values_list("node__name", flat=True))


def test_the_result_of_a_deep_check_is_written_to_autopilots_labels(world: World) -> None:
    run = again(world)
    assert run is not None
    assert (run.checks, run.level) == (["dcgm"], 3)
    check_runs.advance(run.pk, now=world.now)
    autopilot_labels.write(world.cluster, clock=world.clock)
    node = world.kube.get_node("gpu-1")
    assert node.labels[autopilot.GPU_HEALTH] == "TESTING"
    failed = [Check(name="dcgm", status="fail", device=device) for device in ("", "gpu3 memory")]
    RealAgent(world, "gpu-1", *failed).obeys()
    check_runs.advance(run.pk, now=world.now)
    autopilot_labels.write(world.cluster, clock=world.clock)
    node = world.kube.get_node("gpu-1")
    assert node.labels[autopilot.GPU_HEALTH] == "EVICT"
    assert node.labels[autopilot.LEVEL_3].startswith("ERR_")
    assert node.annotations[autopilot.LEVEL_3_OUTPUT] == "memory.3"


def test_the_next_one_begins_when_it_is_due_and_the_one_before_is_over(world: World) -> None:
    nodes = list(Node.objects.filter(cluster=world.cluster))
    check_runs.begin(world.cluster, nodes, checks=("dcgm",), level=3, actor="user:ann", now=world.now)  # another's
    run = again(world)
    assert run is not None
    world.now += EVERY
    assert again(world) is None
    over(world, run)
    later = again(world)
    assert later is not None
    over(world, later)
    world.now += EVERY - timedelta(seconds=1)
    assert again(world) is None
    world.now += timedelta(seconds=1)
    assert again(world) is not None


def test_most_nodes_are_free_for_jobs_at_any_time(world: World) -> None:
    for number in range(4, 10):
        world.kube.add_node(f"gpu-{number}", gpus=8)
    world.sync()
    run = again(world)
    assert run is not None
    assert list(run.targets.order_by("place").values_list("batch", flat=True)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_isolated_and_excluded_nodes_are_left_alone(world: World) -> None:
    Node.objects.filter(name="gpu-1").update(unschedulable=True)
    Node.objects.filter(name="gpu-2").update(labels={guards.EXCLUDE_LABEL: "true"})
    assert nodes_of(again(world)) == ["gpu-3"]


def window(world: World, **where: str) -> Maintenance:
    return Maintenance.objects.create(
        cluster=world.cluster,
        starts_at=world.now,
        ends_at=world.now + timedelta(hours=1),
        reason="new cables",
        created_by="t",
        **where,
    )


def test_maintenance_is_left_alone(world: World) -> None:
    Node.objects.filter(name="gpu-3").update(pool="b")
    window(world, node="gpu-1")
    window(world, pool="b")
    world.now -= timedelta(seconds=1)
    before = again(world)
    assert nodes_of(before) == ["gpu-1", "gpu-2", "gpu-3"]
    CheckRun.objects.all().delete()
    world.now += timedelta(seconds=1)
    assert nodes_of(again(world)) == ["gpu-2"]
    CheckRun.objects.all().delete()
    window(world)
    assert again(world) is None


def test_a_node_with_an_open_rescue_is_left_alone(world: World) -> None:
    """Also one that waits for an approval, and has touched nothing yet."""
    world.cluster.mode = "approve"
    world.cluster.save()
    rescue.request(world.node("gpu-2"), "reboot", actor="user:ann", reason="", now=world.now)
    assert nodes_of(again(world)) == ["gpu-1", "gpu-3"]


def test_a_node_in_maintenance_at_its_turn_is_not_checked(world: World) -> None:
    run = again(world)
    assert run is not None
    window(world, node="gpu-1")
    check_runs.advance(run.pk, now=world.now)
    turn = run.targets.get(node__name="gpu-1")
    assert (turn.statuses, turn.invasive) == ([autopilot.NOT_CHECKED], False)
    assert turn.results[0]["message"] == "maintenance until 2026-11-21 09:00:00 UTC: new cables"
    nodes = [world.node("gpu-1")]
    asked = check_runs.begin(world.cluster, nodes, checks=("dcgm",), level=3, actor="user:ann", now=world.now)
    check_runs.advance(asked.pk, now=world.now)
    assert asked.targets.get().invasive  # a person may


def test_a_cluster_that_does_not_answer_wastes_no_turn(world: World) -> None:
    run = again(world)
    assert run is not None
    world.kube.fail("list_pods", port.Unavailable("timed out"), times=1)
    check_runs.advance(run.pk, now=world.now)
    assert set(run.targets.values_list("state", flat=True)) == {"waiting"}
    asked = len(world.kube.calls)
    world.now += timedelta(seconds=29)
    check_runs.advance(run.pk, now=world.now)
    assert (len(world.kube.calls), run.targets.filter(state="requested").count()) == (asked, 0)  # it is left in peace
    world.now += timedelta(seconds=1)
    check_runs.advance(run.pk, now=world.now)
    assert run.targets.get(state="requested").node.name == "gpu-1"


@pytest.mark.parametrize("error", [port.RefusedByServer("forbidden"), bounds.TooLarge("a list of 5 GiB")])
def test_a_repeated_failure_of_the_cluster_ends_the_run(world: World, error: port.KubeError) -> None:
    run = again(world)
    assert run is not None
    world.kube.fail("list_pods", error, times=9)
    for _ in range(3):
        check_runs.advance(run.pk, now=world.now)
    run.refresh_from_db()
    assert (run.state, {turn.statuses[0] for turn in run.targets.all()}) == ("finished", {autopilot.NOT_CHECKED})


def test_where_no_node_is_left_nothing_begins(world: World) -> None:
    Node.objects.update(ready=False)
    assert again(world) is None


@pytest.mark.parametrize("mode", ["paused", "shadow"])
def test_no_run_begins_in_a_mode_without_writes(world: World, mode: str) -> None:
    cluster_settings.set_cluster(world.cluster, {"mode": mode}, actor="t", reason="", now=world.now)
    assert again(world) is None


def test_too_many_runs_delay_a_deep_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcover_portal.checks.services.runs.MAX_RUNS", 0)
    assert again(world) is None


def test_the_task_asks_where_labels_are_wanted_and_only_if_it_is_set(world: World, settings: Any) -> None:
    Cluster.objects.create(name="other", created_at=world.now)
    settings.KCOVER_DEEP_CHECKS_HOURS = 0
    tasks.deep_checks()
    assert not CheckRun.objects.exists()
    settings.KCOVER_DEEP_CHECKS_HOURS = 4
    tasks.deep_checks()
    tasks.deep_checks()
    assert [run.cluster for run in CheckRun.objects.all()] == [world.cluster]


def test_the_kind_of_the_requester_decides_whether_a_run_is_automatic(world: World) -> None:
    """A person may have any name."""
    run = again(world)
    assert run is not None
    assert (run.requester_kind, eligibility.automatic(run)) == (CheckRun.Requester.SCHEDULE, True)
    nodes = list(Node.objects.filter(cluster=world.cluster))
    asked = check_runs.begin(world.cluster, nodes, checks=("dcgm",), actor="job x/y", now=world.now)
    assert (asked.requester_kind, eligibility.automatic(asked)) == (CheckRun.Requester.PERSON, False)
