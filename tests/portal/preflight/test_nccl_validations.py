"""NCCL in validations, on the simulator's Jobs: who passes, who is refused, and what proves nothing."""

from typing import Any

import pytest
from django.test import Client

from kcover_portal.accounts.models import User
from kcover_portal.checks import queries, services as check_runs, tasks
from kcover_portal.checks.models import Validation
from kcover_portal.checks.services import validation_profiles, validations
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_selection
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight.models import PairPlan
from kcover_portal.preflight.services import pair_plans
from tests.codes import code_of
from tests.portal.checks.test_check_runs import answer
from tests.portal.jobs.sim_world import SimWorld
from tests.portal.preflight.pair_world import finish, jobs, names, slow, work

pytestmark = pytest.mark.django_db

AGENT = {"check": "pciebw"}
NODE: dict[str, Any] = {"check": "nccl", "busbw": 400}
PAIR: dict[str, Any] = {"check": "nccl_pair", "busbw": 350}


@pytest.fixture
def sim(sim: SimWorld) -> Any:
    yield sim
    for host in sim.simulated.built.machines.values():
        host.nccl_fails = False


def begin(sim: SimWorld, *hosts: str, profile: tuple[dict[str, Any], ...] = (NODE,), bad: str = "") -> Validation:
    """A validation whose agents have answered. ``bad``: a node that fails its check."""
    validation_profiles.change("full", {"checks": [AGENT, *profile]}, actor="user:ada", reason="", now=sim.now)
    for name in hosts:
        sim.report(node=name, boot_id=Node.objects.get(name=name).boot_id)
    row = validations.begin(
        sim.cluster,
        node_selection.nodes(sim.cluster, hosts=hosts),
        profile="full",
        reason="new board",
        actor="user:ann",
        now=sim.now,
    )
    assert row.run_id is not None
    check_runs.advance(row.run_id, now=sim.now)
    for name in hosts:
        answer(sim, name, {"name": "pciebw", "status": "fail" if name == bad else "pass"})
    check_runs.advance(row.run_id, now=sim.now)
    return conclude(sim, row)


def conclude(sim: SimWorld, row: Validation) -> Validation:
    assert row.run_id is not None
    validations.conclude(row.run_id, now=sim.now)
    return Validation.objects.select_related("nccl_plan").get(pk=row.pk)


def finished(sim: SimWorld, row: Validation) -> Validation:
    """The validation once its tests have ended."""
    assert row.nccl_plan is not None
    assert row.state == "running"
    finish(sim, row.nccl_plan)
    tasks.conclude_nccl(row.nccl_plan.pk)
    return Validation.objects.select_related("nccl_plan").get(pk=row.pk)


def verdicts(row: Validation) -> dict[str, tuple[str, list[str]]]:
    return {one.node.name: (one.state, [code_of(why) for why in one.because]) for one in row.nodes.all()}


def results(row: Validation, node: str) -> dict[str, dict[str, Any]]:
    one = row.nodes.get(node__name=node)
    return {each["name"]: each for each in queries.validation_results(row)[one.pk]}


def test_one_node_passes_and_one_is_refused_for_its_bus_bandwidth(sim: SimWorld) -> None:
    good, weak, *_ = names(sim)
    slow(sim, weak)
    row = finished(sim, begin(sim, good, weak, profile=(NODE, PAIR)))
    assert row.state == "failed"
    assert verdicts(row) == {good: ("passed", []), weak: ("failed", ["validation_failures", "validation_skipped"])}
    found = results(row, good)
    assert {name: (one["status"], one["proof"]) for name, one in found.items()} == dict.fromkeys(
        ("pciebw", "nccl", "nccl_pair"), ("pass", "hardware")
    )
    assert {name: one["reported_by"] for name, one in found.items()} == {
        "pciebw": "agent",
        "nccl": "job",
        "nccl_pair": "pair",
    }
    assert (found["nccl"]["value"], found["nccl"]["unit"]) == (480.0, "GB/s")
    assert found["nccl"]["busbw"] == {"8388608": 192.0, "134217728": 408.0, "8589934592": 480.0}
    refused = results(row, weak)
    assert (refused["nccl"]["status"], refused["nccl"]["value"]) == ("fail", 288.0)
    assert refused["nccl"]["because"]["params"]["limit"] == "400"
    assert refused["nccl_pair"]["because"]["code"] == "nccl_after_failure", "a node that is slow alone meets nobody"
    fault = Incident.objects.get(kind="preflight")
    assert (fault.node and fault.node.name, fault.code, fault.state) == (weak, "slow", "open")
    # Repaired, it passes, which ends the fault.
    slow(sim, weak, 1.0)
    sim.pass_time(60)
    assert finished(sim, begin(sim, weak, profile=(NODE, PAIR))).state == "passed"
    fault.refresh_from_db()
    assert fault.state == "closed"
    requested = Entry.objects.filter(verb="pair_plan.requested").latest("pk")
    assert (requested.actor, requested.data["rule"], requested.data["nodes"]) == ("user:ann", "validation", [weak])


