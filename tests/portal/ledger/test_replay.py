"""Replaying a rescue's entries gives its row (invariant 46), however the rescue went."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from kcover import audit
from kcover.plans import kce_actions
from kcover_portal.fleet.models import Cluster
from kcover_portal.kube import port
from kcover_portal.ledger import queries, services as ledger
from kcover_portal.ledger.queries import rescue_replay
from kcover_portal.rescue import services
from kcover_portal.rescue.control import approval_links
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import lease
from tests.portal.rescue import test_actions_standby, test_actions_webhook
from tests.portal.rescue.other_system import OtherSystem
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
    world.kube.fail("apply_node", port.RefusedByServer("403"), times=1)
    world.fault(62)
    world.work()


def never_answers(world: World) -> None:
    world.kube.fail("apply_node", port.Unavailable("cut", ambiguous=True), times=1000)
    world.fault(62)
    world.until("held", seconds=120)


def second_boot(world: World) -> None:
    """A fault of the same rule in the verification."""
    half_way(world)
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(64)
    world.pass_time()


def starts_over(world: World) -> None:
    second_boot(world)
    for _ in range(5):
        world.pass_time()
    world.reboot()
    world.until("succeeded")


def starts_over_too_often(world: World) -> None:
    world.fault(62)
    for reboots in (1, 2):
        for _ in range(50):
            if len(world.kube.called("ensure_job")) == reboots:
                break
            world.pass_time()
        world.kube.reboot(NODE)
        world.fault(62)
        for _ in range(4):
            world.pass_time()


def second_round_skipped(world: World) -> None:
    world.kube.add_budget("default", "keep", match={"app": "train"})
    second_boot(world)
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.work()
    for _ in range(60):
        if world.rescue().state == "held":
            break
        world.pass_time(30)
    services.retry(world.rescue(), actor="user:anna", reason="again", now=world.now)
    for _ in range(60):
        world.pass_time(30)
        if world.rescue().state == "held":
            break
    services.skip(world.rescue(), actor="user:anna", reason="it may go", now=world.now)


def replaced_under_way(world: World) -> None:
    half_way(world)
    world.kube.delete_node(NODE)
    world.kube.add_node(NODE, gpus=8)
    world.pass_time()


def replaced_while_held(world: World) -> None:
    hold(world)
    world.kube.delete_node(NODE)
    world.kube.add_node(NODE, gpus=8)
    world.sync()
    services.sweep(now=world.now)


def withdrawn(world: World) -> None:
    cancel(world)
    for _ in range(2):
        services.withdraw(world.step("reboot").pk, clock=world.clock)
        world.now += lease.TIME


def ended_by_a_release(world: World) -> None:
    half_way(world)
    first = world.rescue()
    services.request(world.node(), "release", actor="user:anna", reason="mine", now=world.now)
    world.work()
    world.rescue = lambda *_: first  # it is the first one that is told of
    first.refresh_from_db()


def approve_mode_in_the_middle(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE)
    world.fault(62)
    world.until("waiting", step="drain")
    Cluster.objects.update(mode="approve")
    world.until("held")
    services.approve(world.rescue(), actor="user:anna", reason="go on", now=world.now)
    world.until_reboot_is_asked()


def too_late(world: World) -> None:
    asked = kce_actions.parse(
        {"nodeName": NODE, "xid": 62, "escalateTime": "30min", "actions": [{"name": "cordon"}]}, now=world.now
    )
    rescue, _ = services.request_plan(world.node(), asked, actor="token:x", payload={}, now=world.now)
    world.now += timedelta(hours=1)
    services.run(rescue.pk, clock=world.clock)


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
    "starts over": (starts_over, "succeeded"),
    "starts over once too often": (starts_over_too_often, "failed"),
    "retried and skipped in its second round": (second_round_skipped, "running"),
    "replaced under way": (replaced_under_way, "cancelled"),
    "replaced while held": (replaced_while_held, "cancelled"),
    "cancelled and withdrawn": (withdrawn, "cancelled"),
    "ended by a release": (ended_by_a_release, "cancelled"),
    "approve mode in the middle": (approve_mode_in_the_middle, "running"),
    "not to be started any more": (too_late, "cancelled"),
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
    assert capsys.readouterr().out.endswith("matches the row\n")


def test_inv_46_replay_of_approvals_and_requests(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    services.request(world.node(), "cordon", actor="user:bo", reason="noise", now=world.now)
    world.work()
    services.request(world.node(), "release", actor="user:bo", reason="quiet again", now=world.now)
    world.work()
    ended_as = [queries.replay("c1", rescue=pk).outcome for pk in Rescue.objects.values_list("pk", flat=True)]
    assert ended_as == ["done", "done"]
    for pk in Rescue.objects.values_list("pk", flat=True):
        call_command("ledger", "replay", "--rescue", str(pk))
    assert capsys.readouterr().out.count("matches the row") == 2


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
        assert "matches the row" in capsys.readouterr().out
    finally:
        world.uninstall()


def test_inv_46_replay_of_an_approval_in_the_middle_and_of_one_of_two(
    db: None, capsys: pytest.CaptureFixture[str]
) -> None:
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
        assert "matches the row" in capsys.readouterr().out
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
    assert "matches the row" in capsys.readouterr().out


def test_inv_46_a_row_that_was_changed_behind_the_ledger_is_found(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(policy=CORDON)
    try:
        world.fault(62)
        world.work()
        rescue = world.rescue()
        Rescue.objects.filter(pk=rescue.pk).update(outcome="healed")
        Step.objects.filter(rescue=rescue).update(state="skipped")
        with pytest.raises(CommandError, match="2 differences"):
            call_command("ledger", "replay", "--rescue", str(rescue.pk))
        reported = capsys.readouterr().out
        assert "differs: outcome is healed, the audit log says isolated" in reported
        assert "differs: step 0 cordon is skipped, the audit log says cordon done" in reported
    finally:
        world.uninstall()


def test_a_rescue_whose_row_is_gone_is_replayed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    heal(world)
    rescue = world.rescue().pk
    world.cluster.delete()
    with pytest.raises(CommandError, match="--cluster NAME"):
        call_command("ledger", "replay", "--rescue", str(rescue))
    call_command("ledger", "replay", "--rescue", str(rescue), "--cluster", "c1")
    assert "succeeded, healed" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no rescue 99"):
        call_command("ledger", "replay", "--rescue", "99", "--cluster", "c1")


def equals_its_row(rescue: Rescue, capsys: pytest.CaptureFixture[str]) -> bool:
    call_command("ledger", "replay", "--rescue", str(rescue.pk))
    return capsys.readouterr().out.endswith("matches the row\n")


@pytest.mark.parametrize("word", ["done", "failed", "taken over", "taken over and skipped", "given"])
def test_inv_46_replay_of_a_node_that_was_handed_over(
    db: None, word: str, settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    other = OtherSystem("shared")
    world = World(policy=test_actions_webhook.POLICY.format(url=other.url, wait=', waittime: "2h"'))
    try:
        world.cluster.decision_secret = "shared"
        world.cluster.save()
        world.fault(62)
        world.work()
        assert world.rescue().hold == "external"
        if word.startswith("taken over"):
            services.take_over(world.rescue(), actor="user:anna", reason="mine", now=world.now)
            if word.endswith("skipped"):
                services.skip(world.rescue(), actor="user:anna", reason="mended", now=world.now)
                world.work()
        elif word != "given":
            services.callback(world.rescue(), word, now=world.now, message="so")
            assert equals_its_row(world.rescue(), capsys)
            world.work()
        states = {"done": "succeeded", "failed": "held", "taken over": "held", "given": "running"}
        assert queries.replay("c1", rescue=world.rescue().pk).state == states.get(word, "succeeded")
        assert equals_its_row(world.rescue(), capsys)
    finally:
        world.uninstall()
        other.stop()


@pytest.mark.parametrize("spares", [0, 1])
def test_inv_46_replay_of_a_standby(db: None, spares: int, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(policy=test_actions_standby.POLICY)
    try:
        if spares:
            world.kube.add_node("spare-1", labels=test_actions_standby.SPARE, unschedulable=True)
        world.sync()
        world.fault(62)
        world.until("succeeded")
        assert equals_its_row(world.rescue(), capsys)
        verbs = set(ledger_verbs(world.rescue()))
        assert {"activate.done", "reserve.done"} <= verbs if spares else "reserve.done" not in verbs
    finally:
        world.uninstall()


@pytest.mark.parametrize("end", ["asked", "expired", "rejected", "healed", "approved"])
def test_inv_46_replay_of_a_question_by_link(
    db: None, end: str, django_user_model, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(policy=APPROVE)
    try:
        world.fault(62)
        world.work()
        rescue = world.rescue()
        ann = django_user_model.objects.create_user("ann", is_superuser=True)
        approval_links.invite(rescue, ann, maker=ann, now=world.now)
        if end == "expired":
            world.now += timedelta(days=2)
            services.sweep(now=world.now)
        elif end == "healed":
            rescue.incidents.update(state="closed")
            services.sweep(now=world.now)
        elif end != "asked":
            say = services.approve if end == "approved" else services.reject
            say(rescue, actor="user:ann", reason="", now=world.now, via="link")
        assert equals_its_row(world.rescue(), capsys)
        assert "rescue.link_made" in ledger_verbs(rescue)
    finally:
        world.uninstall()


def ledger_verbs(rescue: Rescue) -> list[str]:
    return list(queries.timeline("c1", rescue=rescue.pk).values_list("verb", flat=True))


# Acts that change the state of the rescue or of its steps.
HANDLED = (
    audit.RescueOpened,
    audit.RescueApproved,
    audit.RescueHeld,
    audit.RescueEnded,
    audit.StepRetried,
    audit.StepSkipped,
    audit.StepDone,
    audit.StepAttemptFailed,
    audit.StepHeld,
    audit.StepFailed,
    audit.StepStartedOver,
    audit.StepOverruled,
    audit.StepReplaced,
)


def test_inv_46_replay_knows_every_act_on_a_rescue_or_a_step() -> None:
    """It changes the state, or is named as one that does not."""
    for cls in {*audit.REGISTRY.values()}:
        if issubclass(cls, audit.RescueAct | audit.StepAct | audit.ClusterCall):
            assert cls in HANDLED or issubclass(cls, rescue_replay.IRRELEVANT), cls


class Teleported(audit.RescueAct, verb="rescue.teleported"):
    """An act of another version: this one has forgotten it."""


del audit.REGISTRY["rescue.teleported"]


def test_inv_46_an_unknown_act_is_not_guessed(world: World) -> None:
    half_way(world)
    rescue = world.rescue()
    ledger.record("c1", Teleported(rescue=rescue.pk, node=NODE), actor="system", now=world.now)
    with pytest.raises(LookupError, match=r"rescue\.teleported"):
        queries.replay("c1", rescue=rescue.pk)
