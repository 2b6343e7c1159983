"""Requests that are no longer needed are revoked at once, despite dead workers and API outages."""

import uuid
from datetime import timedelta

import pytest

from kcover import audit, reasons
from kcover.faults.fault import CommandResult
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.kube import port
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.lib import doorbell
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import lease
from tests.codes import code_of, codes_of, found_in
from tests.portal.rescue.worker_kills import Killed, kill_at
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


def withdraw(world: World) -> int:
    """What workers do that the sweep wakes; returns how many steps were due."""
    due = [pk for pk, _ in queries.to_withdraw(now=world.now)]
    for pk in due:
        services.withdraw(pk, clock=world.clock)
    return len(due)


def asked(world: World) -> Rescue:
    world.fault(62)
    assert str(world.until_reboot_is_asked()).startswith("job kcover-jobs/")
    return world.rescue()


def cancelled(world: World) -> Rescue:
    return services.cancel(asked(world), actor="user:anna", reason="not now", now=world.now)


def jobs(world: World) -> list[str]:
    return [job["metadata"]["name"] for job in world.kube.objects.list("Job")]


def verbs(rescue: Rescue) -> list[str]:
    reported = Entry.objects.filter(rescue=rescue.pk, verb__startswith="withdraw.").order_by("pk")
    return list(reported.values_list("verb", flat=True))


def test_cancelling_deletes_the_job_at_once_and_names_what_cannot_be_withdrawn(world: World) -> None:
    rescue = cancelled(world)
    [request] = dict(found_in(rescue.because, "requests_withdrawn").params)["requests"]
    assert dict(request.params)["job"].startswith("kcover-jobs/kcover-reboot-")
    assert withdraw(world) == 1
    assert jobs(world) == []
    assert codes_of(world.step("reboot").because) == ["request_withdrawn", "job_deleted"]
    assert verbs(rescue) == ["withdraw.begun", "withdraw.done"]
    ended = Entry.objects.get(verb="rescue.cancelled", rescue=rescue.pk)
    assert audit.RescueEnded.of_entry(ended).withdrawn is not None
    assert ledger.verify("c1").intact


def test_the_job_is_searched_for_again_when_no_call_can_be_pending(world: World) -> None:
    rescue = asked(world)
    kept = rescue.steps.get(name="reboot").progress["jobs"][0].partition("/")[2]
    spec = world.kube.objects.get("Job", "kcover-jobs", kept)["spec"]
    world.kube.delete_job("kcover-jobs", kept)  # as if the call that makes it were still on its way
    services.cancel(rescue, actor="user:anna", reason="", now=world.now)
    assert withdraw(world) == 1
    assert verbs(rescue) == []
    world.kube.objects.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": kept, "namespace": "kcover-jobs"}, "spec": spec}
    )  # it arrives
    assert withdraw(world) == 0
    world.now += lease.TIME
    assert withdraw(world) == 1
    assert jobs(world) == []
    assert (verbs(rescue), world.step("reboot").withdraw_at) == (["withdraw.begun", "withdraw.done"], None)


def test_a_withdrawal_is_retried_while_the_api_server_is_away(world: World) -> None:
    rescue = cancelled(world)
    world.kube.fail("delete_job", port.Unavailable("away"), times=2)
    assert withdraw(world) == 1
    assert jobs(world)
    assert code_of(world.step("reboot").because) == "withdraw_pending"
    for _ in range(4):
        world.now += timedelta(seconds=3)
        withdraw(world)
    assert jobs(world) == []
    assert verbs(rescue) == ["withdraw.begun", "withdraw.failed"] * 2 + ["withdraw.begun", "withdraw.done"]


@pytest.mark.parametrize("after", [False, True])
def test_a_withdrawal_continues_after_its_worker_died(world: World, after: bool) -> None:
    cancelled(world)
    kill_at(world.kube, "delete_job", call=1, after=after)
    with pytest.raises(Killed):
        withdraw(world)
    assert withdraw(world) == 0  # it is the dead one's for as long as a call may take
    world.now += lease.TIME
    assert withdraw(world) == 1
    assert jobs(world) == []
    world.now += lease.TIME
    withdraw(world)
    assert not Step.objects.exclude(withdraw_at=None).exists()


def test_a_worker_that_died_before_it_noted_the_job_is_cleaned_up_after(world: World) -> None:
    world.fault(62)
    kill_at(world.kube, "ensure_job", call=1, after=True)
    with pytest.raises(Killed):
        world.until_reboot_is_asked()
    services.cancel(world.rescue(), actor="user:anna", reason="", now=world.now)
    assert "request" not in world.step("reboot").progress
    assert withdraw(world) == 1
    assert jobs(world)  # the call that makes it may still be on its way
    world.now += lease.TIME
    withdraw(world)
    assert jobs(world) == []


def test_skipping_a_held_reboot_withdraws_it_and_continues(world: World) -> None:
    rescue = asked(world)
    world.cluster.__class__.objects.update(ready_within=60)
    rescue = world.until("held", seconds=30)
    services.retry(rescue, actor="user:anna", reason="once more", now=world.now)
    world.work()
    rescue = world.until("held", seconds=30)
    assert len(jobs(world)) == 2
    services.skip(rescue, actor="user:anna", reason="by hand", now=world.now)
    assert withdraw(world) == 1
    assert jobs(world) == []
    assert audit.StepSkipped.of_entry(Entry.objects.get(verb="step.skipped")).withdrawn is not None
    assert world.step("reboot").state == "skipped"


