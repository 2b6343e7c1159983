"""Pair tests on the simulator's Jobs and kubelets, over HTTP: slow nodes are found, and a test is never lost."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.errors import FieldError
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings, node_selection
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_jobs, pair_plans
from kcover_portal.preflight.services.pair_plans import PlanRefused, Wish
from tests.contract import over_http
from tests.portal.jobs.sim_world import Simulated, SimWorld

pytestmark = pytest.mark.django_db
NAMESPACE = "kcover-preflight"


@pytest.fixture(scope="module")
def simulated() -> Iterator[tuple[Simulated, over_http.SimulatorRig]]:
    made = Simulated(nodes=8)
    with over_http.simulator(made.objects) as rig:
        rig.inside(lambda: made.objects.create("Namespace", {"metadata": {"name": NAMESPACE}}))
        yield made, rig


@pytest.fixture
def sim(simulated: tuple[Simulated, over_http.SimulatorRig], db: None) -> Iterator[SimWorld]:
    made = SimWorld(*simulated)
    Cluster.objects.update(nccl_image="pytorch:2")
    made.cluster.refresh_from_db()
    yield made
    for host in simulated[0].built.machines.values():
        host.speed = 1.0
    made.uninstall()


def names(sim: SimWorld) -> list[str]:
    return list(Node.objects.filter(cluster=sim.cluster).order_by("name").values_list("name", flat=True))


def begin(sim: SimWorld, *hosts: str, **wish: Any) -> PairPlan:
    nodes = node_selection.nodes(sim.cluster, hosts=hosts)
    return pair_plans.begin(sim.cluster, nodes, Wish(**wish), actor="user:ann", now=sim.now)


def finish(sim: SimWorld, plan: PairPlan, *, seconds: int = 600) -> PairPlan:
    for _ in range(seconds // 2):
        pair_plans.advance(plan.pk, now=sim.now)
        plan.refresh_from_db()
        if plan.state != "running":
            return plan
        sim.pass_time(2)
    raise AssertionError("the plan does not end")


def slow(sim: SimWorld, name: str, speed: float = 0.6) -> None:
    sim.simulated.built.machines[name].speed = speed


def jobs(sim: SimWorld) -> int:
    return len(sim.rig.inside(lambda: list(sim.simulated.objects.list("Job", namespace=NAMESPACE))))


def test_a_sound_fleet_passes_and_leaves_nothing_behind(sim: SimWorld) -> None:
    plan = finish(sim, begin(sim))
    print(plan.tests.first().because)
    assert (plan.state, plan.slow, plan.fabric, plan.inconclusive) == ("finished", [], [], [])
    tests = list(plan.tests.all())
    assert {test.state for test in tests} == {"passed"}
    assert {test.round for test in tests} == {1, 2, 3, 4, 5}
    assert all(test.device and test.best == 480 and len(test.busbw) == 3 for test in tests)
    assert jobs(sim) == 0
    assert queries.running_plans() == []
    verbs = list(Entry.objects.filter(verb__startswith="pair").order_by("id").values_list("verb", flat=True))
    assert verbs[0] == "pair_plan.requested"
    assert verbs[-1] == "pair_plan.finished"
    assert verbs.count("pair_test.begun") == verbs.count("pair_test.done") == len(tests) == 20


def test_a_slow_node_becomes_an_incident_and_a_later_clean_plan_closes_it(sim: SimWorld) -> None:
    bad = names(sim)[2]
    slow(sim, bad)
    plan = finish(sim, begin(sim))
    assert (plan.slow, plan.inconclusive) == ([bad], [])
    assert not plan.tests.exclude(confirms="").exists()
    incident = Incident.objects.get()
    assert (incident.kind, incident.code, incident.node and incident.node.name) == ("preflight", "slow", bad)
    slow(sim, bad, speed=1.0)
    sim.pass_time(5)
    finish(sim, begin(sim))
    incident.refresh_from_db()
    assert (incident.state, incident.closed_because["code"]) == ("closed", "pair_cleared")


def test_a_node_that_fails_sometimes_is_confirmed(sim: SimWorld) -> None:
    bad = names(sim)[5]
    plan = begin(sim)
    for number in range(300):
        first = plan.tests.filter(state__in=("pending", "running")).order_by("round").first()
        slow(sim, bad, 0.5 if first is not None and first.round in (1, 3, 6) else 1.0)
        pair_plans.advance(plan.pk, now=sim.now)
        plan.refresh_from_db()
        if plan.state != "running":
            break
        sim.pass_time(2)
    confirmations = plan.tests.filter(confirms=bad)
    assert {test.round for test in confirmations} == {6}
    assert confirmations.count() == 3
    assert plan.slow == [bad]


def test_kcovers_rule_names_only_who_failed_everywhere(sim: SimWorld) -> None:
    bad = names(sim)[1]
    slow(sim, bad)
    plan = finish(sim, begin(sim, rule="kcover", rounds=3))
    assert plan.slow == [bad]


def test_two_nodes_alone_are_inconclusive(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    slow(sim, first)
    plan = finish(sim, begin(sim, first, second))
    assert (plan.slow, plan.inconclusive) == ([], [first, second])
    assert Incident.objects.count() == 0


def test_a_node_that_cannot_run_a_job_is_inconclusive_and_not_slow(sim: SimWorld) -> None:
    first, second, third, dead, *_ = names(sim)
    sim.simulated.built.machines[dead].hang()
    try:
        plan = finish(sim, begin(sim, first, second, third, dead), seconds=4_000)
    finally:
        sim.simulated.built.machines[dead].repair()
        sim.pass_time(60)
    assert (plan.slow, plan.inconclusive) == ([], [dead])
    late = plan.tests.filter(state="error")
    assert {test.because["code"] for test in late} == {"pair_job_late"}
    assert late.count() == 3


def test_a_worker_that_dies_between_row_and_call_loses_no_test(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    PairTest.objects.filter(plan=plan).update(state="running", begun_at=sim.now)  # and no Job was created
    assert finish(sim, plan).tests.get().state == "passed"


def test_a_worker_that_dies_with_the_lease_holds_the_plan_for_two_minutes(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    PairPlan.objects.filter(pk=plan.pk).update(busy_until=sim.now + pair_plans.LEASE)
    pair_plans.advance(plan.pk, now=sim.now)
    assert plan.tests.get().state == "pending"
    pair_plans.advance(plan.pk, now=sim.now + pair_plans.LEASE)
    assert plan.tests.get().state == "running"


@pytest.mark.parametrize("mode", ["paused", "shadow"])
def test_nothing_is_written_in_modes_without_writes(sim: SimWorld, mode: str) -> None:
    plan = begin(sim)
    Cluster.objects.update(mode=mode)
    pair_plans.advance(plan.pk, now=sim.now)
    assert jobs(sim) == 0
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_mode"
    pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)


def test_a_cancelled_plan_ends_its_jobs(sim: SimWorld) -> None:
    plan = begin(sim)
    pair_plans.advance(plan.pk, now=sim.now)
    assert jobs(sim) == 8
    pair_plans.cancel(plan, actor="user:ann", reason="enough", now=sim.now)
    assert jobs(sim) == 0
    pair_plans.advance(plan.pk, now=sim.now)
    plan.refresh_from_db()
    assert plan.state == "cancelled"
    with pytest.raises(PlanRefused) as refused:
        pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)
    assert refused.value.reason.code == "pair_plan_ended"


@pytest.mark.parametrize(
    ("wish", "field", "code"),
    [
        ({"rounds": 0}, "rounds", "pair_rounds"),
        ({"rounds": 16}, "rounds", "pair_rounds"),
        ({"rule": "mine"}, "rule", "pair_rule"),
        ({"threshold": 0.0}, "threshold", "pair_threshold"),
        ({"threshold": float("nan")}, "threshold", "pair_threshold"),
    ],
)
def test_a_bad_wish_is_refused(sim: SimWorld, wish: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(FieldError) as refused:
        begin(sim, **wish)
    assert (refused.value.field, refused.value.reason.code) == (field, code)


def test_excluded_nodes_and_single_nodes_are_refused(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    with pytest.raises(FieldError) as refused:
        begin(sim, first)
    assert refused.value.reason.code == "pair_nodes"
    Node.objects.filter(name=second).update(labels={"kcover.io/exclude": "true"})
    with pytest.raises(FieldError) as refused:
        begin(sim, first, second)
    assert refused.value.reason.code == "pair_nodes_excluded"


def test_a_cluster_without_an_image_runs_no_tests(sim: SimWorld) -> None:
    Cluster.objects.update(nccl_image="")
    sim.cluster.refresh_from_db()
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_no_image"


def test_a_cluster_runs_few_plans_at_once(sim: SimWorld) -> None:
    for _ in range(pair_plans.MAX_RUNNING_PLANS):
        begin(sim)
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_plans_full"


def test_the_jobs_ask_for_gpus_and_the_network_of_the_node(sim: SimWorld) -> None:
    cluster_settings.set_cluster(
        sim.cluster, {"nccl_resources": "rdma/hca=1"}, actor="user:ann", reason="", now=sim.now
    )
    plan = begin(sim)
    pair_plans.advance(plan.pk, now=sim.now)
    found = sim.rig.inside(lambda: list(sim.simulated.objects.list("Job", namespace=NAMESPACE)))
    pods = [job["spec"]["template"]["spec"] for job in found]
    assert all(pod["hostNetwork"] and not pod["containers"][0]["securityContext"]["privileged"] for pod in pods)
    assert {str(pod["containers"][0]["resources"]["limits"]) for pod in pods} == {
        str({"nvidia.com/gpu": str(plan.gpus), "rdma/hca": "1"})
    }
    assert {pod["nodeName"] for pod in pods} == set(names(sim))
    assert all(pod["containers"][0]["command"][2] == pair_jobs.PROGRAM for pod in pods)
    pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)


@pytest.mark.parametrize("value", ["rdma/hca", "rdma/hca=0", "=1", "a b=1"])
def test_bad_resources_are_refused(sim: SimWorld, value: str) -> None:
    with pytest.raises(FieldError) as refused:
        cluster_settings.set_cluster(sim.cluster, {"nccl_resources": value}, actor="user:ann", reason="", now=sim.now)
    assert (refused.value.field, refused.value.reason.code) == ("nccl_resources", "pair_resources")


def test_a_job_that_ends_with_an_error_is_no_failure_of_the_pair(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    pair_plans.advance(plan.pk, now=sim.now)
    sim.pass_time(2)
    pods = sim.rig.inside(lambda: list(sim.simulated.objects.list("Pod", namespace=NAMESPACE)))
    sim.rig.inside(lambda: sim.simulated.crash(pods[0]))
    plan = finish(sim, plan)
    test = plan.tests.get()
    assert (test.state, test.because["code"], test.because["params"]["why"]) == (
        "error",
        "pair_job_failed",
        "NCCL error",
    )
    assert (plan.slow, plan.inconclusive) == ([], [first, second])
    assert plan.finished_at is not None
    assert plan.finished_at - plan.requested_at < timedelta(minutes=2)
