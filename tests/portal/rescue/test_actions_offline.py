"""A node that is taken offline: drained, tainted, handed over once, and handed back (invariant 10)."""

from collections.abc import Iterator
from typing import Any

import pytest

from kcover import reasons
from kcover.nodes import node_stage
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import offline
from kcover_portal.rescue.models import Probation
from kcover_portal.rescue.step import handover
from kcover_portal.rescue.step.context import Context
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: vendor}}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{actions}{{name: offline, attribute: {{url: "{url}", waittime: 2h, unCordon: "true"}}}}]
"""


@pytest.fixture
def other() -> Iterator[OtherSystem]:
    made = OtherSystem("shared")
    yield made
    made.stop()


@pytest.fixture
def make(other: OtherSystem, settings: Any) -> Iterator[Any]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made: list[World] = []

    def world(actions: str = "") -> World:
        one = World(policy=POLICY.format(url=other.url, actions=actions))
        one.cluster.decision_secret = "shared"
        one.cluster.save()
        made.append(one)
        return one

    yield world
    for one in made:
        one.uninstall()


def handed_over(world: World) -> None:
    world.fault(62)
    for _ in range(10):
        world.work()
        world.pass_time()
        if world.rescue().hold == "external":
            return
    raise AssertionError([(step.name, step.state, str(step.why)) for step in world.rescue().steps.all()])


def heal(world: World) -> None:
    for _ in range(30):
        world.work()
        if world.rescue().state == "succeeded":
            return
        world.pass_time(2)
        world.report()
    raise AssertionError([(step.name, step.state, str(step.why)) for step in world.rescue().steps.all()])


def test_a_node_is_drained_tainted_handed_over_and_handed_back(make: Any, other: OtherSystem) -> None:
    world = make()
    world.kube.add_pod("default", "train", node=NODE)
    handed_over(world)
    node = world.kube.get_node(NODE)
    assert (node.unschedulable, offline.TAINT in node.taints, world.kube.list_pods(node=NODE)) == (
        True,
        True,
        [],
    )
    assert node.labels[node_stage.STATE_LABEL] == "repair"
    rescue = world.rescue()
    assert [step.name for step in rescue.steps.order_by("index")] == [
        *("cordon", "drain", "offline", "verify", "uncordon")
    ]
    (asked,) = other.asked
    assert asked["delivery"] == f"offline-{rescue.pk}-2-0"
    services.callback(rescue, "done", now=world.now)
    heal(world)
    node = world.kube.get_node(NODE)
    assert (node.unschedulable, node.taints, node.labels.get(node_stage.STATE_LABEL)) == (False, (), None)
    assert (world.rescue().outcome, other.calls) == ("healed", 1)
    assert proofs.broken_claim(world.rescue()) == ""


def test_an_unrepaired_node_stays_offline_for_a_person(make: Any) -> None:
    world = make()
    handed_over(world)
    services.callback(world.rescue(), "failed", now=world.now, message="no spare part")
    world.work()
    assert (world.rescue().state, code_of(world.rescue().because)) == ("held", "not_repaired_because")
    assert offline.TAINT in world.kube.get_node(NODE).taints


@pytest.mark.parametrize("seconds", [31, 2 * 3600 + 1])
def test_a_callback_that_comes_while_its_step_looks_is_not_lost(
    make: Any, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    world = make()
    handed_over(world)
    look = handover._callback

    def then_called_back(context: Context) -> Any:
        found = look(context)
        monkeypatch.setattr(handover, "_callback", look)
        services.callback(world.rescue(), "done", now=world.now)
        return found

    monkeypatch.setattr(handover, "_callback", then_called_back)
    world.pass_time(seconds)
    heal(world)
    assert world.rescue().outcome == "healed"
    assert proofs.broken_claim(world.rescue()) == ""
    assert not Entry.objects.filter(verb="step.held").exists()


def test_inv_10_no_probation_ends_while_another_system_has_the_node(make: Any) -> None:
    world = make()
    handed_over(world)
    because, now = reasons.of("probation_over").to_json(), world.now
    about = {"node": world.node(), "rescue": world.rescue(), "because": because, "seconds": 60}
    Probation.objects.create(**about, planned_at=now, began_at=now, until=now, due_at=now)
    ends = Entry.objects.filter(verb="end_probation.begun")
    for _ in range(3):
        world.work()
        world.pass_time(31)
    assert not ends.exists()
    services.callback(world.rescue(), "done", now=world.now)
    heal(world)
    world.pass_time(31)
    assert ends.count() == 1


@pytest.mark.parametrize("after", [False, True])
def test_inv_52_a_worker_that_dies_hands_the_node_over_once(make: Any, other: OtherSystem, after: bool) -> None:
    world = make()
    world.fault(62)
    worker_kills.kill_at(world.kube, "apply_node", call=3, after=after)  # after the cordon and the drain's label
    assert worker_kills.work(world)
    handed_over(world)
    assert other.calls == 1
    patched = Entry.objects.filter(verb="taint.begun").count()
    assert patched == (1 if after else 2)


def test_offline_follows_a_reboot_only_if_it_failed(make: Any, other: OtherSystem) -> None:
    world = make("{name: drain}, {name: reboot}, ")
    world.fault(62)
    for _ in range(10):
        world.work()
        world.pass_time()
    world.kube.reboot(NODE)
    heal(world)
    assert (other.calls, code_of(world.step("offline").because)) == (0, "reboot_confirmed")
    assert proofs.broken_claim(world.rescue()) == ""
    dead = make_dead(make, world)
    assert "offline_next" in codes_of(dead.step("reboot").because)
    assert other.calls == 1


def make_dead(make: Any, before: World) -> World:
    """The same fault again; this time no boot follows the request."""
    before.pass_time(7200)
    before.report()
    before.fault(62)
    for _ in range(400):
        before.work()
        if before.rescue().hold == "external":
            return before
        before.pass_time(10)
        before.report()
    raise AssertionError([(step.name, step.state, str(step.why)) for step in before.rescue().steps.all()])
