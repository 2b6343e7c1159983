"""Replaying a rescue's entries gives its row (invariant 46), however the rescue went."""

from collections.abc import Callable, Iterator

import pytest
from django.core.management import CommandError, call_command

from kcover_portal.kube import port
from kcover_portal.ledger import queries
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from tests.portal.rescue.world import CORDON, HEAL, NODE, World

pytestmark = pytest.mark.django_db
APPROVE = HEAL.replace("rescue.ksyun.com", "kcover.io").replace("priority: 10", "priority: 10\n      mode: approve")


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World()
    yield made
    made.uninstall()


def heal(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")


def half_way(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()


def cancel(world: World) -> None:
    half_way(world)
    services.cancel(world.rescue(), actor="user:anna", reason="not now", now=world.now)


def taken_back(world: World) -> None:
    half_way(world)
    world.kube.uncordon(NODE)
    world.sync()
    world.work()


def hold(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.until("held", seconds=30)


def retry(world: World) -> None:
    hold(world)
    services.retry(world.rescue(), actor="user:anna", reason="the budget is being fixed", now=world.now)


def skip(world: World) -> None:
    retry(world)
    world.until("held", seconds=30)
    services.skip(world.rescue(), actor="user:anna", reason="the pod may go", now=world.now)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")


def refused(world: World) -> None:
    world.kube.fail("apply_node", port.Refused("403"), times=1)
    world.fault(62)
    world.work()


def never_answers(world: World) -> None:
    world.kube.fail("apply_node", port.Unavailable("cut"), times=1000)
    world.fault(62)
    world.until("held", seconds=120)


WAYS: dict[str, tuple[Callable[[World], None], str]] = {
    "heal": (heal, "succeeded"),
    "half way": (half_way, "running"),
    "cancelled": (cancel, "cancelled"),
    "taken back by hand": (taken_back, "cancelled"),
    "held": (hold, "held"),
    "retried": (retry, "running"),
    "skipped": (skip, "succeeded"),
    "refused": (refused, "failed"),
    "never an answer": (never_answers, "held"),
}


@pytest.mark.parametrize("way", WAYS)
def test_inv_46_replay_gives_the_record(world: World, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    go, state = WAYS[way]
    go(world)
    rescue = world.rescue()
    replayed = queries.replay("c1", rescue=rescue.pk)

    assert replayed.state == state
    assert replayed.plan_hash == rescue.plan_hash
    assert (replayed.outcome, replayed.verified) == (rescue.outcome, rescue.verified)
    assert [step.name for step in replayed.steps.values()] == [step.name for step in rescue.steps.all()]
    call_command("ledger", "replay", "--rescue", str(rescue.pk))
    assert capsys.readouterr().out.endswith("equals the row\n")


def test_inv_46_replay_of_approvals_and_requests(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    services.request(world.node(), "cordon", actor="user:bo", reason="noise", now=world.now)
    world.work()
    services.request(world.node(), "release", actor="user:bo", reason="quiet again", now=world.now)
    world.work()
    outcomes = [queries.replay("c1", rescue=pk).outcome for pk in Rescue.objects.values_list("pk", flat=True)]
    assert outcomes == ["done", "done"]
    for pk in Rescue.objects.values_list("pk", flat=True):
        call_command("ledger", "replay", "--rescue", str(pk))
    assert capsys.readouterr().out.count("equals the row") == 2


@pytest.mark.parametrize("approved", [True, False])
def test_inv_46_replay_of_an_approval(db: None, approved: bool, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(policy=APPROVE)
    try:
        world.fault(62)
        world.work()
        rescue = world.rescue()
        assert queries.replay("c1", rescue=rescue.pk).state == "held"
        say = services.approve if approved else services.reject
        say(rescue, actor="user:anna", reason="", now=world.now)
        world.work()
        assert queries.replay("c1", rescue=rescue.pk).state == ("running" if approved else "cancelled")
        call_command("ledger", "replay", "--rescue", str(rescue.pk))
        assert "equals the row" in capsys.readouterr().out
    finally:
        world.uninstall()


def test_inv_46_replay_of_a_yes_in_the_middle_and_of_one_of_two(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    two = "approval: {required: true, approvers: 2, expires: 1h}"
    world = World(
        policy=HEAL.replace("rescue.ksyun.com", "kcover.io").replace("priority: 10", f"priority: 10\n      {two}")
    )
    try:
        world.fault(62)
        world.work()
        rescue = world.rescue()
        assert queries.replay("c1", rescue=rescue.pk).state == "held"
        services.approve(rescue, actor="user:anna", reason="", now=world.now)
        replayed = queries.replay("c1", rescue=rescue.pk)
        assert (replayed.state, replayed.needs_human) == ("held", True)
        services.approve(rescue, actor="user:bo", reason="", now=world.now)
        assert queries.replay("c1", rescue=rescue.pk).state == "running"
        call_command("ledger", "replay", "--rescue", str(rescue.pk))
        assert "equals the row" in capsys.readouterr().out
    finally:
        world.uninstall()


def test_inv_46_replay_of_a_second_round(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    half_way(world)
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(64)
    world.pass_time()
    rescue = world.rescue()
    assert len(queries.replay("c1", rescue=rescue.pk).steps) == rescue.steps.count()
    for _ in range(5):
        world.pass_time()
    world.reboot()
    world.until("succeeded")
    call_command("ledger", "replay", "--rescue", str(rescue.pk))
    assert "equals the row" in capsys.readouterr().out


def test_inv_46_a_row_that_was_changed_behind_the_ledger_is_found(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(policy=CORDON)
    try:
        world.fault(62)
        world.work()
        rescue = world.rescue()
        Rescue.objects.filter(pk=rescue.pk).update(outcome="healed")
        Step.objects.filter(rescue=rescue).update(state="skipped")
        with pytest.raises(CommandError, match="2 things differently"):
            call_command("ledger", "replay", "--rescue", str(rescue.pk))
        told = capsys.readouterr().out
        assert "differs: outcome is healed, the ledger says isolated" in told
        assert "differs: step 0 cordon is skipped, the ledger says cordon done" in told
    finally:
        world.uninstall()


def test_a_rescue_whose_row_is_gone_is_replayed_all_the_same(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    heal(world)
    rescue = world.rescue().pk
    world.cluster.delete()
    with pytest.raises(CommandError, match="say whose ledger"):
        call_command("ledger", "replay", "--rescue", str(rescue))
    call_command("ledger", "replay", "--rescue", str(rescue), "--cluster", "c1")
    assert "succeeded, healed" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no rescue 99"):
        call_command("ledger", "replay", "--rescue", "99", "--cluster", "c1")
