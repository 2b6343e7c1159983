"""Evidence of a rescue: asked for with the drain, waited for by the step that destroys it, and never for long."""

import gzip
import hashlib
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover.evidence import bundle as core
from kcover_portal.evidence import services as evidence
from kcover_portal.evidence.models import Bundle
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.ledger.models import Entry
from kcover_portal.ledger.queries import rescue_replay
from kcover_portal.rescue import services
from kcover_portal.rescue.step.evidence import WAIT_LIMIT
from tests import proofs
from tests.codes import code_of
from tests.portal.rescue import agents
from tests.portal.rescue.test_actions_reset import POLICY as RESET
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db
CONTENT = gzip.compress(b"NVRM: Xid 79", mtime=0)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.collects_evidence = True
    made.kube.add_pod("default", "train-0", node=NODE, gpus=8)
    yield made
    made.uninstall()


def requested() -> list[Command]:
    return agents.commands(core.COMMAND)


def upload(world: World, command: Command, content: bytes = CONTENT, *, waited: timedelta = timedelta()) -> int:
    """The agent's upload of the bundle that the command asked for. ``waited``: since the request arrived."""
    asked = core.Upload(
        bundle=command.args["bundle"], offset=0, size=len(content), sha256=hashlib.sha256(content).hexdigest()
    )
    received = evidence.take(world.cluster, NODE, asked, content, now=world.now - waited)
    services.nudge(world.node(), now=world.now)
    return received


def reboot_asked(world: World) -> bool:
    return "request" in world.step("reboot").progress


def drained(world: World) -> None:
    """Until the reboot is the next step."""
    for _ in range(30):
        world.work()
        if world.step("drain").state == "done":
            return
        world.pass_time()
    raise AssertionError(world.step("drain").because)


def entries(verb: str) -> list[Entry]:
    return list(Entry.objects.filter(verb=verb).order_by("sequence"))


def test_evidence_is_requested_during_the_drain(world: World) -> None:
    world.fault(62)
    world.work()
    (command,) = requested()
    assert world.step("drain").state != "done"
    bundle = Bundle.objects.get()
    assert command.args == {"bundle": str(bundle.pk), "boot_id": world.node().boot_id}
    assert (bundle.rescue, bundle.number, bundle.state) == (world.rescue().pk, 1, "requested")


def test_evidence_that_came_during_the_drain_delays_no_reboot(world: World) -> None:
    world.fault(62)
    world.work()
    (command,) = requested()
    assert upload(world, command) == len(CONTENT)
    agents.answers(world, command)
    drained(world)
    assert reboot_asked(world)
    assert code_of(world.step("reboot").progress["evidence"]) == "evidence_stored"
    (entry,) = entries("evidence.kept")
    assert (entry.rescue, entry.node, entry.data["sha256"]) == (
        world.rescue().pk,
        NODE,
        hashlib.sha256(CONTENT).hexdigest(),
    )
    assert entries("evidence.missed") == []


@pytest.mark.parametrize(("seconds", "broken"), [(30, ""), (61, "time")])
def test_the_proof_holds_when_the_upload_waited_for_the_database(world: World, seconds: int, broken: str) -> None:
    world.fault(62)
    world.work()
    (command,) = requested()
    world.pass_time(70)
    drained(world)
    upload(world, command, waited=timedelta(seconds=seconds))
    world.until_reboot_is_asked()
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert proofs.broken_claim(world.rescue()).partition(":")[0] == broken


def test_the_reboot_waits_for_the_evidence(world: World) -> None:
    world.fault(62)
    drained(world)
    (command,) = requested()
    assert not reboot_asked(world)
    assert code_of(world.step("reboot").because) == "evidence_awaited"
    world.pass_time(5)
    assert not reboot_asked(world)
    agents.answers(world, command)  # collected, and not uploaded yet
    world.pass_time(1)
    assert not reboot_asked(world)
    upload(world, command)
    world.work()
    assert reboot_asked(world)
    assert len(requested()) == 1


@pytest.mark.parametrize("step", [1, 3, 7])
def test_inv_49_evidence_delays_a_reboot_by_20_s_at_most(world: World, step: int) -> None:
    world.fault(62)
    drained(world)
    began = world.now
    while not reboot_asked(world):
        assert world.now - began < WAIT_LIMIT + timedelta(seconds=step), world.step("reboot").because
        world.pass_time(step)
        world.report()
    (command,) = requested()
    assert (command.state, code_of(command.because)) == ("expired", "command_withdrawn")
    assert code_of(world.step("reboot").progress["evidence"]) == "evidence_too_late"
    (entry,) = entries("evidence.missed")
    assert (entry.rescue, entry.data["step"], entry.data["number"]) == (
        world.rescue().pk,
        world.step("reboot").index,
        1,
    )
    rescue_replay.replay(world.cluster.name, rescue=world.rescue().pk)


