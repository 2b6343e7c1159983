"""Invariants 15 and 32 for rescues that wait: after an outage, a pause or a guard they continue on the facts of that
time.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import code_of, codes_of
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
AWAY = pytest.mark.parametrize("away", [timedelta(minutes=1), timedelta(days=3), timedelta(days=40)], ids=str)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(nodes=2)
    off = {"storm": {"enabled": False}, "rate": {"enabled": False}, "breaker": {"enabled": False}}
    cluster_settings.set_guards(made.cluster, off, actor="test", reason="", now=made.now)
    yield made
    made.uninstall()


def over(world: World) -> None:
    """The fault went by itself, and its source said so."""
    pks = list(Incident.objects.filter(state="open").values_list("pk", flat=True))
    incidents.close(
        pks, because=reasons.of("closed_by_because", by="test", why="it recovered"), actor="system", now=world.now
    )


def works(world: World) -> bool:
    return not world.kube.get_node(NODE).unschedulable


def before_its_drain(world: World) -> None:
    """The portal stops when the node is cordoned and nothing of the drain is done."""
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.fail("list_pods", port.Unavailable("going down"), times=1)
    world.fault(62)
    world.work()
    assert (world.step("cordon").state, world.step("drain").state) == ("done", "waiting")


@AWAY
def test_inv_15_after_an_outage_a_rescue_with_a_current_fault_continues(world: World, away: timedelta) -> None:
    before_its_drain(world)
    world.now += away
    world.until_reboot_is_asked()
    world.reboot()
    assert world.until("succeeded", seconds=5).outcome == "healed"
    assert (len(world.kube.called("evict")), len(world.kube.called("ensure_job"))) == (1, 1)


@AWAY
def test_inv_15_after_an_outage_a_rescue_without_a_current_fault_takes_no_work_away(
    world: World, away: timedelta
) -> None:
    before_its_drain(world)
    world.now += away
    over(world)
    for _ in range(5):
        world.pass_time(30)
    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "void", True)
    assert world.kube.called("evict") == world.kube.called("ensure_job") == []


@AWAY
def test_inv_15_after_an_outage_a_node_that_people_rebooted_is_not_rebooted(world: World, away: timedelta) -> None:
    before_its_drain(world)
    world.now += away
    world.kube.reboot(NODE)
    for _ in range(5):
        world.pass_time(5)
        world.report()
    assert world.until("succeeded", seconds=5).outcome == "healed"
    assert world.kube.called("ensure_job") == []


def held_by_a_pause(world: World) -> None:
    """Decided, laid down, and paused before its first call."""
    world.fault(62)
    services.decide(Incident.objects.get().pk, now=world.now)
    fleet.pause(cluster=world.cluster, reason="stop", actor="user:ann", now=world.now)
    world.pass_time(5)
    assert (world.rescue().state, code_of(world.rescue().because)) == ("waiting", "paused_because")


def held_by_a_guard(world: World) -> None:
    """Approved, and then the breaker trips."""
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    type(world.cluster).objects.update(isolate_before_approval=False)
    world.fault(62)
    world.work()
    world.pass_time(120)
    services.request(world.node("gpu-2"), "cordon", actor="user:ann", reason="", now=world.now)
    tight = {"breaker": {"enabled": True, "limit": 1, "window": 200_000}}
    cluster_settings.set_guards(world.cluster, tight, actor="t", reason="", now=world.now)
    services.approve(world.rescue(), actor="user:bob", reason="", now=world.now)
    world.pass_time(5)
    assert (world.rescue().state, code_of(world.rescue().because)) == ("waiting", "breaker")


HELD = pytest.mark.parametrize("held", [held_by_a_pause, held_by_a_guard])


def let_go(world: World) -> None:
    """What held it back is reset, and time enough passes."""
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="enforce")
    cluster_settings.set_guards(world.cluster, {"breaker": {"enabled": False}}, actor="t", reason="", now=world.now)
    for _ in range(5):
        world.pass_time(20)


@HELD
def test_inv_32_a_held_rescue_isolates_no_node_for_an_ended_fault(world: World, held) -> None:
    held(world)
    over(world)
    let_go(world)
    assert works(world)
    assert (world.rescue().state, world.rescue().outcome) == ("cancelled", "void")
    assert "fault_cleared" in codes_of(world.rescue().because)[0]


@HELD
def test_inv_32_a_rescue_held_for_too_long_expires(world: World, held) -> None:
    held(world)
    world.now += timedelta(hours=25)
    let_go(world)
    rescue = world.rescue()
    assert (works(world), rescue.state, rescue.outcome) == (True, "cancelled", "given_up")
    assert "expired" in codes_of(rescue.because)
    assert not rescue.needs_human  # nothing was begun, and nothing is left on the node
    world.fault(62)  # and if it comes back, it is acted on
    world.work()
    assert not works(world)
    assert Rescue.objects.filter(node__name=NODE).count() == 2


def test_inv_32_a_held_rescue_with_a_recent_fault_does_not_expire(world: World) -> None:
    held_by_a_pause(world)
    world.now += timedelta(hours=20)
    world.fault(62)
    world.now += timedelta(hours=20)
    let_go(world)
    assert not works(world)
    assert Rescue.objects.filter(node__name=NODE).count() == 1


def test_inv_32_an_approval_expires_after_a_day(world: World) -> None:
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    type(world.cluster).objects.update(isolate_before_approval=False)
    world.fault(62)
    world.work()
    Rescue.objects.update(approval_seconds=7 * 86_400, expires_at=world.now + timedelta(days=7))
    world.now += timedelta(days=2)
    services.approve(world.rescue(), actor="user:bob", reason="it is still so", now=world.now)
    world.work()
    assert not works(world)


def test_inv_32_a_held_decision_is_made_again_on_the_current_state(world: World) -> None:
    tight = {"breaker": {"enabled": True, "limit": 1, "window": 200_000}}
    cluster_settings.set_guards(world.cluster, tight, actor="t", reason="", now=world.now)
    services.request(world.node("gpu-2"), "cordon", actor="user:ann", reason="", now=world.now)
    world.fault(62)
    world.work()
    assert Decision.objects.get().answer == "hold"
    world.kube.reboot(NODE)  # by people: nothing of it is left
    world.sync()
    world.report()
    let_go(world)
    assert works(world)
    assert [one.code for one in Decision.objects.latest("pk").reasons] == ["rule_matches", "rebooted_since"]
