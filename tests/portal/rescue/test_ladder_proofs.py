"""The proofs of rescues that replace a machine, open a repair or take a node offline: valid, and no forgery passes."""

import random
from typing import Any

import pytest
from django.utils import timezone

from kcover.repairs.repairs import Move
from kcover_portal.kube import port
from kcover_portal.repairs import services as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.queries import proof
from tests import forgeries, proofs
from tests.portal.repairs.conftest import add_validation
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.replacing import Fleet
from tests.portal.rescue.world import HEAL, World

pytestmark = pytest.mark.django_db
ACTIONS = HEAL.replace("rescue.ksyun.com/v1", "kcover.io/v1")
KINDS = ("dropped", "reordered", "altered")


def goes_on(world: World, rounds: int = 8) -> None:
    for _ in range(rounds):
        world.work()
        world.pass_time(2)
        world.report()


def replaced() -> World:
    """The first request was not accepted, and was made once more."""
    world = Fleet(kind="clusterapi")
    world.kube.fail("delete_object", port.Unavailable("429", retry_after=1.0))
    world.until_asked()
    world.terminate()
    world.pass_time(30)
    return world


def repaired() -> World:
    world = World(policy=ACTIONS.replace("name: reboot, attribute: {", "name: repair, attribute: {vendor: ACME, "))
    world.fault(62)
    goes_on(world, 5)
    row = Repair.objects.get()
    for verb in (Move.ACCEPT, Move.HAND_OVER, Move.RETURN):
        repairs.act(row, verb, actor="user:ann", reason="go on", now=timezone.now())
    add_validation(world.node(), at=timezone.now())
    repairs.look_at_validations(now=timezone.now())
    repairs.act(row, Move.CLOSE, actor="user:ann", reason="sound", now=timezone.now())
    world.pass_time(60)
    goes_on(world, 12)
    return world


def offline(other: OtherSystem) -> World:
    world = World(
        policy=ACTIONS.replace("name: reboot, attribute: {", f'name: offline, attribute: {{url: "{other.url}", ')
    )
    world.cluster.decision_secret = "shared"
    world.cluster.save()
    world.fault(62)
    goes_on(world, 5)
    services.callback(world.rescue(), "done", now=world.now)
    goes_on(world, 12)
    return world


@pytest.fixture
def genuine(request: pytest.FixtureRequest, settings: Any) -> dict[str, Any]:
    """The statements about the rescue with this last action."""
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    if request.param == "offline":
        other = OtherSystem("shared")
        world = offline(other)
        other.stop()
    else:
        world = {"replace": replaced, "repair": repaired}[request.param]()
    world.uninstall()
    assert world.rescue().outcome == ("replaced" if request.param == "replace" else "healed")
    statements = proof.unsigned(world.rescue())
    assert forgeries.entries(statements, {"offline": "webhook.done"}.get(request.param, f"{request.param}."))
    return statements


@pytest.mark.parametrize("genuine", ["replace", "repair", "offline"], indirect=True)
def test_a_forged_history_is_refused_although_it_is_signed_and_rewritten(genuine: dict[str, Any]) -> None:
    assert proofs.refusal(proofs.sign(genuine)) == ""
    chance, passed = random.Random("ladder"), set()
    for number in range(90):
        forged, lie = forgeries.forge([genuine], KINDS[number % len(KINDS)], form="rewritten", chance=chance)
        if not proofs.refusal(proofs.sign(forged)):
            passed.add(lie)
    assert passed == set()
