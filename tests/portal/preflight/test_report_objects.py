"""``PreflightReport`` objects of the cluster: read once each, and only for nodes on which the workload runs."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services.cluster_settings import set_cluster
from kcover_portal.kube import bounds, port
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight import services, tasks
from kcover_portal.preflight.models import PreflightReport, PreflightRun, ReadReportObject
from kcover_portal.preflight.services import report_objects
from kcover_portal.runtime.services import leases
from kcover_portal.shared_reads import portal_checks
from tests.codes import refused
from tests.portal.preflight.test_runs import raw
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
KIND = port.PREFLIGHT_REPORT


@pytest.fixture
def world() -> Iterator[World]:
    made = World(policy="", nodes=4)
    made.kube.add_namespace("ml")
    set_cluster(made.cluster, {"preflight_namespaces": "ml, evil"}, actor="test", reason="", now=made.now)
    yield made
    made.uninstall()


def in_job(world: World, *numbers: int) -> None:
    for number in numbers:
        world.kube.add_pod("ml", f"job-{number}", node=f"gpu-{number}", labels={"batch.kubernetes.io/job-name": "job"})


def put(world: World, node: int, *, name: str = "", report: Any = None, **spec: Any) -> None:
    text = json.dumps(raw(node) if report is None else report)
    stated = {"workloadName": "job", "workloadUID": "u1", "nodeName": f"gpu-{node}", "rank": node, "report": text}
    world.kube.put_custom_object(KIND, name or f"preflight-{node}", {**stated, **spec}, namespace="ml")


def read(world: World) -> int:
    return services.read_report_objects(world.cluster, now=world.now)


def test_the_objects_of_a_job_become_a_run(world: World) -> None:
    in_job(world, 1, 2, 3, 4)
    for node in (1, 2, 3, 4):
        put(world, node)
    assert read(world) == 4
    run = PreflightRun.objects.get()
    assert (run.namespace, run.workload, run.uid, run.state) == ("ml", "job", "u1", "complete")
    assert read(world) == 0
    world.kube.remove_custom_object(KIND, "preflight-1", namespace="ml")
    assert read(world) == 0
    assert ReadReportObject.objects.count() == 3


def test_objects_of_one_namespace_delay_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_objects, "MAX_REPORTS_PER_ROUND", 2)
    world.kube.add_namespace("evil")
    for number in range(4):
        world.kube.put_custom_object(KIND, f"a-{number}", {}, namespace="evil")
    in_job(world, 1)
    put(world, 1)
    assert read(world) == 2
    assert PreflightRun.objects.get().namespace == "ml"


def test_inv_47_a_forged_object_counts_for_no_node_without_the_workload(world: World) -> None:
    in_job(world, 1)
    put(world, 1)
    put(world, 2, report=raw(2, gpu_check=2))
    put(world, 3, name="liar", report=raw(1, gpu_check=2))
    assert read(world) == 3
    run = PreflightRun.objects.get()
    assert (run.received, run.abnormal) == (1, [])


@pytest.mark.parametrize(
    "spec",
    [
        {"report": "{"},
        {"report": "[" * 50_000},
        {"report": 7},
        {"report": "[1]"},
        {"report": "x" * 300_000},
        {"nodeName": ""},
        {"workloadName": ["job"]},
        {"workloadUID": "u" * 65},
        {"report": '{"workload_size": NaN, "node_name": "gpu-1"}'},
    ],
)
def test_an_invalid_object_is_read_once_and_does_not_stop_the_others(world: World, spec: dict[str, Any]) -> None:
    in_job(world, 1, 2)
    put(world, 1, **spec)
    put(world, 2)
    assert read(world) == 2
    assert PreflightRun.objects.get().received == 1
    assert read(world) == 0


@pytest.mark.parametrize("rank", ["\ud800", float("nan"), float("-inf"), ["\ud800"], {"a": float("inf")}], ids=ascii)
def test_a_field_that_no_database_stores_stops_no_other_object(rank: Any, world: World) -> None:
    in_job(world, 1, 2)
    put(world, 1, report={**raw(1), "rank": rank})
    put(world, 2)
    assert read(world) == 2
    assert PreflightRun.objects.get().received == 2


def test_an_object_of_long_ago_begins_no_run(world: World) -> None:
    in_job(world, 1)
    put(world, 1)
    world.now += timedelta(minutes=31)
    assert read(world) == 1
    assert not PreflightRun.objects.exists()


def test_a_report_has_the_time_of_its_object(world: World) -> None:
    """A portal that was away reads it late; the node may have rebooted since."""
    in_job(world, 1)
    made_at = world.now
    put(world, 1, report=raw(1, gpu_check=2))
    world.now += timedelta(minutes=10)
    assert read(world) == 1
    assert PreflightReport.objects.get().at == made_at - report_objects.CLOCK_ERROR


def test_a_silent_cluster_loses_no_object(world: World) -> None:
    in_job(world, 1)
    put(world, 1)
    world.kube.fail("list_pods", port.Unavailable("down"))
    assert read(world) == 0
    assert read(world) == 1


def test_objects_count_in_named_namespaces_only(world: World) -> None:
    """A user who runs a job of their own could otherwise write its reports, and call its nodes faulty."""
    in_job(world, 1)
    put(world, 1)
    set_cluster(world.cluster, {"preflight_namespaces": "research"}, actor="test", reason="", now=world.now)
    assert read(world) == 0
    set_cluster(world.cluster, {"preflight_namespaces": "*"}, actor="test", reason="", now=world.now)
    assert read(world) == 1


def test_no_namespace_counts_by_default() -> None:
    assert Cluster().preflight_namespaces == ""


@pytest.mark.parametrize("value", ["ml, *", "Research", "a/b", "-ml", "x" * 64, True, ["ml"], "ml\0"])
def test_names_that_no_namespace_can_have_are_refused(world: World, value: Any) -> None:
    with refused(FieldError, "namespaces_invalid"):
        set_cluster(world.cluster, {"preflight_namespaces": value}, actor="test", reason="", now=world.now)


def test_names_are_kept_in_order(world: World) -> None:
    set_cluster(world.cluster, {"preflight_namespaces": " team-b,ml  ml"}, actor="test", reason="", now=world.now)
    assert world.cluster.preflight_namespaces == "ml,team-b"


@pytest.mark.parametrize(("setting", "listed"), [("", []), ("ml", ["ml"]), ("ml, evil", ["evil", "ml"]), ("*", [""])])
def test_objects_of_other_namespaces_are_not_read(world: World, setting: str, listed: list[str]) -> None:
    set_cluster(world.cluster, {"preflight_namespaces": setting}, actor="test", reason="", now=world.now)
    world.kube.add_namespace("other")
    world.kube.put_custom_object(KIND, "large", {"report": "x" * 100_000}, namespace="other")
    read(world)
    assert [call.namespace for call in world.kube.called("custom_objects")] == listed


def test_a_namespace_with_too_many_is_a_problem_of_the_portal(world: World) -> None:
    in_job(world, 1)
    put(world, 1)
    world.kube.fail("custom_objects", bounds.TooLarge("a list has more than 1 bytes"))
    read(world)  # of the first namespace fails
    [found] = [one for one in portal_checks.problems(now=world.now) if one.check.startswith("objects")]
    assert (found.because.code, found.cluster) == ("report_objects_unread", world.cluster.pk)
    read(world)
    assert not any(one.check.startswith("objects") for one in portal_checks.problems(now=world.now))


def test_one_read_of_a_cluster_runs_at_a_time(world: World) -> None:
    in_job(world, 1)
    put(world, 1)
    name = f"preflight reports {world.cluster.pk}"
    later = timezone.now() + timedelta(minutes=1)
    assert leases.acquire(name, holder="another worker", until=later, now=timezone.now())
    tasks.read_objects_of(world.cluster.pk)
    assert world.kube.called("custom_objects") == []
    leases.release(name, holder="another worker", now=timezone.now())
    tasks.read_objects_of(world.cluster.pk)
    assert len(world.kube.called("custom_objects")) == 2
