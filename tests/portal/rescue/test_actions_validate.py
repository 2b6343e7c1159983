"""A node is returned after its validation passed, and only then; one that fails goes to the repair desk."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover.faults.fault import Check, Fault
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun, Validation
from kcover_portal.checks.services import rescue_validations, validation_verdicts, validations
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.preflight.models import PairTest
from kcover_portal.preflight.services import pair_runs
from kcover_portal.repairs import tasks as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import validate
from kcover_portal.rescue.models import Rescue
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import agents, worker_kills
from tests.portal.rescue.validation_turns import answer, look, turn
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: returns}
spec:
  rules:
    - {priority: 10, errorCode: ["62"], validate: light, actions: [{name: cordon}, {name: unCordon}]}
    - {priority: 9, errorCode: ["48"], validate: auto, actions: [{name: cordon}, {name: unCordon}]}
    - priority: 8
      errorCode: ["79"]
      validate: full
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
    - {priority: 6, errorCode: ["95"], actions: [{name: cordon}]}
    - {priority: 7, match: {checks: [pciebw]}, validate: light, actions: [{name: taint}, {name: unCordon}]}
"""


@pytest.fixture
def returning(db: None) -> Iterator[World]:
    made = World(policy=POLICY, nodes=2)
    agents.comes_up(made)
    yield made
    made.uninstall()


def until_validating(world: World, code: int = 62) -> Validation:
    """A fault; runs until the agent is asked for the checks of the validation."""
    if code:
        world.fault(code)
    for _ in range(60):
        turn(world)
        if any(one.state == "offered" for one in agents.commands("run_check")):
            return Validation.objects.latest("pk")
    raise AssertionError([(step.name, step.state, str(step.why)) for step in world.rescue().steps.all()])


def test_a_node_that_passes_takes_work_again_without_a_reboot(returning: World) -> None:
    boot = returning.kube.get_node(NODE).boot_id
    row = until_validating(returning)
    assert [step.name for step in returning.rescue().steps.all()] == ["cordon", "verify", "validate", "uncordon"]
    assert returning.kube.get_node(NODE).labels["kcover.io/state"] == "validating"
    answer(returning)
    rescue = returning.rescue()
    assert (rescue.state, rescue.outcome, rescue.verified) == ("succeeded", "healed", True)
    node = returning.kube.get_node(NODE)
    assert (node.unschedulable, node.boot_id, "kcover.io/state" in node.labels) == (False, boot, False)
    assert not rescue.incidents.filter(state="open").exists()
    step = returning.step("validate")
    assert (step.progress["validation"], step.progress["profile"]) == (row.pk, "light")
    assert step.why == reasons.of("validation_of_node_passed", validation=str(row.pk), profile="light")
    assert proofs.broken_claim(rescue) == ""


def test_the_validation_is_of_this_machine_alone(returning: World) -> None:
    row = until_validating(returning)
    [one] = row.nodes.all()
    assert (one.node.name, one.machine, row.rescue) == (NODE, returning.rescue().node_uid, returning.rescue())
    assert (row.requester_kind, row.requested_by) == ("rescue", f"rescue {returning.rescue().pk}")
    [entry] = Entry.objects.filter(verb="validate.begun")
    assert entry.data["wanted"]["profile"] == "light"


def test_a_node_that_fails_stays_isolated_and_gets_a_repair(returning: World) -> None:
    row = until_validating(returning)
    answer(returning, dcgm="fail")
    rescue = returning.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human, rescue.verified) == (
        *("failed", "failed_validation", True),
        False,
    )
    assert returning.kube.get_node(NODE).unschedulable
    assert codes_of(rescue.because) == ["step_ended", "validation_of_node_failed", "validation_failures"]
    repairs.sweep()
    repairs.sweep()
    repair = Repair.objects.get()
    assert repair.rescue == rescue
    [because] = [reason for reason in repair.reasons if reason.code == "step_ended"]
    assert f"validation {row.pk}" in str(because)
    assert proofs.broken_claim(rescue) == ""


