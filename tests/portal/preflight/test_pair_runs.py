"""A test is never lost, never left behind, and never made where it must not be."""

from datetime import datetime, timedelta

import pytest

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.preflight.models import PairPlan, PairTest
from kcover_portal.preflight.services import pair_jobs, pair_plans, pair_runs
from kcover_portal.preflight.services.pair_plans import PlanRefused
from tests.portal.jobs.sim_world import SimWorld
from tests.portal.preflight.pair_world import NAMESPACE, begin, finish, jobs, names, work

pytestmark = pytest.mark.django_db


def test_a_node_that_hangs_is_waited_for_once_and_is_not_slow(sim: SimWorld) -> None:
    first, second, third, dead, *_ = names(sim)
    Node.objects.filter(name=dead).update(ready=False)
    began = sim.now
    plan = finish(sim, begin(sim, first, second, third, dead), seconds=4_000)
    assert (plan.slow, plan.inconclusive) == ([], [dead])
    late = plan.tests.filter(state="error")
    assert {test.because["code"] for test in late} == {"pair_node_not_ready"}
    assert late.count() == 3
    assert sim.now - began < 2 * pair_runs.WAIT_LIMIT


def test_a_job_that_never_runs_is_inconclusive_and_not_slow(sim: SimWorld) -> None:
    first, second, third, dead, *_ = names(sim)
    sim.rig.inside(lambda: sim.simulated.built.machines[dead].hang())
    try:
        plan = finish(sim, begin(sim, first, second, third, dead, rounds=1), seconds=4_000)
    finally:
        sim.rig.inside(lambda: sim.simulated.built.machines[dead].repair())
        sim.pass_time(60)
    assert plan.slow == []
    assert dead in plan.inconclusive
    assert {test.because["code"] for test in plan.tests.filter(state="error")} == {"pair_job_late"}


def test_nodes_with_other_work_are_waited_for_and_then_left_out(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    sim.add("PyTorchJob", "train", size=8)
    try:
        plan = begin(sim, first, second)
        work(sim, plan)
        test = plan.tests.get()
        assert (test.state, test.because["code"], jobs(sim)) == ("pending", "pair_node_busy", 0)
        finish(sim, plan, seconds=1_000)
        test.refresh_from_db()
        assert (test.state, test.because["code"]) == ("error", "pair_node_busy")
        assert plan.inconclusive == [first, second]
        # With leave to test busy nodes the kubelet decides whether there are GPUs.
        allowed = begin(sim, first, second, busy_nodes=True)
        work(sim, allowed)
        assert jobs(sim) == 2
    finally:
        sim.rig.inside(lambda: sim.simulated.objects.delete("PyTorchJob", "training", "train"))
        sim.pass_time(30)


def test_a_foreign_job_of_the_same_name_is_not_used(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    name = pair_jobs.names(plan, plan.tests.get())[0]
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    foreign = {"metadata": {"namespace": NAMESPACE, "name": name}, "spec": {"template": template}}
    sim.rig.inside(lambda: sim.simulated.objects.create("Job", foreign))
    work(sim, plan)
    test = plan.tests.get()
    assert (test.state, test.because["code"]) == ("error", "pair_job_foreign")
    sim.rig.inside(lambda: sim.simulated.objects.delete("Job", NAMESPACE, name))


def test_a_worker_that_dies_between_row_and_call_loses_no_test(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    PairTest.objects.filter(plan=plan).update(state="running", begun_at=sim.now)  # and no Job was created
    assert finish(sim, plan).tests.get().state == "passed"


def test_a_worker_that_dies_with_the_lease_holds_the_plan_until_it_runs_out(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    PairPlan.objects.filter(pk=plan.pk).update(busy_until=sim.now + pair_runs.LEASE)
    work(sim, plan)
    assert plan.tests.get().state == "pending"
    pair_runs.advance(plan.pk, clock=lambda: sim.now + pair_runs.LEASE)
    assert plan.tests.get().state == "running"


QUIET = [{"mode": "paused"}, {"mode": "shadow"}, {"acted_on_by": "NVSentinel"}]


@pytest.mark.parametrize("quiet", QUIET, ids=str)
def test_nothing_is_written_in_modes_without_writes(sim: SimWorld, quiet: dict[str, str]) -> None:
    first, second, *others = names(sim)
    running, waiting = begin(sim, first, second), begin(sim, *others)
    work(sim, running)
    Cluster.objects.update(**quiet)
    sim.cluster.refresh_from_db()
    before = sim.rig.writes()
    for plan in (running, waiting):
        for _ in range(5):
            work(sim, plan)
            sim.pass_time(20)
    with pytest.raises(PlanRefused) as refused:
        begin(sim)
    assert refused.value.reason.code == "pair_mode"
    pair_plans.cancel(running, actor="user:ann", reason="", now=sim.now)
    work(sim, running)
    assert sim.rig.writes() == before
    assert PairTest.objects.filter(plan=waiting).exclude(state="pending").count() == 0
    Cluster.objects.update(mode="enforce", acted_on_by="")
    sim.pass_time(30)
    work(sim, running)
    work(sim, waiting)
    assert sim.rig.writes() > before


def test_a_cancelled_plan_ends_its_jobs(sim: SimWorld) -> None:
    plan = begin(sim)
    work(sim, plan)
    assert jobs(sim) == 8
    before = sim.rig.writes()
    pair_plans.cancel(plan, actor="user:ann", reason="enough", now=sim.now)
    assert sim.rig.writes() == before  # the process that serves pages has no right to
    assert {test.state for test in plan.tests.all()} == {"cancelled"}
    work(sim, plan)
    assert jobs(sim) == 0
    assert (plan.state, plan.cleaned) == ("cancelled", False)  # a late worker may create one more
    sim.pass_time(pair_runs.LEASE.total_seconds())
    work(sim, plan)
    assert plan.cleaned
    with pytest.raises(PlanRefused) as refused:
        pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)
    assert refused.value.reason.code == "pair_plan_ended"


def test_a_worker_that_is_late_creates_nothing_for_a_cancelled_plan(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    late: list[bool] = []

    def clock() -> datetime:
        """The plan is cancelled in the middle of the worker's look."""
        if PairTest.objects.filter(plan=plan, state="running").exists() and not late:
            late.append(True)
            pair_plans.cancel(plan, actor="user:ann", reason="", now=sim.now)
        return sim.now

    PairTest.objects.filter(plan=plan).update(state="running", begun_at=sim.now)
    before = sim.rig.writes()
    pair_runs.advance(plan.pk, clock=clock)
    assert late
    assert sim.rig.writes() == before
    assert PairPlan.objects.get(pk=plan.pk).busy_until is None  # its Jobs are deleted without a wait for the lease


def test_jobs_that_a_dead_worker_left_are_deleted(sim: SimWorld) -> None:
    first, second, third, fourth, *_ = names(sim)
    plan = begin(sim, first, second, third, fourth, rounds=2)
    work(sim, plan)
    sim.pass_time(1)
    PairTest.objects.filter(plan=plan, place=0).update(state="error", finished_at=sim.now)  # and died before the call
    work(sim, plan)
    left = sim.rig.inside(
        lambda: [job["metadata"]["name"] for job in sim.simulated.objects.list("Job", namespace=NAMESPACE)]
    )
    assert not set(left) & set(pair_jobs.names_of_places(plan, [0]))


def test_a_job_that_ends_with_an_error_is_no_failure_of_the_pair(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    plan = begin(sim, first, second)
    work(sim, plan)
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