def test_a_slow_link_is_found_with_two_partners(sim: SimWorld) -> None:
    weak, *_others = names(sim)
    slow(sim, weak)
    row = finished(sim, begin(sim, weak, profile=(PAIR,)))
    assert verdicts(row) == {weak: ("failed", ["validation_failures"])}
    assert row.nccl_plan is not None
    tests = list(row.nccl_plan.tests.all())
    assert [(test.first.name, test.state) for test in tests] == [(weak, "failed")] * 2
    assert len({test.second.name for test in tests}) == 2
    assert (row.nccl_plan.slow, row.nccl_plan.rule) == ([weak], "validation")


def test_a_failed_all_reduce_is_no_proof(sim: SimWorld) -> None:
    broken, *_ = names(sim)
    sim.simulated.built.machines[broken].nccl_fails = True
    row = finished(sim, begin(sim, broken))
    assert (row.state, verdicts(row)[broken]) == ("error", ("error", ["validation_errors"]))
    found = results(row, broken)["nccl"]
    assert (found["status"], found["proof"], found["because"]["code"]) == ("error", "none", "pair_job_failed")
    assert "NCCL error" in found["because"]["params"]["why"]


def test_no_test_where_it_cannot_be(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    Node.objects.filter(name=first).update(gpus=1)
    row = begin(sim, first)
    assert (row.state, row.nccl_plan) == ("error", None)
    assert results(row, first)["nccl"]["because"]["code"] == "nccl_too_few_gpus"
    row = begin(sim, second, bad=second)
    assert (row.state, row.nccl_plan) == ("failed", None)
    assert results(row, second)["nccl"]["because"]["code"] == "nccl_after_failure"
    Cluster.objects.update(nccl_image="")
    sim.cluster.refresh_from_db()
    row = begin(sim, second, profile=({**NODE, "required": False},))
    assert (row.state, row.nccl_plan) == ("passed", None)
    assert results(row, second)["nccl"]["because"]["code"] == "pair_no_image"
    assert jobs(sim) == 0


def test_a_test_waits_for_other_plans_and_for_the_end_of_a_pause(sim: SimWorld) -> None:
    first, second, *_ = names(sim)
    other = pair_plans.begin(
        sim.cluster,
        node_selection.nodes(sim.cluster, hosts=(first, second)),
        pair_plans.Wish(),
        actor="user:bo",
        now=sim.now,
    )
    row = begin(sim, first)
    assert (row.state, row.nccl_plan) == ("running", None)
    assert list(queries.due_validations()) == [row]
    pair_plans.cancel(other, actor="user:bo", reason="", now=sim.now)
    Cluster.objects.update(mode="paused")
    row = conclude(sim, row)
    assert (row.state, row.nccl_plan) == ("running", None)
    Cluster.objects.update(mode="enforce")
    row = conclude(sim, row)
    assert row.nccl_plan is not None
    assert list(queries.due_validations()) == []
    assert conclude(sim, row).nccl_plan == row.nccl_plan
    # A validation that is cancelled ends its Jobs.
    work(sim, row.nccl_plan)
    assert jobs(sim) == 1
    validations.cancel(row, actor="user:ann", reason="wrong node", now=sim.now)
    plan = PairPlan.objects.get(pk=row.nccl_plan.pk)
    assert plan.state == "cancelled"
    work(sim, plan)
    assert jobs(sim) == 0


def test_a_cancelled_plan_is_no_proof(sim: SimWorld) -> None:
    first, *_ = names(sim)
    row = begin(sim, first)
    assert row.nccl_plan is not None
    pair_plans.cancel(row.nccl_plan, actor="user:bo", reason="", now=sim.now)
    row = conclude(sim, row)
    assert (row.state, results(row, first)["nccl"]["because"]["code"]) == ("error", "nccl_cancelled")


def test_the_page_shows_the_bus_bandwidth_and_leads_to_the_tests(sim: SimWorld, client: Client) -> None:
    first, *_ = names(sim)
    row = finished(sim, begin(sim, first, profile=({"check": "nccl"}, PAIR)))
    client.force_login(User.objects.create_superuser("root", password="long-enough-1"))
    assert row.nccl_plan is not None
    shown = client.get(f"/checks/validations/{row.pk}/").content.decode()
    assert f"/preflight/plans/{row.nccl_plan.pk}/" in shown
    assert "192" in shown
    matrix = client.get(f"/preflight/plans/{row.nccl_plan.pk}/").content.decode()
    assert f"/checks/validations/{row.pk}/" in matrix
