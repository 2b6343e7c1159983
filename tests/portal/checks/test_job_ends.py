"""The nodes of a training job are checked once after it has ended, where its owner asks for it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.validation import profiles
from kcover_portal.checks import services
from kcover_portal.checks.models import CheckRun, WatchedJob
from kcover_portal.checks.services import job_ends
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.services import retention
from tests.portal.rescue import worker_kills
from tests.portal.rescue.test_actions_restart_jobs import add_job
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=3)
    for number in (1, 2, 3):
        made.report(node=f"gpu-{number}")
    yield made
    made.uninstall()


def ask(world: World, name: str = "llm", value: str = "true", *nodes: str, kind: str = "PyTorchJob") -> None:
    if nodes:
        add_job(world, name, *nodes)
    metadata: dict[str, Any] = {"annotations": {job_ends.ANNOTATION: value}}
    world.kube.objects.merge(kind, "train", name, {"metadata": metadata})


def end(world: World, name: str = "llm", how: str = "Succeeded", kind: str = "PyTorchJob") -> None:
    conditions = [{"type": how, "status": "True"}]
    world.kube.objects.merge(kind, "train", name, {"status": {"conditions": conditions}})
    for pod in world.kube.list_pods(namespace="train"):
        if pod.name.startswith(f"{name}-"):
            world.kube.remove_pod("train", pod.name)


def look(world: World, times: int = 1) -> None:
    for _ in range(times):
        services.look_at_jobs(world.cluster, now=world.now)
        world.now += MINUTE


def runs() -> list[tuple[str, list[str], int, list[str]]]:
    assert {run.requester_kind for run in CheckRun.objects.all()} <= {CheckRun.Requester.JOB}
    return [
        (run.requested_by, run.checks, run.level, list(run.targets.values_list("node__name", flat=True)))
        for run in CheckRun.objects.order_by("pk")
    ]


@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
@pytest.mark.parametrize(("value", "name"), [("true", "light"), ("light", "light"), ("full", "full")])
def test_the_nodes_of_a_job_are_checked_once_after_its_end(world: World, how: str, value: str, name: str) -> None:
    profile = profiles.DEFAULTS[name]
    ask(world, "llm", value, "gpu-1", "gpu-2")
    look(world, 2)
    assert runs() == []
    end(world, how=how)
    look(world, 3)
    assert runs() == [("job train/llm", list(profile.names), profile.level, ["gpu-1", "gpu-2"])]
    assert Entry.objects.get(verb="checks.requested").actor == "job train/llm"


def test_a_job_that_is_deleted_or_was_moved(world: World) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    world.kube.remove_pod("train", "llm-0")
    add_pod(world, "llm", "gpu-3")
    look(world)
    world.kube.objects.remove("PyTorchJob", "train", "llm")
    look(world, 2)
    assert [nodes for *_, nodes in runs()] == [["gpu-1", "gpu-3"]]


def add_pod(world: World, name: str, node: str) -> None:
    labels = {port.KUBEFLOW_JOB_LABEL: name}
    world.kube.add_pod("train", f"{name}-7", node=node, owner_kind="PyTorchJob", owner_name=name, labels=labels, gpus=8)


def test_a_part_asks_for_its_whole_job(world: World) -> None:
    world.kube.add_workload("JobSet", "train", "set")
    world.kube.add_workload("Job", "train", "set-w", owner=("JobSet", "set"))
    labels = {"jobset.sigs.k8s.io/jobset-name": "set"}
    world.kube.add_pod("train", "set-w-0", node="gpu-2", owner_kind="Job", owner_name="set-w", labels=labels, gpus=8)
    ask(world, "set-w", kind="Job")
    look(world)
    end(world, "set-w", "Complete", kind="Job")
    look(world)
    assert runs() == []
    end(world, "set", "Completed", kind="JobSet")
    look(world)
    assert [(by, nodes) for by, *_, nodes in runs()] == [("job train/set", ["gpu-2"])]


def test_a_part_that_requested_the_check_may_vanish_at_the_end(world: World) -> None:
    """As the RayCluster of a RayJob does."""
    world.kube.add_workload("RayJob", "train", "ray")
    status = {"rayClusterName": "ray-1"}
    world.kube.objects.merge("RayJob", "train", "ray", {"status": status})
    world.kube.add_workload("RayCluster", "train", "ray-1", owner=("RayJob", "ray"))
    labels = {port.WORKLOADS["RayJob"].pod_label: "ray-1"}
    owner = {"owner_kind": "RayCluster", "owner_name": "ray-1"}
    world.kube.add_pod("train", "ray-1-0", node="gpu-2", labels=labels, gpus=8, **owner)
    ask(world, "ray-1", kind="RayCluster")
    look(world)
    world.kube.objects.remove("RayCluster", "train", "ray-1")
    world.kube.objects.merge("RayJob", "train", "ray", {"status": {**status, "jobDeploymentStatus": "Complete"}})
    look(world)
    assert [(by, nodes) for by, *_, nodes in runs()] == [("job train/ray", ["gpu-2"])]


@pytest.mark.parametrize(("gpus", "phase"), [(0, "Running"), (8, "Pending")])
def test_a_pod_that_only_names_a_node_has_it_not_checked(world: World, gpus: int, phase: str) -> None:
    ask(world, "llm", "true", "gpu-1")
    labels = {port.KUBEFLOW_JOB_LABEL: "llm"}
    owner = {"owner_kind": "PyTorchJob", "owner_name": "llm"}
    world.kube.add_pod("train", "llm-8", node="gpu-3", labels=labels, gpus=gpus, **owner)
    world.kube.objects.merge("Pod", "train", "llm-8", {"status": {"phase": phase}})
    look(world)
    assert WatchedJob.objects.get().nodes == ["gpu-1"]


def test_a_job_of_many_nodes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ends, "MAX_NODES", 2)
    ask(world, "llm", "true", "gpu-1", "gpu-2", "gpu-3")
    look(world)
    assert WatchedJob.objects.get().nodes == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("value", ["", "false", "burn-in", "4", "x" * 300])
def test_another_value_requests_no_check(world: World, value: str) -> None:
    ask(world, "llm", value, "gpu-1")
    look(world)
    end(world)
    look(world)
    assert (runs(), WatchedJob.objects.count()) == ([], 0)


def test_an_owner_who_removes_the_label_gets_no_check(world: World) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    ask(world, "llm", "false")
    look(world)
    end(world)
    look(world)
    assert (runs(), WatchedJob.objects.count()) == ([], 0)


def test_only_an_end_that_the_portal_saw_or_that_is_recent_counts(world: World) -> None:
    for name, age in (("old", timedelta(days=1)), ("quick", MINUTE)):
        ask(world, name, "true", "gpu-1")
        stamp = (world.now - age).isoformat().replace("+00:00", "Z")
        world.kube.objects.merge("PyTorchJob", "train", name, {"metadata": {"creationTimestamp": stamp}})
        conditions = [{"type": "Succeeded", "status": "True"}]
        world.kube.objects.merge("PyTorchJob", "train", name, {"status": {"conditions": conditions}})
    look(world, 3)
    assert [by for by, *_ in runs()] == ["job train/quick"]


@pytest.mark.parametrize("silent", ["shadow", "paused", "acted_on_by"])
def test_a_silent_mode_asks_for_nothing_not_even_later(world: World, silent: str) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    Cluster.objects.update(**({"acted_on_by": "nvsentinel"} if silent == "acted_on_by" else {"mode": silent}))
    world.cluster.refresh_from_db()
    end(world)
    look(world)
    Cluster.objects.update(acted_on_by="", mode="enforce")
    world.cluster.refresh_from_db()
    look(world, 9)
    assert runs() == []


def test_nodes_under_repair_are_left_out(world: World) -> None:
    ask(world, "llm", "true", "gpu-1", "gpu-2")
    ask(world, "eval", "true", "gpu-1")
    look(world)
    world.kube.cordon("gpu-1")
    world.sync()
    end(world)
    end(world, "eval")
    look(world)
    assert [(by, nodes) for by, *_, nodes in runs()] == [("job train/llm", ["gpu-2"])]
    declined = WatchedJob.objects.get(state="declined")
    assert (declined.name, declined.because["code"]) == ("eval", "node_cordoned")


def test_heavy_checks_are_skipped_where_a_pod_holds_gpus(world: World) -> None:
    ask(world, "llm", "full", "gpu-1", "gpu-2")
    look(world)
    end(world)
    add_pod(world, "other", "gpu-1")
    look(world)
    run = CheckRun.objects.get()
    services.advance(run.pk, now=world.now)
    first = run.targets.get(node__name="gpu-1")
    skipped = {result["name"]: result["because"]["code"] for result in first.results}
    assert skipped == {"dcgm": "pod_holds_gpus", "gpumem": "pod_holds_gpus"}
    assert first.command is not None
    assert first.command.args["checks"] == ["remapped", "gpupower", "pciebw"]


def test_the_numbers_are_bounded(world: World) -> None:
    names = [f"job-{number:02}" for number in range(job_ends.MAX_RUNS + 2)]
    for name in names:
        ask(world, name, "true", "gpu-1")
    look(world)
    for name in names:
        end(world, name)
    look(world)
    assert len(runs()) == job_ends.MAX_RUNS
    CheckRun.objects.update(state="finished")
    look(world)
    assert len(runs()) == len(names)


def test_a_namespace_takes_no_place_from_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_ends, "MAX_WATCHED_OF_NAMESPACE", 2)
    for name in ("a", "b", "c"):
        ask(world, name, "true", "gpu-1")
    world.kube.add_workload("StatefulSet", "other", "d", labels={job_ends.ANNOTATION: "true"})
    look(world, 3)
    assert sorted(WatchedJob.objects.values_list("namespace", flat=True)) == ["other", "train", "train"]
    end(world, "a")
    end(world, "b")
    look(world, 2)
    assert sorted(WatchedJob.objects.filter(state="watched").values_list("name", flat=True)) == ["c", "d"]


def test_a_look_reads_the_ends_of_some_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"job-{number}" for number in range(4)]
    for name in names:
        ask(world, name, "true", "gpu-1")
    look(world)
    monkeypatch.setattr(job_ends, "MAX_READ", 2)
    for name in names:
        world.kube.objects.remove("PyTorchJob", "train", name)
    before = len(world.kube.called("workload"))
    look(world)
    assert len(world.kube.called("workload")) - before == 2
    look(world, 2)
    assert not WatchedJob.objects.filter(state="watched").exists()


def test_the_pods_of_a_namespace_are_listed_once_in_a_look(world: World) -> None:
    for name in ("a", "b", "c"):
        world.kube.add_workload("StatefulSet", "train", name, labels={job_ends.ANNOTATION: "true"})
    look(world)
    assert WatchedJob.objects.count() == 3
    assert len(world.kube.called("list_pods")) == 1


def test_a_cluster_that_refuses_a_list_delays_no_run(world: World) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    WatchedJob.objects.update(state="ended", ended_at=world.now)
    world.kube.fail("workloads", port.RefusedByServer("forbidden"), times=1)
    with pytest.raises(port.RefusedByServer):
        look(world)
    assert [by for by, *_ in runs()] == ["job train/llm"]


def test_checks_that_find_no_room_for_an_hour_are_dropped(world: World) -> None:
    for number in range(services.MAX_RUNS):
        services.begin(world.cluster, [world.node()], checks=("ping",), actor=f"user:{number}", now=world.now)
    ask(world, "llm", "true", "gpu-1")
    look(world)
    end(world)
    look(world)
    assert WatchedJob.objects.get().state == "ended"
    world.now += timedelta(hours=1)
    look(world)
    row = WatchedJob.objects.get()
    assert (row.state, row.because["code"]) == ("declined", "check_runs_full")


def test_a_namespace_asks_no_more_often_than_its_share(world: World) -> None:
    rows = [
        WatchedJob(
            cluster=world.cluster,
            namespace="train",
            kind="Job",
            name="j",
            uid=str(number),
            profile="true",
            state="requested",
            seen_at=world.now,
            ended_at=world.now,
        )
        for number in range(job_ends.MAX_RUNS_OF_NAMESPACE)
    ]
    WatchedJob.objects.bulk_create(rows)
    ask(world, "llm", "true", "gpu-1")
    look(world)
    end(world)
    look(world)
    assert WatchedJob.objects.get(name="llm").because["code"] == "check_after_too_many"
    assert runs() == []


@pytest.mark.parametrize("call", ["workloads", "list_pods"])
def test_a_worker_that_dies_requests_the_check_exactly_once(world: World, call: str) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    end(world)
    worker_kills.kill_at(world.kube, call, call=1, after=True)
    with pytest.raises(worker_kills.Killed):
        look(world)
    look(world, 3)
    assert len(runs()) == 1


def test_old_rows_are_deleted(world: World) -> None:
    ask(world, "llm", "true", "gpu-1")
    look(world)
    end(world)
    look(world)
    services.prune_jobs(now=world.now + retention.time(WatchedJob))
    assert WatchedJob.objects.count() == 0
    look(world, 3)
    assert len(runs()) == 1
