"""A machine that another one with the same name replaced: requests for the first never reach the second."""

from datetime import timedelta

import pytest

from kcover.nodes import marks
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Approval, Rescue
from tests.codes import found_in
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db


def replace(world: World, *, seen: bool = True) -> None:
    """Another machine takes the name; ``seen``: the watch has told."""
    world.kube.delete_node(NODE)
    if seen:
        world.sync()
    world.kube.add_node(NODE, gpus=8)
    if seen:
        world.sync()


def untouched(world: World) -> bool:
    node = world.kube.get_node(NODE)
    return not node.unschedulable and marks.ANNOTATION not in node.annotations and not node.taints


@pytest.fixture
def gated():
    world = World(policy=GATED % 1)
    yield world
    world.uninstall()


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("phase", ["drain", "reboot", "verify"])
def test_a_rescue_under_way_ends_and_leaves_the_new_machine_alone(world: World, phase: str, seen: bool) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    if phase == "drain":
        world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    if phase != "drain":
        world.until_reboot_is_asked()
    if phase == "verify":
        world.kube.reboot(NODE)
        world.until("waiting", step="verify")
    replace(world, seen=seen)
    writes = len([call for call in world.kube.writes if call.verb != "emit"])
    for pk in Rescue.objects.values_list("pk", flat=True):
        Rescue.objects.filter(pk=pk).update(due_at=world.now)
    world.work()

    rescue = world.rescue()
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("cancelled", "replaced", False)
    assert dict(found_in(rescue.because, "another_machine").params)["node"] == NODE
    assert untouched(world)
    assert len([call for call in world.kube.writes if call.verb != "emit"]) == writes
    world.sync()
    services.reconcile(now=world.now)
    assert queries.marked_on(world.node()) is None
    world.pass_time(60)
    assert untouched(world)


def test_inv_43_an_approval_for_the_old_machine_does_not_count_for_the_new(gated: World) -> None:
    gated.fault(62)
    gated.work()
    replace(gated)
    rescue = gated.rescue()
    rescue = services.approve(rescue, actor="user:ann", reason="seen", now=gated.now, plan_hash=rescue.plan_hash)
    assert (rescue.state, rescue.outcome) == ("cancelled", "void")
    gated.pass_time(5)
    assert untouched(gated)


def test_inv_43_an_approval_given_before_the_replacement_is_not_acted_on(gated: World) -> None:
    gated.fault(62)
    gated.work()
    services.approve(gated.rescue(), actor="user:ann", reason="seen", now=gated.now)
    assert Approval.objects.get().node_uid == gated.rescue().node_uid != ""
    replace(gated)
    gated.work()
    assert (gated.rescue().state, gated.rescue().outcome) == ("cancelled", "replaced")
    assert untouched(gated)
    assert gated.kube.called("evict") == []


@pytest.mark.parametrize("seen", [True, False])
def test_in_approve_mode_the_cordon_never_reaches_the_new_machine(world: World, seen: bool) -> None:
    Cluster.objects.update(mode="approve")
    world.fault(62)
    world.work()
    services.approve(world.rescue(), actor="user:ann", reason="seen", now=world.now)
    replace(world, seen=seen)
    world.work()
    assert (world.rescue().state, world.rescue().outcome) == ("cancelled", "replaced")
    assert untouched(world)


def test_the_sweep_ends_a_waiting_rescue_of_a_replaced_machine(gated: World) -> None:
    gated.fault(62)
    gated.work()
    replace(gated)
    services.sweep(now=gated.now)
    rescue = gated.rescue()
    assert (rescue.state, rescue.outcome, rescue.hold) == ("cancelled", "replaced", "")
    assert untouched(gated)


def test_a_machine_that_only_reboots_is_the_same(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    services.sweep(now=world.now)
    world.reboot()
    assert world.until("succeeded").outcome == "healed"


def test_a_machine_that_is_gone_for_a_while_and_comes_back_is_the_same(gated: World) -> None:
    gated.fault(62)
    gated.work()
    manifest = gated.kube.objects.get("Node", "", NODE)
    gated.kube.delete_node(NODE)
    gated.sync()
    services.sweep(now=gated.now)
    assert gated.rescue().state == "held"
    gated.kube.objects.create(manifest)
    gated.sync()
    services.sweep(now=gated.now)
    assert gated.rescue().state == "held"


def test_a_fault_of_the_new_machine_is_rescued(world: World) -> None:
    world.fault(62)
    world.work()
    replace(world)
    world.work()
    services.reconcile(now=world.now)
    world.now += timedelta(seconds=30)
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    assert world.until("succeeded").outcome == "healed"
    assert Rescue.objects.count() == 2


def test_a_replaced_machine_is_detected_at_the_write(world: World) -> None:
    """The node is replaced between the look at it and the patch."""
    world.fault(62)
    apply_node = world.kube.apply_node

    def replaced_first(*args: object, **more: object) -> object:
        world.kube.apply_node = apply_node
        replace(world, seen=False)
        return apply_node(*args, **more)

    world.kube.apply_node = replaced_first
    world.work()
    assert world.rescue().outcome == "replaced"
    assert untouched(world)


def test_an_operators_request_is_about_the_machine_that_was_there(db: None) -> None:
    world = World(policy=HEAL)
    try:
        services.request(world.node(), "reboot", actor="user:ann", reason="odd", now=world.now)
        replace(world, seen=False)
        world.work()
        assert world.rescue().outcome == "replaced"
        assert untouched(world)
    finally:
        world.uninstall()
