"""Pair tests on a schedule: which nodes they take, when they begin again, and which spares they let stand in."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover.decisions import standby
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.preflight import tasks
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightGate
from kcover_portal.preflight.services import pair_schedule, pair_verdicts
from kcover_portal.rescue.queries import standbys
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
SPARE = {standby.LABEL: "true", standby.PROOF: "true"}


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy="", nodes=6)
    Cluster.objects.update(nccl_image="pytorch:2", nccl_every=24, standby_tested=True)
    made.cluster.refresh_from_db()
    yield made
    made.uninstall()


def due(world: World) -> list[str] | None:
    """The nodes of the plan that begins now; None: none begins."""
    plan = pair_schedule.begin_due(Cluster.objects.get(pk=world.cluster.pk), now=world.now)
    if plan is None:
        return None
    tests = plan.tests.select_related("first", "second")
    return sorted({name for test in tests for name in (test.first.name, test.second.name)})


def ends(world: World, *busy: str) -> None:
    """The tests of the last plan pass, except for those of nodes that found work."""
    plan = PairPlan.objects.latest("pk")
    PairTest.objects.filter(plan=plan).update(state="passed", finished_at=world.now)
    for name in busy:
        PairTest.objects.filter(plan=plan, first__name=name).update(state="error")
        PairTest.objects.filter(plan=plan, second__name=name).update(state="error")
    assert not pair_verdicts.go_on(plan, now=world.now)


def test_idle_nodes_and_spares_are_tested_and_begin_again_when_it_is_time(world: World) -> None:
    world.kube.add_pod("default", "train-0", node="gpu-1", gpus=8)
    Node.objects.filter(name="gpu-2").update(unschedulable=True)
    Node.objects.filter(name="gpu-3").update(unschedulable=True, labels=SPARE)
    Node.objects.filter(name="gpu-4").update(ready=False)
    assert due(world) == ["gpu-3", "gpu-5", "gpu-6"]
    plan = PairPlan.objects.get()
    assert (plan.scheduled, plan.requested_by, plan.reason) == (True, "system", "schedule")
    world.now += timedelta(hours=25)
    assert due(world) is None, "the last one has not ended"
    ends(world)
    assert due(world) is not None
    ends(world)
    world.now += timedelta(hours=23)
    assert due(world) is None


@pytest.mark.parametrize(
    "change", [{"nccl_every": 0}, {"nccl_image": ""}, {"mode": "paused"}, {"mode": "shadow"}], ids=str
)
def test_no_scheduled_plan_begins_where_it_is_disabled(world: World, change: dict[str, object]) -> None:
    Cluster.objects.update(**change)
    assert due(world) is None


def test_two_nodes_are_too_few(world: World) -> None:
    Node.objects.exclude(name__in=("gpu-1", "gpu-2")).update(ready=False)
    assert due(world) is None


def test_a_node_that_finds_work_meanwhile_keeps_its_gate(world: World) -> None:
    gate = PreflightGate.objects.create(node=world.node("gpu-1"), node_uid=world.node("gpu-1").uid, passed_at=world.now)
    assert due(world) is not None
    ends(world, "gpu-1")
    gate.refresh_from_db()
    assert (gate.passed_at, gate.plan) == (world.now, None)
    assert PreflightGate.objects.get(node=world.node("gpu-2")).passed_at is not None


def test_a_spare_is_free_only_while_its_tests_hold(world: World) -> None:
    Node.objects.filter(name="gpu-3").update(labels=SPARE)

    def busy() -> list[str | None]:
        found = standbys.spares(world.cluster.nodes.all(), now=world.now)
        return [one.busy.code if one.busy else None for one in found]

    assert busy() == ["standby_untested"]
    assert due(world) is not None
    ends(world)
    assert busy() == [None]
    world.now += timedelta(days=8)
    assert busy() == ["standby_untested"]
    Cluster.objects.update(standby_tested=False)
    assert busy() == [None]


def test_a_cluster_that_does_not_answer_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise port.Unavailable("down")

    monkeypatch.setattr(world.kube, "list_pods", silent)
    tasks.begin_scheduled_in(world.cluster.pk)
    assert not PairPlan.objects.exists()
