"""Checks during verification: a failure is a fault of the node; any other result except a pass needs attention."""

from typing import Any

import pytest

from kcover import reasons
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import run_checks
from kcover_portal.rescue.step.drivers import agent
from tests.codes import code_of, codes_of
from tests.portal.rescue import agents, worker_kills
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: checks}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: runChecks, attribute: {checks: "pciebw,dcgm"}}
    - priority: 5
      errorCode: ["48"]
      actions: [{name: cordon}, {name: runChecks}]
"""
PASS = {"name": "pciebw", "device": "GPU-1", "status": "pass", "value": 24.1, "unit": "GB/s", "message": ""}
DCGM = {"name": "dcgm", "device": "", "status": "pass", "value": None, "unit": "", "message": ""}


@pytest.fixture
def checking():
    made = World(policy=POLICY)
    agents.comes_up(made)
    yield made
    made.uninstall()


def ended(world: World, *results: dict[str, Any], status: str = "done", message: str = "") -> Any:
    world.fault(62)
    world.work()
    (command,) = agents.commands("run_check")
    assert command.args == {"checks": ["pciebw", "dcgm"]}
    world.pass_time(2)
    assert world.step("run_checks").state == "waiting"
    output = {"checks": list(results), "seconds": 1.0} if results else {}
    agents.answers(world, command, status, message, **output)
    world.pass_time(2)
    assert len(agents.commands("run_check")) == 1
    return world.rescue()


def test_a_passed_check_is_a_proof(checking: World) -> None:
    rescue = ended(checking, PASS, {**PASS, "device": "GPU-2", "status": "warn"}, DCGM)
    assert (rescue.state, checking.step("run_checks").why) == (
        "succeeded",
        reasons.of("checks_done", results=(reasons.of("checks_passed", count=2), reasons.of("checks_warned", count=1))),
    )


def test_inv_42_a_failed_check_fails_the_proof(checking: World) -> None:
    rescue = ended(checking, DCGM, {**PASS, "status": "fail", "value": 3.1, "message": "slow"}, PASS)
    assert (rescue.state, rescue.needs_human) == ("failed", True)
    failed = reasons.of("checks_failed", checks="pciebw GPU-1 3.1 GB/s slow")
    assert rescue.why == reasons.of("step_ended", step="run_checks", why=failed)
    assert checking.kube.get_node(NODE).unschedulable


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ([PASS, {**DCGM, "status": "error", "message": "no host engine"}], "checks_broken dcgm no host engine"),
        ([PASS], "checks_unknown dcgm"),
        (
            [{**PASS, "status": "skipped"}, {**DCGM, "status": "skipped", "message": "not installed"}],
            "checks_inconclusive not installed",
        ),
        ([], "checks_unknown dcgm, pciebw"),
        (["nonsense"], "checks_unknown dcgm, pciebw"),
    ],
)
def test_inv_42_a_check_without_a_verdict_is_held(checking: World, results: list[Any], why: str) -> None:
    rescue = ended(checking, *results)
    assert rescue.state == "held"
    code, _, named = why.partition(" ")
    assert (code_of(rescue.because), named in str(rescue.why)) == (code, True)


@pytest.mark.parametrize("status", ["refused", "failed", "expired"])
def test_checks_that_were_not_run_are_held(checking: World, status: str) -> None:
    rescue = ended(checking, status=status, message="cut short")
    code = "agent_command_expired" if status == "expired" else f"agent_{status}"
    refusal = reasons.of("checks_not_run", why=reasons.of(code, why="cut short"))
    assert (rescue.state, rescue.why) == ("held", refusal)


def test_without_names_the_periodic_ones(checking: World) -> None:
    checking.fault(48)
    checking.work()
    (command,) = agents.commands("run_check")
    assert command.args == {"checks": list(run_checks.PERIODIC)}
    agents.answers(checking, command, checks=[PASS, {**DCGM, "status": "skipped"}])
    checking.pass_time(2)
    assert checking.step("run_checks").why == reasons.of(
        "checks_done", results=(reasons.of("checks_passed", count=1), reasons.of("checks_skipped", count=1))
    )


def test_an_agent_that_never_answers_is_waited_for_and_then_held(checking: World) -> None:
    checking.fault(62)
    checking.work()
    checking.pass_time(run_checks.TIME_LIMIT.total_seconds() - 1)
    assert checking.rescue().state == "waiting"
    checking.pass_time(2)
    assert codes_of(checking.until("held").because) == ["checks_not_run", "agent_command_expired", "no_answer_in_time"]


def test_a_retry_requests_the_checks_again_and_an_end_withdraws_them(checking: World) -> None:
    rescue = ended(checking, PASS)
    services.retry(rescue, actor="user:anna", reason="", now=checking.now)
    checking.pass_time()
    assert [one.state for one in agents.commands("run_check")] == ["done", "offered"]
    services.cancel(checking.rescue(), actor="user:anna", reason="", now=checking.now)
    assert [one.state for one in agents.commands("run_check")] == ["done", "expired"]


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_requests_the_checks_once(
    checking: World, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    offer, died = agent.offer, []

    def dying(*args: object, **more: object) -> str:
        if died:
            return offer(*args, **more)
        died.append(offer(*args, **more) if after else "")
        raise worker_kills.Killed

    monkeypatch.setattr(agent, "offer", dying)
    checking.fault(62)
    assert worker_kills.work(checking)
    assert len(agents.commands("run_check")) == after
    checking.work()
    assert len(agents.commands("run_check")) == 1
