"""A new node takes its first work after it has passed its burn-in, and not before (invariant 51)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.nodes import readiness_taint
from kcover_portal.checks.models import Validation
from kcover_portal.fleet.models import Maintenance, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.kube import port
from kcover_portal.repairs import tasks as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import burn_ins
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import agents, worker_kills
from tests.portal.rescue.validation_turns import answer, look, turn
from tests.portal.rescue.world import HEAL, World

pytestmark = pytest.mark.django_db
NEW = "gpu-new"
TAINT = port.Taint(*readiness_taint.TAINT)
OTHER = port.Taint("team", "a", "NoSchedule")


@pytest.fixture
def world(db: None) -> Iterator[World]:
    made = World(policy=HEAL, nodes=20)
    made.cluster.watched_at = made.now
    made.cluster.save()
    made.pass_time()
    switch(made, burn_in="tainted")
    made.pass_time()
    yield made
    made.uninstall()


def switch(world: World, **changes: Any) -> None:
    cluster_settings.set_cluster(world.cluster, changes, actor="user:anna", reason="", now=world.now)


def join(world: World, *taints: port.Taint, name: str = NEW, agent: bool = True) -> None:
    """A new machine joins the cluster and its agent reports."""
    world.kube.add_node(name, gpus=8, taints=taints)
    world.pass_time()
    if agent:
        agents.comes_up(world, name)


def until_tested(world: World, node: str = NEW) -> Validation:
    """Runs until the agent is asked for the checks."""
    for _ in range(60):
        world.pass_time()
        services.reconcile(now=world.now)
        world.report(node=node)
        look(world)
        if any(one.state == "offered" for one in agents.commands("run_check", node)):
            return Validation.objects.latest("pk")
    raise AssertionError([(step.name, step.state, str(step.why)) for step in world.rescue(node).steps.all()])


def burn_in_of(name: str = NEW) -> Rescue | None:
    return burn_ins.of_nodes().filter(node__name=name).order_by("-pk").first()


def live(world: World) -> port.Node:
    return world.kube.get_node(NEW)


def test_inv_51_a_node_that_registered_with_the_taint_is_freed_after_it_passed(world: World) -> None:
    join(world, TAINT, OTHER)
    row = until_tested(world)
    assert (row.profile, live(world).labels["kcover.io/state"]) == ("burn-in", "burn-in")
    assert TAINT in live(world).taints
    answer(world, node=NEW)
    rescue = world.rescue(NEW)
    assert [step.name for step in rescue.steps.all()] == ["validate", "uncordon"]
    assert (rescue.state, rescue.requester_kind, rescue.requested_by) == ("succeeded", "system", "system")
    assert (live(world).taints, live(world).labels, dict(live(world).annotations)) == ((OTHER,), {}, {})
    assert code_of(rescue.opened_because) == "burn_in_of_tainted"
    assert proofs.broken_claim(rescue) == ""
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    assert burn_ins.of_nodes().count() == 1


def test_inv_51_a_node_that_failed_keeps_the_taint_and_gets_a_repair(world: World) -> None:
    join(world, TAINT)
    until_tested(world)
    answer(world, node=NEW, dcgm="fail")
    rescue = world.rescue(NEW)
    assert (rescue.state, rescue.outcome, rescue.needs_human) == ("failed", "failed_validation", True)
    assert TAINT in live(world).taints
    repairs.sweep()
    assert Repair.objects.get().rescue == rescue
    assert proofs.broken_claim(rescue) == ""
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    assert burn_ins.of_nodes().count() == 1


def test_inv_51_an_unproven_node_is_held_for_a_person(world: World) -> None:
    join(world, TAINT)
    until_tested(world)
    answer(world, node=NEW, dcgm="skipped")
    held = world.rescue(NEW)
    assert (held.state, code_of(held.because)) == ("held", "validation_not_proven")
    assert TAINT in live(world).taints
    services.skip(held, actor="user:anna", reason="it has no DCGM", now=world.now)
    world.work()
    assert (world.rescue(NEW).state, live(world).taints) == ("succeeded", ())
    assert proofs.broken_claim(world.rescue(NEW)) == ""


def test_inv_51_a_rescue_for_another_cause_leaves_the_taint(world: World) -> None:
    switch(world, burn_in="off")
    join(world, TAINT)
    services.request(world.node(NEW), "reboot", actor="user:anna", now=world.now)
    for _ in range(60):
        world.pass_time()
        if world.step("reboot", NEW).progress.get("request"):
            break
    world.reboot(NEW)
    for _ in range(30):
        turn(world)
        world.report(node=NEW)
    assert (world.rescue(NEW).state, live(world).unschedulable, live(world).taints) == ("succeeded", False, (TAINT,))
    switch(world, burn_in="tainted")
    until_tested(world)
    answer(world, node=NEW)
    assert live(world).taints == ()


def test_a_reboot_by_a_person_leads_to_another_burn_in(world: World) -> None:
    join(world, TAINT)
    until_tested(world)
    answer(world, node=NEW, dcgm="fail")
    failed = world.rescue(NEW)
    services.request(world.node(NEW), "reboot", actor="user:anna", now=world.now)
    for _ in range(60):
        world.pass_time()
        if world.step("reboot", NEW).progress.get("request"):
            break
    world.reboot(NEW)
    until_tested(world)
    assert burn_in_of().pk > failed.pk
    assert TAINT in live(world).taints
    answer(world, node=NEW)
    assert (live(world).taints, live(world).unschedulable, dict(live(world).annotations)) == ((), False, {})


@pytest.mark.parametrize(
    ("verb", "requester", "leaves"),
    [
        ("uncordon", "person", ()),
        ("release", "person", ()),
        ("uncordon", "token", (TAINT,)),
        ("release", "token", (TAINT,)),
    ],
)
def test_inv_51_only_a_person_may_free_a_node_without_a_pass(
    world: World, verb: str, requester: str, leaves: tuple[port.Taint, ...]
) -> None:
    join(world, TAINT)
    until_tested(world)
    services.request(world.node(NEW), verb, actor="user:anna", now=world.now, requester=requester)
    world.pass_time()
    assert live(world).taints == leaves
    assert "kcover.io/rescue" not in live(world).annotations


def test_a_taint_that_someone_removes_ends_the_burn_in(world: World) -> None:
    join(world, TAINT)
    until_tested(world)
    world.kube.apply_node(NEW, port.NodeChange(remove_taints=(TAINT,)))
    for _ in range(40):
        world.pass_time()
        services.reconcile(now=world.now)
    rescue = world.rescue(NEW)
    assert (rescue.state, codes_of(rescue.because)[-1]) == ("cancelled", "readiness_taint_removed")
    assert (live(world).taints, live(world).labels, dict(live(world).annotations)) == ((), {}, {})
    assert Validation.objects.get().state == "cancelled"
    assert burn_ins.of_nodes().count() == 1


def test_the_validation_waits_for_the_agent(world: World) -> None:
    join(world, TAINT, agent=False)
    for _ in range(5):
        turn(world)
    assert (world.rescue(NEW).state, code_of(world.step("validate", NEW).because)) == (
        *("waiting", "burn_in_waits_for_agent"),
    )
    assert not Validation.objects.exists()
    for _ in range(3):
        world.pass_time(30)
        agents.comes_up(world, NEW)
    until_tested(world)


@pytest.mark.parametrize("mode", ["shadow", "paused"])
def test_nothing_is_written_in_a_mode_without_writes(world: World, mode: str) -> None:
    switch(world, mode=mode)
    join(world, TAINT)
    for _ in range(5):
        turn(world)
        services.reconcile(now=world.now)
    assert (burn_in_of(), live(world).labels) == (None, {})


def test_a_person_approves_in_approve_mode(world: World) -> None:
    switch(world, mode="approve")
    join(world, TAINT)
    rescue = world.rescue(NEW)
    assert (rescue.state, rescue.hold, live(world).labels) == ("held", "approval", {})
    services.approve(rescue, actor="user:bo", reason="", now=world.now)
    until_tested(world)
    answer(world, node=NEW)
    assert (world.rescue(NEW).state, live(world).taints) == ("succeeded", ())
    assert proofs.broken_claim(world.rescue(NEW)) == ""


def test_a_rejected_burn_in_is_not_requested_again(world: World) -> None:
    switch(world, mode="approve")
    join(world, TAINT)
    services.reject(world.rescue(NEW), actor="user:bo", reason="", now=world.now)
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    assert burn_ins.of_nodes().count() == 1
    assert burn_ins.waits_because(world.node(NEW)).code == "burn_in_over"
    assert live(world).taints == (TAINT,)


def test_an_excluded_node_and_a_window_of_maintenance_are_left_alone(world: World) -> None:
    world.kube.add_node(NEW, gpus=8, taints=(TAINT,), labels={"kcover.io/exclude": "true"})
    Maintenance.objects.create(
        cluster=world.cluster, node="gpu-late", reason="x", created_by="x",
        starts_at=world.now, ends_at=world.now + timedelta(hours=1),
    )  # fmt: skip
    world.kube.add_node("gpu-late", gpus=8, taints=(TAINT,))
    world.pass_time()
    services.reconcile(now=world.now)
    assert not burn_ins.of_nodes().exists()
    world.pass_time(3700)
    services.reconcile(now=world.now)
    assert [rescue.node.name for rescue in burn_ins.of_nodes()] == ["gpu-late"]


def test_burn_ins_use_no_slots_of_the_limits(world: World) -> None:
    """Nodes before their first work are out of service: they are neither counted nor do they take room."""
    for number in range(8):
        join(world, TAINT, name=f"new-{number}")
    assert burn_ins.of_nodes().count() == 8
    world.fault(62)
    world.work()
    assert world.kube.get_node("gpu-1").unschedulable


def test_all_nodes_of_a_new_cluster_are_burnt_in(db: None) -> None:
    """No node is eligible while all of them are before their first work."""
    world = World(policy="", nodes=0)
    switch(world, burn_in="tainted")
    for number in range(3):
        world.kube.add_node(f"first-{number}", gpus=8, taints=(TAINT,))
    world.pass_time()
    services.reconcile(now=world.now)
    assert burn_ins.of_nodes().filter(state__in=("running", "waiting")).count() == 3
    world.uninstall()


def test_a_new_machine_gets_the_taint(world: World) -> None:
    switch(world, burn_in="new", burn_in_profile="light")
    join(world)
    world.work()
    assert (live(world).taints, live(world).labels) == ((TAINT,), {"kcover.io/state": "burn-in"})
    row = until_tested(world)
    answer(world, node=NEW)
    rescue = world.rescue(NEW)
    assert ([step.name for step in rescue.steps.all()], row.profile) == (["taint", "validate", "uncordon"], "light")
    assert (rescue.state, live(world).taints, live(world).labels) == ("succeeded", (), {})
    assert code_of(rescue.opened_because) == "burn_in_of_new"
    assert proofs.broken_claim(rescue) == ""
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    assert [rescue.node.name for rescue in burn_ins.of_nodes()] == [NEW]


def test_no_machine_is_new_that_the_portal_knew_before(world: World) -> None:
    join(world, name="known")
    world.pass_time()
    switch(world, burn_in="new")
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    assert not Rescue.objects.exists()


def test_another_machine_under_a_known_name_is_new(world: World) -> None:
    switch(world, burn_in="new")
    world.kube.delete_node("gpu-3")
    world.pass_time()
    world.kube.add_node("gpu-3", gpus=8)
    world.pass_time()
    assert burn_in_of("gpu-3") is None  # only the object is new
    world.kube.delete_node("gpu-3")
    world.pass_time()
    world.kube.add_node("gpu-3", gpus=8, system_uuid="5f3b1e4c-0000-4000-8000-00000000abcd")
    world.pass_time()
    world.work()
    assert [step.name for step in burn_in_of("gpu-3").steps.all()] == ["taint", "validate", "uncordon"]
    assert TAINT in world.kube.get_node("gpu-3").taints


@pytest.mark.parametrize("seen_first", ["by the watch", "by the worker"])
def test_a_machine_that_takes_over_the_name_gets_a_burn_in_of_its_own(world: World, seen_first: str) -> None:
    join(world, TAINT)
    until_tested(world)
    first = world.rescue(NEW)
    world.kube.delete_node(NEW)
    world.kube.add_node(NEW, gpus=8, taints=(TAINT,), system_uuid="5f3b1e4c-0000-4000-8000-00000000abcd")
    if seen_first == "by the watch":
        world.sync()
    else:
        services.run(first.pk, clock=world.clock)
        world.now += timedelta(seconds=40)
        services.run(first.pk, clock=world.clock)
    for _ in range(40):
        world.pass_time()
        services.sweep(now=world.now)
        services.reconcile(now=world.now)
    first.refresh_from_db()
    assert (first.outcome, world.rescue(NEW).pk > first.pk) == ("replaced", True)
    assert (world.rescue(NEW).node_uid, live(world).taints) == (live(world).uid, (TAINT,))


def test_limits_hold_for_taints_of_the_portal(world: World) -> None:
    """If all nodes of a pool looked new, the guards of isolation would keep them in service."""
    switch(world, burn_in="new")
    Node.objects.update(machine_since=world.now + timedelta(seconds=1))
    for _ in range(3):
        turn(world)
        services.reconcile(now=world.now)
    tainted = [node.name for node in world.kube.list_nodes().items if TAINT in node.taints]
    assert len(tainted) == 5  # a quarter of the pool


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_inv_13_a_worker_that_dies_at_a_call_leaves_no_gap(world: World, call: int, after: bool) -> None:
    switch(world, burn_in="new")
    world.pass_time()
    world.kube.add_node(NEW, gpus=8)
    worker_kills.kill_at(world.kube, "apply_node", call=call, after=after)
    world.sync()
    for _ in range(120):
        world.now += timedelta(seconds=1)
        world.kube.finish_deletions()
        world.sync()
        agents.comes_up(world, NEW)
        worker_kills.work(world)
        look(world)
        for command in agents.commands("run_check", NEW):
            if command.state == "offered":
                assert TAINT in live(world).taints
                results = [{"name": name, "status": "pass"} for name in command.args["checks"]]
                agents.answers(world, command, checks=results)
        if world.rescue(NEW).state == "succeeded":
            break
    assert (world.rescue(NEW).state, live(world).taints, live(world).labels) == ("succeeded", (), {})
    assert proofs.broken_claim(world.rescue(NEW)) == ""