def test_inv_49_a_guard_in_between_does_not_restart_the_wait(world: World) -> None:
    world.fault(62)
    drained(world)
    world.pass_time(15)
    world.cluster.guards = {"budget": {"limit": 0}}
    since = world.step("reboot").progress["evidence_since"]
    services.nudge(world.node(), now=world.now)
    world.pass_time(6)
    assert world.step("reboot").progress["evidence_since"] == since
    assert reboot_asked(world)


@pytest.mark.parametrize("kind", ["silent", "falls_silent", "refused", "failed"])
def test_inv_49_a_silent_or_old_agent_delays_no_reboot(world: World, kind: str) -> None:
    world.fault(62)
    if kind == "silent":
        world.now += fleet.AGENT_SILENT_AFTER + timedelta(seconds=1)
        drained(world)
        assert requested() == []
    else:
        world.work()
        (command,) = requested()
        if kind == "falls_silent":
            world.now += fleet.AGENT_SILENT_AFTER + timedelta(seconds=1)
        else:
            agents.answers(world, command, kind, "no evidence")
        drained(world)
    assert reboot_asked(world)
    why = code_of(world.step("reboot").progress["evidence"])
    assert why == ("evidence_agent_silent" if "silent" in kind else "evidence_not_collected")
    assert len(entries("evidence.missed")) == 1


@pytest.mark.parametrize("version", ["0.9.12", ""])
def test_inv_49_no_evidence_is_requested_of_an_old_agent(world: World, version: str) -> None:
    world.fault(62)
    world.report(agent=version)
    drained(world)
    assert requested() == []
    assert reboot_asked(world)
    assert code_of(world.step("reboot").progress["evidence"]) == "evidence_agent_old"


def test_a_rescue_without_a_reboot_requests_no_evidence() -> None:
    world = World(policy=CORDON + "")
    world.collects_evidence = True
    try:
        world.fault(62)
        world.until("succeeded")
        assert requested() == []
        assert not Bundle.objects.exists()
    finally:
        world.uninstall()


def test_a_reset_waits_as_well() -> None:
    world = World(policy=RESET)
    world.collects_evidence = True
    try:
        agents.comes_up(world)
        world.fault(62)
        drained(world)
        (command,) = requested()
        assert agents.commands("reset_gpu") == []
        upload(world, command)
        world.work()
        assert len(agents.commands("reset_gpu")) == 1
        assert code_of(world.step("reset").progress["evidence"]) == "evidence_stored"
    finally:
        world.uninstall()


def test_asking_again_after_a_crash_asks_for_one_bundle(world: World) -> None:
    world.fault(62)
    world.work()
    rescue = world.rescue()
    for _ in range(2):
        asked = evidence.request(world.node(), rescue=rescue.pk, number=1, boot_id="", now=world.now)
        assert not asked
    assert (len(requested()), Bundle.objects.count()) == (1, 1)


def test_a_rescue_that_ends_withdraws_an_evidence_command_that_has_not_begun(world: World) -> None:
    world.fault(62)
    world.work()
    services.cancel(world.rescue(), actor="user:ann", reason="mistake", now=world.now)
    (command,) = requested()
    assert command.state == "expired"


def test_a_bundle_that_comes_after_the_reboot_is_kept(world: World) -> None:
    world.fault(62)
    drained(world)
    (command,) = requested()
    world.pass_time(21)
    assert reboot_asked(world)
    upload(world, command)
    assert Bundle.objects.get().state == "kept"
    assert len(entries("evidence.kept")) == 1
    rescue_replay.replay(world.cluster.name, rescue=world.rescue().pk)


def test_a_retry_by_a_person_does_not_wait_again(world: World) -> None:
    world.fault(62)
    drained(world)
    world.pass_time(21)
    before = world.step("reboot").progress["evidence"]
    rescue = world.until("held", seconds=60)
    services.retry(rescue, actor="user:ann", reason="again", now=world.now)
    world.work()
    assert world.step("reboot").progress["evidence"] == before
    assert len(entries("evidence.missed")) == 1


@pytest.mark.parametrize("arrives", ["in_time", "after_the_end", "never"])
def test_a_proof_of_the_rescue_holds_with_its_evidence(world: World, arrives: str) -> None:
    world.fault(62)
    world.work()
    (command,) = requested()
    if arrives == "in_time":
        upload(world, command)
    drained(world)
    world.pass_time(21)
    assert reboot_asked(world)
    services.cancel(world.rescue(), actor="user:ann", reason="enough", now=world.now)
    if arrives == "after_the_end":
        world.pass_time()
        upload(world, command)
    verbs = ["evidence.kept", "evidence.missed"]
    found = list(Entry.objects.filter(verb__in=verbs).order_by("sequence").values_list("verb", flat=True))
    assert found == {"in_time": verbs[:1], "after_the_end": verbs[::-1], "never": verbs[1:]}[arrives]
    assert proofs.broken_claim(world.rescue()) == ""
