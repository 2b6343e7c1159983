"""Runs of checks: batches, agents that do not answer, what needs idle GPUs, and nothing twice."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover import audit
from kcover_portal.checks import services as check_runs, tasks
from kcover_portal.checks.models import CheckRun, CheckTarget
from kcover_portal.checks.services import pvc_check
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Agent, Command, Node
from kcover_portal.fleet.services import cluster_settings, node_selection
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.services import retention
from tests.codes import code_of
from tests.portal.rescue import agents
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
FINE = {"name": "remapped", "device": "GPU-0", "status": "pass", "value": 0.0, "unit": "rows", "message": ""}


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=5)
    for number in range(1, 6):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def begin(world: World, *names: str, checks: tuple[str, ...] = ("remapped",), **more: Any) -> CheckRun:
    nodes = node_selection.nodes(world.cluster, hosts=names)
    run = check_runs.begin(world.cluster, nodes, checks=checks, actor="user:ann", now=world.now, **more)
    advance(world, run)
    return run


def advance(world: World, run: CheckRun) -> CheckRun:
    check_runs.advance(run.pk, now=world.now)
    run.refresh_from_db()
    return run


def states(run: CheckRun) -> list[str]:
    return list(run.targets.values_list("state", flat=True))


def answer(world: World, node: str, *results: dict[str, Any]) -> None:
    [command] = [one for one in agents.commands("run_check", node) if one.state == "offered"]
    agents.answers(world, command, checks=list(results))


def test_a_batch_begins_when_the_one_before_is_done(world: World) -> None:
    run = begin(world, batch=2)
    assert states(run) == ["requested", "requested", "waiting", "waiting", "waiting"]
    answer(world, "gpu-1", FINE)
    advance(world, run)
    assert states(run) == ["done", "requested", "waiting", "waiting", "waiting"]
    assert (run.done, run.state) == (1, "running")
    answer(world, "gpu-2", FINE)
    advance(world, run)
    assert states(run) == ["done", "done", "requested", "requested", "waiting"]
    for name in ("gpu-3", "gpu-4"):
        answer(world, name, FINE)
    advance(world, run)
    answer(world, "gpu-5", {**FINE, "status": "fail", "message": "a row waits for a reset"})
    advance(world, run)
    assert (run.state, run.done, run.wrong, run.finished_at) == ("finished", 5, 1, world.now)
    assert run.targets.get(node__name="gpu-5").statuses == ["REMAPPED ROWS Failed"]
    assert run.targets.get(node__name="gpu-1").statuses == ["Ok"]
    verbs = list(Entry.objects.filter(subject=f"check run {run.pk}").values_list("verb", flat=True))
    assert sorted(verbs) == ["checks.finished", "checks.requested"]


def test_advancing_a_run_repeatedly_sends_each_command_once(world: World) -> None:
    run = begin(world, batch=2)
    for _ in range(3):
        advance(world, run)
    assert Command.objects.count() == 2
    assert {command.args["r"] for command in Command.objects.all()} == {1}


def test_the_answer_rings_for_its_run(world: World, monkeypatch: Any) -> None:
    rung: list[tuple[str, Any]] = []
    run = begin(world, "gpu-1")
    monkeypatch.setattr(tasks.doorbell, "ring", lambda task, *ids: rung.append((task, ids)))
    answer(world, "gpu-1", FINE)
    assert ("checks.advance_run", (run.pk,)) in rung


def test_the_round_finds_every_run_that_goes_on(world: World, monkeypatch: Any) -> None:
    rung: list[tuple[str, Any]] = []
    going_on, over = begin(world, "gpu-1"), begin(world, "gpu-2")
    check_runs.stop(over, actor="user:ann", reason="enough", now=world.now)
    monkeypatch.setattr(tasks.doorbell, "ring", lambda task, *ids: rung.append((task, ids)))
    tasks.advance_runs()
    assert rung == [("checks.advance_run", (going_on.pk,))]


def test_a_silent_agent_is_not_waited_for(world: World) -> None:
    Agent.objects.filter(node__name="gpu-1").update(seen_at=world.now - timedelta(hours=1))
    run = begin(world, "gpu-1", "gpu-2", batch=1)
    assert states(run) == ["silent", "requested"]
    turn = run.targets.get(node__name="gpu-1")
    assert (turn.statuses, code_of(turn.note)) == (["Connection to Server Failed"], "agent_not_reporting")


def test_an_agent_that_does_not_answer_in_time_ends_its_turn(world: World) -> None:
    run = begin(world, "gpu-1")
    world.now += timedelta(minutes=2, seconds=59)
    assert advance(world, run).state == "running"
    world.now += timedelta(seconds=1)
    assert (advance(world, run).state, run.wrong) == ("finished", 1)
    assert code_of(run.targets.get().note) == "no_answer_in_time"


def test_a_refusal_and_silence_about_a_check_are_aborted_not_failed(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", checks=("remapped", "ping"))
    [command] = agents.commands("run_check", "gpu-1")
    agents.answers(world, command, status="refused", message="this agent has no check")
    answer(world, "gpu-2", FINE, {"name": "remapped", "status": "green", "value": "x"})
    advance(world, run)
    assert run.targets.get(node__name="gpu-1").statuses == ["REMAPPED ROWS Aborted", "PING Aborted"]
    reported = run.targets.get(node__name="gpu-2")
    assert reported.statuses == ["REMAPPED ROWS Aborted", "PING Aborted"]
    assert [(one["status"], one["value"]) for one in reported.results] == [
        ("pass", 0.0),
        ("error", None),
        ("error", None),
    ]


def test_an_unstorable_number_does_not_block_a_run(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2")
    answer(world, "gpu-1", {**FINE, "value": 10**400})
    answer(world, "gpu-2", FINE)
    assert advance(world, run).state == "finished"
    assert [one["value"] for turn in run.targets.all() for one in turn.results] == [None, 0.0]


def test_checks_that_need_idle_gpus_are_skipped_where_a_pod_holds_gpus(world: World) -> None:
    world.kube.add_pod("default", "train-0", node="gpu-1", gpus=8)
    world.kube.add_pod("default", "plain", node="gpu-2")
    run = begin(world, "gpu-1", "gpu-2", checks=("remapped", "dcgm"), level=3)
    asked = {command.node.name: command.args["checks"] for command in Command.objects.select_related("node")}
    assert asked == {"gpu-1": ["remapped"], "gpu-2": ["remapped", "dcgm"]}
    answer(world, "gpu-1", FINE)
    advance(world, run)
    turn = run.targets.get(node__name="gpu-1")
    assert [(one["name"], one["status"], one["message"]) for one in turn.results] == [
        ("dcgm", "skipped", "the pod default/train-0 holds GPUs"),
        ("remapped", "pass", ""),
    ]
    assert turn.results[0]["because"] == {"code": "pod_holds_gpus", "params": {"pod": "default/train-0"}}
    assert turn.statuses == ["Ok"]


def test_a_run_of_gpu_checks_finishes_at_once_where_gpus_are_held(world: World) -> None:
    world.kube.add_pod("default", "train-0", node="gpu-1", gpus=8)
    run = begin(world, "gpu-1", checks=("gpumem",))
    assert (run.state, run.targets.get().statuses, Command.objects.count()) == ("finished", ["Not checked"], 0)


def test_gpu_checks_are_skipped_while_the_users_of_gpus_are_unknown(world: World) -> None:
    world.kube.fail("list_pods", port.Unavailable("timed out"), times=9)
    run = begin(world, "gpu-1", checks=("dcgm",), level=2)
    turn = run.targets.get()
    assert (turn.state, turn.results[0]["status"]) == ("done", "skipped")
    assert "could not list the pods that hold GPUs" in turn.results[0]["message"]


def test_two_runs_never_load_one_node_at_once(world: World) -> None:
    first = begin(world, "gpu-1", checks=("gpumem",))
    second = begin(world, "gpu-1", "gpu-2", checks=("gpumem",))
    assert states(first) == ["requested"]
    assert states(second) == ["done", "requested"]
    assert second.targets.get(node__name="gpu-1").results[0]["message"] == f"check run {first.pk} is using its GPUs"


def test_ping_asks_the_neighbours_round_the_ring(world: World) -> None:
    Node.objects.update(address="")
    for number in (1, 3, 5):
        Node.objects.filter(name=f"gpu-{number}").update(address=f"10.0.0.{number}")
    begin(world, "gpu-3", checks=("ping",))
    begin(world, "gpu-4", checks=("ping",), peers=("10.9.9.9",))
    hosts = {command.node.name: command.args["hosts"] for command in Command.objects.select_related("node")}
    assert hosts == {"gpu-3": ["10.0.0.5", "10.0.0.1"], "gpu-4": ["10.9.9.9"]}


def test_a_stopped_run_sends_no_command_and_withdraws_those_not_begun(world: World) -> None:
    run = begin(world, batch=2)
    answer(world, "gpu-1", FINE)
    check_runs.stop(run, actor="user:bo", reason="wrong nodes", now=world.now)
    run.refresh_from_db()
    assert (run.state, run.done) == ("stopped", 1)
    assert states(run) == ["done", "stopped", "stopped", "stopped", "stopped"]
    assert {command.state for command in Command.objects.all()} == {"done", "expired"}
    advance(world, run)
    assert Command.objects.count() == 2
    with pytest.raises(check_runs.CheckRunRefused, match="has ended"):
        check_runs.stop(run, actor="user:bo", reason="", now=world.now)


def test_runs_are_bounded_and_forgotten(world: World) -> None:
    runs = [begin(world, "gpu-1") for _ in range(check_runs.MAX_RUNS)]
    with pytest.raises(check_runs.CheckRunRefused, match="20 check runs are running in cluster c1"):
        begin(world, "gpu-1")
    check_runs.stop(runs[0], actor="user:bo", reason="", now=world.now)
    begin(world, "gpu-1")
    assert check_runs.prune(now=world.now + retention.time(CheckRun)) == 0
    assert check_runs.prune(now=world.now + retention.time(CheckRun) + timedelta(seconds=1)) == 1
    assert not CheckTarget.objects.filter(run=runs[0].pk).exists()


def test_commands_of_a_run_are_deleted_with_the_run(world: World) -> None:
    over, going_on = begin(world, "gpu-1"), begin(world, "gpu-2")
    answer(world, "gpu-1", FINE)
    advance(world, over)
    later = world.now + timedelta(days=400)
    fleet.ask_agent(world.node(), "reboot", key="reboot-1-0-0", args={}, expires_at=world.now, now=world.now)
    assert check_runs.prune(now=later) == 1
    assert set(Command.objects.values_list("key", flat=True)) == {f"run-{going_on.pk}-0", "reboot-1-0-0"}
    check_runs.stop(going_on, actor="user:bo", reason="", now=world.now)
    assert check_runs.prune(now=later) == 1
    assert list(Command.objects.values_list("key", flat=True)) == ["reboot-1-0-0"]  # it is asked once for all time


def test_the_union_of_names_jobs_and_labels(world: World) -> None:
    world.kube.add_pod("ml", "w-0", node="gpu-2", labels={"job": "a"})
    Node.objects.filter(name="gpu-4").update(labels={"rack": "r1"})

    def names(**asked: Any) -> list[str]:
        return [node.name for node in node_selection.nodes(world.cluster, **asked)]

    assert names(hosts=["gpu-5"], job="ml:job=a", nodelabel="rack=r1") == ["gpu-2", "gpu-4", "gpu-5"]
    assert len(names()) == 5
    for asked, field in (
        ({"hosts": ["gpu-9"]}, "host"),
        ({"job": "ml:job=b"}, "job"),
        ({"job": "ml"}, "job"),
        ({"nodelabel": "rack"}, "nodelabel"),
        ({"nodelabel": "rack=r2"}, "nodelabel"),
    ):
        with pytest.raises(FieldError) as refusal:
            names(**asked)
        assert refusal.value.field == field
    world.kube.fail("list_pods", port.Unavailable("timed out", retry_after=3.0), times=9)
    with pytest.raises(node_selection.Unanswered) as silence:
        names(job="ml:job=a")
    assert silence.value.retry_after == 3.0


def claim(world: World, run: CheckRun) -> port.ClaimState:
    return world.kube.claim_state("kcover-jobs", pvc_check.name_of(run))


def test_a_claim_is_created_bound_reported_for_every_node_and_deleted(world: World) -> None:
    run = begin(world, "gpu-1", "gpu-2", checks=("pvc", "remapped"))
    assert (claim(world, run).phase, states(run)) == ("Pending", ["waiting", "waiting"])
    world.now += timedelta(seconds=4)
    advance(world, run)
    assert len([call for call in world.kube.calls if call.verb == "ensure_claim"]) == 1
    world.kube.bind_claim("kcover-jobs", pvc_check.name_of(run))
    advance(world, run)
    assert (claim(world, run).exists, states(run)) == (False, ["requested", "requested"])
    answer(world, "gpu-1", FINE)
    advance(world, run)
    reported = run.targets.get(node__name="gpu-1").results
    assert [(one["name"], one["status"], one["message"]) for one in reported] == [
        ("pvc", "pass", "bound after 4 s"),
        ("remapped", "pass", ""),
    ]
    verbs = list(Entry.objects.filter(verb__startswith="pvc").order_by("pk").values_list("verb", flat=True))
    assert verbs == ["pvc.create.begun", "pvc.create.done", "pvc.delete.done"]


def test_a_claim_that_is_not_bound_in_time_fails_and_needs_no_agent(world: World) -> None:
    Agent.objects.update(seen_at=world.now - timedelta(hours=1))
    run = begin(world, "gpu-1", checks=("pvc",))
    world.now += timedelta(seconds=89)
    assert advance(world, run).state == "running"
    world.now += timedelta(seconds=1)
    assert (advance(world, run).state, run.wrong) == ("finished", 1)
    assert run.targets.get().statuses == ["PVC Create-Delete Test Failed"]
    assert "not bound within 90 s (phase Pending)" in run.targets.get().results[0]["message"]
    assert not claim(world, run).exists


def test_a_claim_has_the_requested_storage_class(world: World) -> None:
    world.cluster.storage_class = "shared-hdd"
    run = begin(world, "gpu-1", checks=("pvc",))
    named = begin(world, "gpu-2", checks=("pvc",), storage_class="fast")
    made = [
        world.kube.objects.get("PersistentVolumeClaim", "kcover-jobs", pvc_check.name_of(one)) for one in (run, named)
    ]
    assert [one["spec"]["storageClassName"] for one in made] == ["shared-hdd", "fast"]
    world.kube.bind_claim("kcover-jobs", pvc_check.name_of(run))
    world.now += timedelta(seconds=90)
    assert advance(world, run).targets.get().results[0]["message"] == "bound after 90 s by class shared-hdd"
    [reported] = advance(world, named).targets.get().results
    assert (reported["status"], "storage class fast must support ReadWriteMany" in reported["message"]) == (
        "fail",
        True,
    )


def test_a_claim_that_cannot_be_made_is_aborted_and_shadow_makes_none(world: World) -> None:
    world.kube.fail("ensure_claim", port.RefusedByServer("forbidden"))
    run = begin(world, "gpu-1", checks=("pvc",))
    assert (run.state, run.targets.get().statuses) == ("finished", ["PVC Create-Delete Test Aborted"])
    cluster_settings.set_cluster(world.cluster, {"mode": "shadow"}, actor="t", reason="", now=world.now)
    written = len(world.kube.writes)
    run = begin(world, "gpu-1", checks=("pvc",))
    assert (run.targets.get().statuses, len(world.kube.writes)) == (["Not checked"], written)
    assert "mode shadow" in run.targets.get().results[0]["message"]


def test_a_claim_is_made_later_where_the_cluster_is_away_and_never_twice(world: World) -> None:
    world.kube.fail("ensure_claim", port.Unavailable("cut", ambiguous=True), after=True)
    run = begin(world, "gpu-1", checks=("pvc",))
    assert (run.state, claim(world, run).phase) == ("running", "Pending")
    advance(world, run)
    assert len([call for call in world.kube.calls if call.verb == "ensure_claim"]) == 1
    world.kube.fail("claim_state", port.Unavailable("gone"), times=9)
    world.now += timedelta(seconds=91)
    assert advance(world, run).targets.get().statuses == ["PVC Create-Delete Test Aborted"]


def test_the_claim_of_a_stopped_run_goes_with_it(world: World) -> None:
    run = begin(world, "gpu-1", checks=("pvc",))
    check_runs.stop(run, actor="user:bo", reason="", now=world.now)
    assert not claim(world, run).exists


@pytest.mark.parametrize("mode", ["shadow", "paused"])
@pytest.mark.parametrize("stopped", [False, True])
def test_inv_48_a_claim_is_not_deleted_where_nothing_is_written(world: World, mode: str, stopped: bool) -> None:
    run = begin(world, "gpu-1", checks=("pvc",))
    cluster_settings.set_cluster(world.cluster, {"mode": mode}, actor="t", reason="", now=world.now)
    run.refresh_from_db()
    written = len(world.kube.writes)
    world.now += timedelta(seconds=91)
    if stopped:
        check_runs.stop(run, actor="user:bo", reason="", now=world.now)
    else:
        assert advance(world, run).state == "finished"
    assert len(world.kube.writes) == written
    failed = audit.ClusterCallFailed.of_entry(Entry.objects.get(verb="pvc.delete.failed"))
    assert (failed.held_back, failed.because.code, failed.check_run) == (True, "claim_stays", run.pk)


def test_one_caller_at_a_time_queries_the_cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(world, "gpu-1", "gpu-2", checks=("gpumem",), batch=1)
    answer(world, "gpu-1", {**FINE, "name": "gpumem"})
    asked = world.kube.list_pods
    depth = []

    def slow(**named: Any) -> Any:
        depth.append(1)
        check_runs.advance(run.pk, now=world.now)  # the sweep comes again while the cluster hangs
        return asked(**named)

    monkeypatch.setattr(world.kube, "list_pods", slow)
    advance(world, run)
    advance(world, run)
    assert len(depth) == 1
    assert states(run) == ["done", "requested"]


def test_a_cluster_call_whose_caller_died_is_taken_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(world, "gpu-1", checks=("gpumem",))
    answer(world, "gpu-1", {**FINE, "name": "gpumem"})
    CheckRun.objects.update(busy_until=world.now + check_runs.CLUSTER_CALL_LEASE)
    assert advance(world, run).state == "running"
    world.now += check_runs.CLUSTER_CALL_LEASE
    assert advance(world, run).state == "finished"
