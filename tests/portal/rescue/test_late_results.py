"""An agent's result of an expired command is stored, and permits no further action."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from kcover import audit, reasons
from kcover.faults.fault import CommandResult
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from tests.codes import codes_of
from tests.portal.rescue import agents
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


def unanswered(world: World) -> Command:
    """A reboot was asked of the agent, and its command has expired."""
    type(world.cluster).objects.update(reboot="agent")
    world.fault(62)
    world.until_reboot_is_asked()
    world.now += timedelta(minutes=6)
    assert fleet.expire_commands(now=world.now) == 1
    world.pass_time()
    [command] = agents.commands("reboot")
    return command


def reported() -> list[Entry]:
    return list(Entry.objects.filter(verb="command.late").order_by("pk"))


@pytest.mark.parametrize("status", ["done", "failed"])
def test_inv_16_a_late_result_that_may_be_done_is_kept_and_the_boot_is_waited_for(world: World, status: str) -> None:
    command = unanswered(world)
    for _ in range(2):  # the answer to the first report was lost
        world.report(results=(CommandResult(id=str(command.pk), status=status, message="so", finished_at=world.now),))
        world.pass_time()
    assert (world.step("reboot").state, world.rescue().needs_human) == ("waiting", False)
    [entry] = reported()
    assert (entry.actor, entry.node, entry.rescue) == (f"agent:{NODE}", NODE, world.rescue().pk)
    assert (entry.data["status"], entry.data["message"], "withdrawn" in entry.data) == (status, "so", False)
    command.refresh_from_db()
    assert (command.state, command.output) == ("expired", {"late": status})
    assert ledger.verify("c1").intact
    world.reboot()
    assert world.until("succeeded", seconds=2).outcome == "healed"
    assert len(agents.commands("reboot")) == 1


@pytest.mark.parametrize("status", ["refused", "expired"])
def test_a_late_refusal_holds_the_rescue_at_once(world: World, status: str) -> None:
    agents.answers(world, unanswered(world), status, "not now")
    world.pass_time()
    assert world.rescue().state == "held"
    late = reasons.of("answered_late", answer=reasons.state(status, "not now"))
    expired = reasons.of("agent_command_expired", why=late)
    assert world.step("reboot").why == reasons.both(expired, reasons.of("old_boot"))
    assert world.kube.called("ensure_job") == []
    assert len(agents.commands("reboot")) == 1


def test_a_late_refusal_does_not_outweigh_a_machine_that_went_down(world: World) -> None:
    command = unanswered(world)
    world.kube.set_ready(NODE, False)
    agents.answers(world, command, "refused", "not now")
    world.pass_time()
    step = world.step("reboot")
    assert (step.state, codes_of(step.because)[-1]) == ("waiting", "went_down")


def test_late_results_of_another_node_and_repeated_results_are_ignored(world: World) -> None:
    command = unanswered(world)
    world.kube.add_node("gpu-2", gpus=8)
    world.sync()
    late = CommandResult(id=str(command.pk), status="refused", finished_at=world.now)
    assert not fleet.settle_command(world.node("gpu-2"), late, now=world.now)
    Command.objects.update(state="offered")
    for _ in range(2):  # in time, by its own clock too late
        agents.answers(world, command, "expired", "expired at eight")
    command.refresh_from_db()
    assert (command.message, command.output, reported()) == ("expired at eight", {}, [])


def test_a_withdrawn_command_that_was_executed_is_on_record(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    type(world.cluster).objects.update(reboot="agent")
    world.fault(62)
    world.until_reboot_is_asked()
    rescue = services.cancel(world.rescue(), actor="user:anna", reason="", now=world.now)
    agents.answers(world, agents.commands("reboot")[0], "done", "another boot", late="never")
    [entry] = reported()
    late = audit.CommandAnsweredLate.of_entry(entry)
    assert (late.rescue, late.status, late.message, late.withdrawn) == (rescue.pk, "done", "another boot", True)
    assert Command.objects.get(kind="reboot").output == {"late": "done"}
    call_command("ledger", "replay", "--rescue", str(rescue.pk))
    assert capsys.readouterr().out.endswith("matches the row\n")
