"""A node that is uncordoned outside of the portal: by ``kubectl uncordon``, or by its own kubelet."""

from typing import Any

import pytest

from kcover.nodes import marks
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from tests.codes import codes_of
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db
TAINT = port.Taint("team/faulty", "yes", "NoSchedule")
TAINTED = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: p}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: taint, attribute: {key: team/faulty, value: "yes", effect: NoSchedule}}
"""
REPAIR = "        - {name: repair, attribute: {vendor: ACME, queue: gpu}}\n"
BARE_REPAIR = "\n".join(line for line in TAINTED.splitlines() if "team/faulty" not in line) + "\n" + REPAIR


def isolated(policy: str) -> World:
    world = World(policy=policy)
    world.report()
    world.fault(62)
    for _ in range(10):
        world.pass_time(2)
    assert world.kube.get_node(NODE).unschedulable
    return world


def look(world: World) -> port.Node:
    for _ in range(5):
        world.sync()
        services.reconcile(now=world.now)
        world.pass_time(5)
    return world.kube.get_node(NODE)


def without_mark(found: dict[str, Any]) -> None:
    found["spec"].update(unschedulable=False)
    del found["metadata"]["annotations"][marks.ANNOTATION]


@pytest.mark.parametrize("policy", [TAINTED, TAINTED + REPAIR])
def test_inv_20_the_taints_wait_for_a_persons_release(policy: str) -> None:
    world = isolated(policy)
    world.kube.uncordon(NODE)
    node = look(world)
    assert (node.unschedulable, TAINT in node.taints, marks.ANNOTATION in node.annotations) == (False, True, True)
    ended = Rescue.objects.latest("pk")
    assert (ended.state, list(needs_person.left_to_people())) == ("failed", [ended])
    assert "uncordoned_outside" in codes_of(ended.because)
    assert set(Incident.objects.values_list("state", flat=True)) == {"open"}  # nobody has vouched for the node
    count = Rescue.objects.count()
    look(world)
    assert Rescue.objects.count() == count

    services.request(world.node(), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    node = world.kube.get_node(NODE)
    assert (TAINT in node.taints, marks.ANNOTATION in node.annotations) == (False, False)
    assert not needs_person.left_to_people().exists()
    world.uninstall()


def test_inv_20_a_repair_waits_for_a_persons_release() -> None:
    world = isolated(BARE_REPAIR)
    opened = Repair.objects.get()
    world.kube.uncordon(NODE)
    look(world)
    rescue = Rescue.objects.get()
    assert (rescue.state, list(needs_person.left_to_people())) == ("failed", [rescue])
    assert Repair.objects.get().state == opened.state
    services.request(world.node(), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    assert not needs_person.left_to_people().exists()
    world.uninstall()


def test_inv_20_no_reboot_that_was_asked_for_comes_later() -> None:
    world = World(policy=TAINTED + "        - {name: drain}\n        - {name: reboot}\n")
    world.report()
    world.fault(62)
    world.until_reboot_is_asked()
    assert world.kube.objects.list("Job")
    world.kube.uncordon(NODE)
    world.sync()
    world.work()
    assert (world.rescue().state, TAINT in world.kube.get_node(NODE).taints) == ("failed", True)
    assert world.kube.objects.list("Job") == []
    world.uninstall()


def test_a_removed_mark_does_not_make_the_portal_forget_its_taints() -> None:
    world = isolated(TAINTED + REPAIR)
    world.kube.objects.edit("Node", "", NODE, without_mark)
    node = look(world)
    assert (TAINT in node.taints, marks.ANNOTATION in node.annotations) == (True, True)
    assert Rescue.objects.get().state == "failed"
    services.request(world.node(), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    assert TAINT not in world.kube.get_node(NODE).taints
    world.uninstall()


def test_a_mark_that_is_removed_at_rest_clears_nothing() -> None:
    world = isolated(TAINTED)
    world.kube.uncordon(NODE)
    look(world)
    world.kube.objects.edit("Node", "", NODE, without_mark)
    node = look(world)
    assert (TAINT in node.taints, marks.ANNOTATION in node.annotations) == (True, False)
    assert needs_person.left_to_people().exists()
    services.request(world.node(), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    assert TAINT not in world.kube.get_node(NODE).taints
    look(world)
    assert not Rescue.objects.exclude(marks={}, marks_begun={}).exists()
    world.uninstall()


def test_where_the_cordon_was_all_the_node_is_back() -> None:
    world = isolated(CORDON)
    world.kube.uncordon(NODE)
    node = look(world)
    assert (node.unschedulable, marks.ANNOTATION in node.annotations) == (False, False)
    assert queries.marked_on(world.node()) is None
    assert not needs_person.left_to_people().exists()
    world.uninstall()
