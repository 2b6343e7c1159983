"""The request for a reboot may end with the machine: the node's boot ID shows the result, not the request's status."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kcover import reasons
from kcover.faults.fault import CommandResult
from kcover.values.recurrence import Recurrence
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.kube import port
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.drivers.job import BOOT_VARIABLE
from tests.codes import code_of, codes_of, found_in
from tests.portal.rescue import agents
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db


def asked(world: World) -> str:
    """Goes on until a reboot was asked of a job; returns its name."""
    world.fault(62)
    return str(world.until_reboot_is_asked()).rpartition("/")[2]


def in_the_middle(world: World, act: Callable[[], object]) -> None:
    """Once, after the next look at the node and before that at the job, something happens."""
    look = world.kube.job_state

    def later(namespace: str, name: str) -> object:
        world.kube.job_state = look
        act()
        return look(namespace, name)

    world.kube.job_state = later


def test_inv_16_a_job_that_fails_with_the_machine_between_two_looks_is_no_failure(world: World) -> None:
    job = asked(world)

    def reboot() -> None:
        world.kube.reboot(NODE)
        world.kube.finish_job("kcover-jobs", job, succeeded=False)

    in_the_middle(world, reboot)
    world.pass_time()
    assert world.step("reboot").state == "done"
    assert code_of(world.step("reboot").because) == "reboot_confirmed"


def test_a_job_whose_deadline_passes_during_the_boot_does_not_hold_the_rescue(world: World) -> None:
    job = asked(world)
    world.kube.set_ready(NODE, False)
    world.pass_time(301)
    world.kube.finish_job("kcover-jobs", job, succeeded=False, reason="DeadlineExceeded")
    world.pass_time(10)  # a job's pod does not wake the rescue
    step = world.step("reboot")
    assert step.state == "waiting"
    failed = reasons.of("reboot_job_failed", why="DeadlineExceeded")
    assert step.why.parts[1:] == (failed, reasons.of("went_down"))
    world.reboot()
    assert world.step("reboot").state == "done"


@pytest.mark.parametrize("given", [{"node": "gpu-2"}, {"boot_id": "another-boot"}], ids=str)
def test_a_job_of_another_portal_with_the_same_name_is_not_used(world: World, given: dict[str, str]) -> None:
    """A second portal, or a new database, counts its rescues from 1, too."""
    world.kube.add_pod("default", "train-0", node=NODE)
    world.fault(62)
    world.until("waiting", step="drain")
    boot_id = given.get("boot_id", world.kube.get_node(NODE).boot_id)
    name = f"kcover-{agent.key_of(world.step('reboot'))}"
    spec = port.JobSpec(
        name=name,
        namespace="kcover-jobs",
        node=given.get("node", NODE),
        image="reboot:1",
        command=("sh", "-c", "reboot"),
        env={BOOT_VARIABLE: boot_id},
        deadline_seconds=300,
    )
    world.kube.ensure_job(spec)
    rescue = world.until("failed")
    assert rescue.needs_human
    assert "reboot_job_foreign" in codes_of(world.step("reboot").because)
    assert world.kube.job_state("kcover-jobs", name).exists, "it is the other portal's"
    assert world.kube.get_node(NODE).unschedulable


def test_a_long_wait_is_checked_rarely_and_ends_with_the_change_of_the_node(world: World) -> None:
    asked(world)
    began, before = world.now, world.step("reboot").attempts
    while world.now - began < timedelta(minutes=4):
        world.pass_time()
        pause = world.rescue().due_at - world.now
        assert pause <= max(timedelta(seconds=1), (world.now - began) / 9)
    assert 20 < world.step("reboot").attempts - before < 60
    world.reboot()
    assert world.step("reboot").state == "done"


def test_a_reboot_job_killed_by_its_own_shutdown_is_no_failure(world: World) -> None:
    job = asked(world)
    world.kube.finish_job("kcover-jobs", job, succeeded=False)
    world.pass_time(5)  # its pod is gone, and the cluster still calls the node Ready
    step = world.step("reboot")
    assert (step.state, world.rescue().needs_human) == ("waiting", False)
    failed = reasons.of("reboot_job_failed", why="BackoffLimitExceeded")
    assert step.why.parts[1:] == (failed, reasons.of("may_go_down"))
    world.reboot()
    assert world.until("succeeded", seconds=2).outcome == "healed"
    assert len(world.kube.called("ensure_job")) == 1


def test_a_job_that_fails_on_a_node_that_stays_up_is_a_failure_once_its_time_is_over(world: World) -> None:
    job = asked(world)
    world.kube.finish_job("kcover-jobs", job, succeeded=False)
    world.pass_time(355)
    assert world.rescue().state == "waiting"
    world.pass_time(10)
    assert world.rescue().state == "held"
    failed = reasons.of("reboot_job_failed", why="BackoffLimitExceeded")
    assert world.step("reboot").why == reasons.both(failed, reasons.of("old_boot"))


def test_a_job_that_never_ran_on_a_node_that_was_down_before_is_a_failure(world: World) -> None:
    world.kube.set_ready(NODE, False)
    world.sync()
    job = asked(world)
    world.kube.finish_job("kcover-jobs", job, succeeded=False, reason="DeadlineExceeded")
    world.pass_time(361)
    assert world.rescue().state == "held"


def test_a_machine_that_does_not_come_up_is_held_for_a_person(world: World) -> None:
    job = asked(world)
    world.kube.set_ready(NODE, False)
    world.kube.finish_job("kcover-jobs", job, succeeded=False)
    world.until("held", seconds=100)
    assert found_in(world.step("reboot").because, "reboot_timeout").params[0] == (
        "limit",
        reasons.span(timedelta(minutes=30)),
    )


def test_inv_21_a_node_whose_drain_has_not_ended_is_not_rebooted(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.until("waiting", step="drain")
    Step.objects.filter(name="drain").update(index=99)  # a plan that no rule makes
    assert code_of(world.until("held").because) == "not_drained_no_reboot"
    assert world.kube.called("ensure_job") == []


WAITS = HEAL.replace('attribute: {unCordon: "true"}', 'attribute: {waittime: "20min", unCordon: "true"}')


def test_a_held_reboot_does_not_restart_its_wait(db: None) -> None:
    world = World(policy=WAITS)
    try:
        world.fault(62)
        world.until("waiting", step="reboot")
        Step.objects.filter(name="reboot").update(progress={})  # as where the boot was not known when it was opened
        drained = world.step("drain").finished_at
        window = {"starts_at": world.now + timedelta(minutes=19), "ends_at": world.now + timedelta(minutes=22)}
        cluster_settings.open_maintenance(world.cluster, **window, reason="x", actor="user:ann", now=world.now)
        while not world.kube.called("ensure_job") and world.now - drained < timedelta(hours=1):
            world.pass_time(60)
        assert timedelta(minutes=22) <= world.now - drained <= timedelta(minutes=24)
    finally:
        world.uninstall()


def test_a_window_that_repeats_holds_a_reboot_back_at_its_local_time_when_clocks_have_changed(db: None) -> None:
    """Each night from 01:00 to 04:00 in Berlin: before the change that is 00:00 UTC, and after it 23:00 UTC."""
    world = World(policy=WAITS)
    try:
        world.now = datetime(2027, 3, 26, 12, 0, tzinfo=UTC)
        first = datetime(2027, 3, 27, 0, 0, tzinfo=UTC)
        cluster_settings.open_maintenance(
            world.cluster,
            starts_at=first,
            ends_at=first + timedelta(hours=3),
            repeats=Recurrence("day", "Europe/Berlin", first + timedelta(days=10)),
            reason="x",
            actor="user:ann",
            now=world.now,
        )
        world.now = datetime(2027, 3, 28, 22, 45, tzinfo=UTC)  # clocks went forward at 01:00 UTC
        world.sync()
        world.fault(62)
        world.until("waiting", step="reboot")
        while not world.kube.called("ensure_job") and world.now < datetime(2027, 3, 29, 6, tzinfo=UTC):
            world.pass_time(60)
        over = datetime(2027, 3, 29, 2, 0, tzinfo=UTC)
        assert over <= world.now <= over + timedelta(minutes=2)
    finally:
        world.uninstall()


def test_a_reboot_waits_as_long_after_the_drain_as_the_rule_says(db: None) -> None:
    world = World(policy=WAITS)
    try:
        world.fault(62)
        world.until("waiting", step="reboot")
        world.pass_time(19 * 60)
        assert world.kube.called("ensure_job") == []
        world.pass_time(60)
        assert len(world.kube.called("ensure_job")) == 1
    finally:
        world.uninstall()


def asked_of_the_agent(world: World) -> Command:
    type(world.cluster).objects.update(reboot="agent")
    world.fault(62)
    assert world.until_reboot_is_asked().code == "agent_command"
    [command] = agents.commands("reboot")
    return command


@pytest.mark.parametrize("ready", [True, False])
def test_a_command_that_is_not_answered_in_time_may_have_been_obeyed(world: World, ready: bool) -> None:
    asked_of_the_agent(world)
    world.kube.set_ready(NODE, ready)  # as the watch last heard
    world.now += timedelta(minutes=6)
    assert fleet.expire_commands(now=world.now) == 1
    world.pass_time()
    assert (world.step("reboot").state, world.rescue().needs_human) == ("waiting", False)
    world.reboot()
    assert world.step("reboot").state == "done"


def test_an_unanswered_reboot_command_is_sent_once_and_held_for_a_person(world: World) -> None:
    asked_of_the_agent(world)
    world.now += timedelta(minutes=6)
    fleet.expire_commands(now=world.now)
    world.until("held", seconds=100)
    assert found_in(world.step("reboot").because, "reboot_timeout").params[0] == (
        "limit",
        reasons.span(timedelta(minutes=30)),
    )
    assert len(agents.commands("reboot")) == 1
    assert world.kube.called("ensure_job") == []


def refused_in_another_boot(world: World) -> None:
    """The machine rebooted by itself before it was asked, and its kubelet has not come up."""
    world.kube.set_ready(NODE, False)
    world.sync()
    command = asked_of_the_agent(world)
    result = CommandResult(id=str(command.pk), status="refused", message="another boot", finished_at=world.now)
    world.now += timedelta(seconds=1)
    world.report(boot_id="by-itself", results=(result,))
    world.pass_time()


def test_a_machine_that_rebooted_by_itself_is_waited_for_and_not_rebooted_again(world: World) -> None:
    refused_in_another_boot(world)
    assert (world.step("reboot").state, world.rescue().needs_human) == ("waiting", False)
    assert found_in(world.step("reboot").because, "rebooted_by_itself")
    world.pass_time(60)
    world.report(boot_id="by-itself")
    info = {"bootID": "by-itself"}
    world.kube.objects.edit("Node", "", NODE, lambda manifest: manifest["status"]["nodeInfo"].update(info))
    world.kube.set_ready(NODE, True)
    world.pass_time()
    assert world.step("reboot").state == "done"
    assert len(agents.commands("reboot")) == 1


def test_a_kubelet_that_stays_dead_after_its_own_reboot_is_held_for_a_person(world: World) -> None:
    refused_in_another_boot(world)
    world.until("held", seconds=100)
    assert found_in(world.step("reboot").because, "reboot_timeout")
    assert len(agents.commands("reboot")) == 1


@pytest.mark.parametrize("status", ["refused", "failed", "expired"])
def test_an_agent_that_refuses_a_reboot_is_believed_at_once(world: World, status: str) -> None:
    agents.answers(world, asked_of_the_agent(world), status, "not now")
    world.pass_time()
    assert world.rescue().state == "held"
    code = "agent_command_expired" if status == "expired" else f"agent_{status}"
    assert world.step("reboot").why == reasons.both(reasons.of(code, why="not now"), reasons.of("old_boot"))