def test_skipping_withdraws_the_agents_command(world: World) -> None:
    type(world.cluster).objects.update(reboot="agent", ready_within=60)
    world.fault(62)
    asked_ = world.until_reboot_is_asked()
    rescue = world.until("held", seconds=30)
    Command.objects.update(state="offered")  # the time that it may be on offer is longer than we waited
    services.skip(rescue, actor="user:anna", reason="by hand", now=world.now)
    command = Command.objects.get(kind="reboot")
    assert (command.state, codes_of(command.because)) == ("expired", ["command_withdrawn", "its_step_skipped"])
    withdrawn = audit.StepSkipped.of_entry(Entry.objects.get(verb="step.skipped")).withdrawn
    assert dict(withdrawn.params)["requests"] == (asked_,)


def test_an_uncordon_by_hand_leaves_no_job(world: World) -> None:
    asked(world)
    world.kube.uncordon(NODE)
    world.sync()
    world.work()
    assert jobs(world) == []
    assert world.rescue().state == "cancelled"
    assert (withdraw(world), world.step("reboot").progress["withdrawal"]["done"]) == (1, False)
    world.pass_time(31)
    assert (withdraw(world), world.step("reboot").progress["withdrawal"]["done"]) == (1, True)


def test_a_requested_uncordon_deletes_the_reboot_job_first(world: World) -> None:
    asked(world)
    services.request(world.node(), "uncordon", actor="user:anna", reason="it is fine", now=world.now)
    withdraw(world)
    assert jobs(world) == []
    world.work()
    assert not world.kube.get_node(NODE).unschedulable


@pytest.mark.parametrize("mode", ["paused", "shadow"])
def test_inv_48_no_job_is_deleted_in_a_mode_without_writes(world: World, mode: str) -> None:
    cancelled(world)
    type(world.cluster).objects.update(mode=mode)
    writes = len(world.kube.writes)
    assert withdraw(world) == 1
    assert len(world.kube.writes) == writes
    pending = {"paused": "paused", "shadow": "shadow_no_writes"}[mode]
    assert codes_of(world.step("reboot").because) == ["withdraw_pending", pending]
    fleet.resume(cluster=world.cluster, reason="", actor="user:anna", now=world.now, mode="enforce")
    world.now += timedelta(seconds=6)
    withdraw(world)
    assert jobs(world) == []


def test_a_completed_reboot_is_not_withdrawn(world: World) -> None:
    rescue = asked(world)
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    services.cancel(rescue, actor="user:anna", reason="", now=world.now)
    assert withdraw(world) == 0
    assert "requests_withdrawn" not in codes_of(world.rescue().because)


def test_the_job_is_found_in_its_namespace_after_the_setting_changed(world: World) -> None:
    rescue = asked(world)
    world.kube.add_namespace(f"other-{uuid.uuid4().hex[:6]}")
    type(world.cluster).objects.update(job_namespace="elsewhere")
    services.cancel(rescue, actor="user:anna", reason="", now=world.now)
    withdraw(world)
    assert jobs(world) == []


def test_the_sweep_wakes_due_withdrawals(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled(world)
    rung: list[tuple[object, ...]] = []
    monkeypatch.setattr(doorbell, "ring", lambda *call: rung.append(call))
    services.sweep(now=world.now)
    assert ("rescue.withdraw", world.step("reboot").pk) in rung


def test_the_result_of_a_withdrawn_command_that_was_executed_is_recorded(world: World) -> None:
    type(world.cluster).objects.update(reboot="agent")
    world.fault(62)
    world.until_reboot_is_asked()
    rescue = services.cancel(world.rescue(), actor="user:anna", reason="", now=world.now)
    command = Command.objects.get(kind="reboot")
    [request] = dict(found_in(rescue.because, "requests_withdrawn").params)["requests"]
    assert request == reasons.of("agent_command", command=str(command.pk))
    result = CommandResult(id=str(command.pk), status="done", message="rebooting", finished_at=world.now)
    assert [fleet.settle_command(world.node(), result, now=world.now) for _ in range(2)] == [True, False]
    command.refresh_from_db()
    assert (command.state, command.output) == ("expired", {"late": "done"})
    assert codes_of(command.because) == ["answered_after_withdrawal", "command_withdrawn", "its_rescue_ended"]
    assert found_in(command.because, "answered_after_withdrawal").params[0] == (
        "answer",
        reasons.state("done", "rebooting"),
    )


def test_a_refused_deletion_is_retried_as_long_as_the_job_may_run(world: World) -> None:
    rescue = cancelled(world)
    world.kube.fail("delete_job", port.RefusedByServer("403"), times=1000)
    for _ in range(20):
        withdraw(world)
        world.now += timedelta(seconds=61)
    step = world.step("reboot")
    assert step.withdraw_at is None
    assert str(dict(found_in(step.because, "withdraw_gave_up").params)["error"]).startswith("403")
    assert 5 <= len(verbs(rescue)) / 2 <= 10
