"""Invariant 12: no message to a rescue that has ended changes the rows, the ledger or the cluster."""

from collections.abc import Callable
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster, Command
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Approval, Rescue, Step
from tests.portal.rescue import agents
from tests.portal.rescue.world import NODE, World


def cancelled(world: World) -> None:
    """By a person, when its reboot was asked for."""
    world.until_reboot_is_asked()
    services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)


def cancelled_where_it_was_held(world: World) -> None:
    """By a person, at a step that stopped: one that could be retried or skipped a moment ago."""
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.until("held", seconds=30)
    services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)
    assert world.step("drain").state == "failed"


def failed(world: World) -> None:
    """By another fault that verification found."""
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(79)
    world.until("failed")


def succeeded(world: World) -> None:
    """It healed the node."""
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")


def record(world: World) -> dict[str, Any]:
    """All that a message could change. What an open fault is judged to be is no part of a closed rescue's."""
    reported = Entry.objects.exclude(verb__startswith="decision.").order_by("pk")
    return {
        "rescues": list(Rescue.objects.order_by("pk").values()),
        "steps": list(Step.objects.order_by("pk").values()),
        "votes": Approval.objects.count(),
        "reported": list(reported.values_list("verb", "subject")),
        "writes": len(world.kube.writes),
    }


@pytest.mark.parametrize("end", [cancelled, cancelled_where_it_was_held, failed, succeeded])
def test_inv_12_a_message_about_a_closed_rescue_is_a_no_op(world: World, end: Callable[[World], None]) -> None:
    world.fault(62)
    end(world)
    rescue = world.rescue()
    Rescue.objects.update(due_at=world.now)  # whatever its row says
    before = record(world)
    services.run(rescue.pk, clock=world.clock)
    for pk in Incident.objects.values_list("pk", flat=True):
        services.decide_and_run([pk], clock=world.clock)
    for verb in (services.cancel, services.retry, services.skip, services.approve, services.reject):
        with pytest.raises(services.RescueRefused):
            verb(rescue, actor="user:bo", reason="", now=world.now)
    for outcome in ("done", "failed"):
        with pytest.raises(services.RescueRefused):
            services.callback(rescue, outcome, now=world.now)
    with pytest.raises(services.RescueRefused):
        services.take_over(rescue, actor="user:bo", reason="", now=world.now)
    services.nudge(world.node(), now=world.now)
    world.sync()
    assert record(world) == before


def test_inv_12_an_agents_late_result_of_a_closed_rescue_is_kept_and_changes_nothing(world: World) -> None:
    Cluster.objects.update(reboot="agent")
    world.fault(62)
    cancelled(world)
    [command] = agents.commands("reboot")
    before = record(world)
    for status in ("done", "failed"):
        agents.answers(world, command, status)
    world.work()
    after = record(world)
    reported = len(before.pop("reported"))
    assert after.pop("reported")[reported:] == [("command.late", f"command {command.pk}")]  # once
    assert after == before
    assert Command.objects.get(kind="reboot").state == "expired"


def test_inv_12_a_message_about_a_rescue_that_never_was_is_a_no_op(world: World) -> None:
    before = record(world)
    services.run(4711, clock=world.clock)
    services.decide(4711, now=world.now)
    services.withdraw(4711, clock=world.clock)
    assert record(world) == before