def test_an_unproven_node_is_held_for_a_person(returning: World) -> None:
    until_validating(returning)
    answer(returning, dcgm="skipped")
    held = returning.rescue()
    assert (held.state, code_of(held.because)) == ("held", "validation_not_proven")
    services.retry(held, actor="user:anna", reason="", now=returning.now)
    until_validating(returning, code=0)
    answer(returning, dcgm="error")
    assert returning.rescue().state == "held"
    assert [row.state for row in Validation.objects.order_by("pk")] == ["error", "error"]
    assert returning.kube.get_node(NODE).unschedulable
    services.skip(returning.rescue(), actor="user:anna", reason="looked at it", now=returning.now)
    returning.work()
    assert (returning.rescue().outcome, returning.kube.get_node(NODE).unschedulable) == ("healed", False)
    assert not Repair.objects.exists()
    assert proofs.broken_claim(returning.rescue()) == ""


@pytest.mark.parametrize("after", [False, True])
def test_inv_13_a_worker_that_dies_at_the_request_makes_one_validation(
    returning: World, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    order, died = rescue_validations.RescueValidations.order, []

    def dying(*args: Any, **more: Any) -> int:
        if died:
            return order(*args, **more)
        died.append(order(*args, **more) if after else 0)
        raise worker_kills.Killed

    monkeypatch.setattr(rescue_validations.RescueValidations, "order", dying)
    returning.fault(62)
    while not died:
        returning.now += timedelta(seconds=1)
        returning.report()
        worker_kills.work(returning)
    for _ in range(5):
        turn(returning)
    assert Validation.objects.count() == 1
    answer(returning)
    assert returning.rescue().outcome == "healed"


def test_a_worker_that_dies_before_it_stores_the_id_makes_one_validation(
    returning: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember, died = validate.Context.remember, []

    def dying(self: Any, **progress: Any) -> None:
        if "validation" in progress and not died:
            died.append(progress)
            raise worker_kills.Killed
        remember(self, **progress)

    monkeypatch.setattr(validate.Context, "remember", dying)
    returning.fault(62)
    while not died:
        returning.now += timedelta(seconds=1)
        returning.report()
        worker_kills.work(returning)
    for _ in range(5):
        turn(returning)
    assert Validation.objects.count() == 1
    assert returning.step("validate").progress["validation"] == Validation.objects.get().pk
    answer(returning)
    assert proofs.broken_claim(returning.rescue()) == ""


def test_a_rescue_that_ends_withdraws_its_validation(returning: World) -> None:
    row = until_validating(returning)
    services.cancel(returning.rescue(), actor="user:anna", reason="", now=returning.now)
    row.refresh_from_db()
    assert (row.state, row.run and row.run.state) == ("cancelled", "stopped")
    assert [one.state for one in agents.commands("run_check")] == ["expired"]
    [entry] = Entry.objects.filter(verb="validation.cancelled")
    assert code_of(entry.data["because"]) == "its_rescue_ended"


def test_another_machine_under_the_name_is_neither_validated_nor_returned(returning: World) -> None:
    row = until_validating(returning)
    returning.kube.objects.remove("Node", "", NODE)
    returning.kube.add_node(NODE, gpus=8)
    turn(returning)
    row.refresh_from_db()
    assert (returning.rescue().outcome, row.state) == ("replaced", "cancelled")


def test_pods_on_the_gpus_are_waited_for(returning: World) -> None:
    returning.kube.add_pod("default", "train-0", node=NODE, gpus=8)
    returning.fault(48)
    for _ in range(20):
        turn(returning)
    waiting = returning.step("validate")
    assert (waiting.state, code_of(waiting.because)) == ("waiting", "validation_waits_for_gpus")
    assert not Validation.objects.exists()
    returning.kube.objects.remove("Pod", "default", "train-0")
    returning.pass_time(validate.IDLE_SECONDS)
    until_validating(returning, code=0)
    answer(returning)
    assert returning.rescue().outcome == "healed"


def test_checks_that_load_nothing_run_beside_a_job(returning: World) -> None:
    returning.kube.add_pod("default", "train-0", node=NODE, gpus=8)
    until_validating(returning)
    answer(returning)
    assert returning.rescue().outcome == "healed"
    assert [pod.name for pod in returning.kube.list_pods(node=NODE)] == ["train-0"]


def test_a_check_run_of_others_on_the_gpus_is_waited_for(returning: World) -> None:
    mine = check_runs.begin(
        returning.cluster, [returning.node()], checks=("dcgm",), level=3, actor="user:ann", now=returning.now
    )
    look(returning)
    returning.fault(48)
    for _ in range(20):
        turn(returning)
    row = Validation.objects.get()
    assert (row.state, code_of(returning.step("validate").because)) == ("waiting", "validation_not_begun")
    check_runs.stop(mine, actor="user:ann", reason="enough", now=returning.now)
    until_validating(returning, code=0)
    answer(returning)
    assert returning.rescue().outcome == "healed"


def test_inv_38_a_fault_during_the_validation_fails_it(returning: World) -> None:
    until_validating(returning)
    returning.report(Fault(kind="xid", code=79, pci="0000:4e:00", source="kmsg"))
    answer(returning)
    rescue = returning.rescue()
    assert (rescue.state, rescue.outcome) == ("failed", "failed_validation")
    assert codes_of(rescue.because)[:2] == ["step_ended", "validation_with_faults"]
    assert returning.kube.get_node(NODE).unschedulable


def test_inv_38_a_reboot_during_the_validation_fails_the_rescue(returning: World) -> None:
    until_validating(returning)
    returning.kube.reboot(NODE)
    answer(returning)
    assert codes_of(returning.rescue().because) == ["step_ended", "rebooted_again"]
    assert returning.kube.get_node(NODE).unschedulable


def test_a_fault_whose_lines_repeat_for_a_moment_is_waited_out(returning: World) -> None:
    returning.fault(62)
    returning.pass_time()
    returning.fault(62)
    returning.pass_time()
    settling = returning.step("verify")
    assert (settling.state, code_of(settling.because)) == ("waiting", "faults_not_over")
    until_validating(returning, code=0)
    answer(returning)
    rescue = returning.rescue()
    assert (rescue.outcome, rescue.incidents.filter(state="open").exists()) == ("healed", False)
    assert proofs.broken_claim(rescue) == ""


def test_a_fault_that_goes_on_fails_the_rescue(returning: World) -> None:
    for _ in range(70):
        returning.fault(62)
        returning.pass_time(10)
    rescue = Rescue.objects.earliest("pk")
    assert (rescue.state, codes_of(rescue.because)) == ("failed", ["step_ended", "faults_since_repair"])
    assert returning.kube.get_node(NODE).unschedulable
    assert not Validation.objects.exists()


def test_a_fault_of_another_rule_meanwhile_fails_the_rescue(returning: World) -> None:
    returning.fault(62)
    returning.pass_time()
    returning.fault(95)
    returning.pass_time()
    assert codes_of(returning.rescue().because) == ["step_ended", "faults_since_repair"]


def test_the_class_of_the_fault_chooses_the_profile(returning: World) -> None:
    row = until_validating(returning, code=48)
    assert row.profile == "full"
    assert code_of(returning.step("validate").progress["because"]) == "validation_class_memory"
    answer(returning)
    assert proofs.broken_claim(returning.rescue()) == ""


def test_low_bus_bandwidth_sends_the_node_of_the_rescue_to_repair(returning: World) -> None:
    """Its own rescue does not keep the node from the test, and the fault that the test opens undoes nothing."""
    Cluster.objects.update(nccl_image="pytorch:2")
    returning.kube.add_namespace("kcover-preflight")
    row = until_validating(returning, code=48)
    answer(returning)
    row.refresh_from_db()
    assert (row.state, returning.rescue().state) == ("running", "waiting")
    assert row.nccl_plan is not None
    pair_runs.advance(row.nccl_plan.pk, clock=returning.clock)
    assert PairTest.objects.get().state == "running"
    PairTest.objects.update(state="failed", best=12.0, busbw={"8": 12.0}, device="NVIDIA H100 80GB HBM3")
    pair_runs.advance(row.nccl_plan.pk, clock=returning.clock)
    assert row.run_id is not None
    validations.conclude(row.run_id, now=returning.now)
    returning.work()
    assert (returning.rescue().state, returning.rescue().outcome) == ("failed", "failed_validation")
    assert returning.kube.get_node(NODE).unschedulable
    repairs.sweep()
    assert Repair.objects.get().rescue == returning.rescue()
    assert Incident.objects.get(kind="preflight", code="slow").node == returning.node()
    assert proofs.broken_claim(returning.rescue()) == ""


def test_a_machine_that_comes_back_from_a_repair_is_burned_in(returning: World) -> None:
    node = returning.node()
    Repair.objects.create(
        cluster=node.cluster,
        node=node,
        node_name=node.name,
        opened_by="user:ann",
        state="returned",
        reported_at=returning.now,
        returned_at=returning.now,
    )
    row = until_validating(returning, code=48)
    assert row.profile == "burn-in"
    assert code_of(returning.step("validate").progress["because"]) == "validation_class_returned"


@pytest.mark.parametrize("mode", ["paused", "shadow"])
def test_no_validation_is_requested_in_a_mode_without_writes(returning: World, mode: str) -> None:
    returning.fault(62)
    returning.until("waiting", step="verify")
    returning.cluster.mode = mode
    returning.cluster.save()
    for _ in range(20):
        turn(returning)
    assert not Validation.objects.exists()
    assert returning.rescue().state == "waiting"


def test_a_cluster_that_does_not_answer_is_no_verdict(returning: World, monkeypatch: pytest.MonkeyPatch) -> None:
    returning.fault(48)
    while not Validation.objects.exists():
        returning.pass_time()
        returning.report()
    returning.kube.fail("list_pods", port.Unavailable("away"))
    look(returning)
    assert CheckRun.objects.get().state == "running"
    assert not agents.commands("run_check")
    returning.now += timedelta(minutes=1)
    until_validating(returning, code=0)
    answer(returning)
    assert returning.rescue().outcome == "healed"


def test_probes_may_look_after_a_reboot_before_the_verdict(returning: World) -> None:
    linked = Check(name="nvlink", device="GPU-0", status="pass")
    returning.report(checks=(linked,))
    returning.fault(79)
    returning.until_reboot_is_asked()
    returning.reboot()
    row = until_validating(returning, code=0)
    [command] = [one for one in agents.commands("run_check") if one.state == "offered"]
    agents.answers(returning, command, checks=[{"name": name, "status": "pass"} for name in command.args["checks"]])
    look(returning)
    row.refresh_from_db()
    assert (row.state, row.run and row.run.state) == ("running", "finished")
    returning.report(checks=(linked,))  # the same result, of another boot
    look(returning)
    returning.work()
    row.refresh_from_db()
    assert (row.state, returning.rescue().outcome) == ("passed", "healed")


def test_probes_that_never_look_are_no_proof(returning: World) -> None:
    returning.report(checks=(Check(name="nvlink", device="GPU-0", status="pass"),))
    returning.fault(79)
    returning.until_reboot_is_asked()
    returning.reboot()
    until_validating(returning, code=0)
    answer(returning)
    turn(returning, validation_verdicts.PROBES_WITHIN.total_seconds())
    assert code_of(returning.until("held").because) == "validation_not_proven"


def test_a_passed_check_removes_the_taint_of_the_failed_check(returning: World) -> None:
    failed = Check(name="pciebw", device="GPU-0", status="fail", value=1.0, unit="GB/s")
    returning.report(Fault(kind="check", code="pciebw", source="agent"), checks=(failed,))
    returning.work()
    assert [taint.key for taint in returning.kube.get_node(NODE).taints] == ["kcover.io/unhealthy"]
    for _ in range(20):
        turn(returning)
    assert code_of(returning.step("verify").because) == "checks_not_passed_yet"
    returning.report(checks=(Check(name="pciebw", device="GPU-0", status="pass", value=24.0, unit="GB/s"),))
    until_validating(returning, code=0)
    answer(returning)
    assert returning.rescue().outcome == "healed"
    assert returning.kube.get_node(NODE).taints == ()


def test_the_isolation_of_another_rule_is_not_undone(returning: World) -> None:
    returning.fault(95)
    assert returning.until("succeeded").outcome == "isolated"
    returning.fault(62)
    returning.now += timedelta(minutes=10)
    for _ in range(20):
        turn(returning)
    held = returning.rescue()
    assert (held.state, code_of(held.because)) == ("held", "validation_of_other_faults")
    assert returning.kube.get_node(NODE).unschedulable
    assert held.incidents.filter(state="open").count() == 2
    assert not Validation.objects.exists()


def test_a_rescue_does_not_use_the_validation_of_another(returning: World) -> None:
    first = until_validating(returning)
    services.cancel(returning.rescue(), actor="user:anna", reason="", now=returning.now)
    services.request(returning.node(), "release", actor="user:ann", reason="", now=returning.now)
    returning.work()
    returning.now += timedelta(hours=2)
    second = until_validating(returning)
    assert (first.pk != second.pk, second.rescue) == (True, returning.rescue())
    assert Rescue.objects.filter(validations__isnull=False).distinct().count() == 2
