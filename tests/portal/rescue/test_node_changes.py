"""Which changes of nodes wake the engine: those that a rescue or an incident may wait for, and no others."""

from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover.nodes import marks
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.redecisions import labels_digest
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import node_changes
from kcover_portal.rescue.models import Rescue
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db

CORDON_TAINT = {"key": node_changes.CORDON_TAINT, "effect": "NoSchedule"}


@pytest.fixture
def isolating(db: None) -> Iterator[World]:
    made = World(policy=CORDON)
    yield made
    made.uninstall()


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that were nudged."""
    names: list[str] = []
    real = node_changes.nudge

    def nudge(node: Node, **more: object) -> None:
        names.append(node.name)
        real(node, **more)

    monkeypatch.setattr(node_changes, "nudge", nudge)
    return names


def drains(world: World) -> None:
    """A rescue has cordoned its node and waits for a pod to leave; the watch has not shown the cordon."""
    world.kube.add_pod("train", "worker", node=NODE, owner_kind="ReplicaSet")
    world.fault(62)
    world.work()
    assert (world.rescue().state, world.step("drain").state) == ("waiting", "waiting")
    assert not world.node().unschedulable


def edit(world: World, change: Callable[[dict], object]) -> None:
    world.kube.objects.edit("Node", "", NODE, change)


def annotate(kube: FakeCluster, text: str | None) -> None:
    kube.objects.merge("Node", "", NODE, {"metadata": {"annotations": {marks.ANNOTATION: text}}})


def test_the_cordon_of_a_rescue_does_not_wake_it(world: World, nudged: list[str]) -> None:
    drains(world)
    due = world.rescue().due_at
    world.sync()
    assert world.node().unschedulable
    assert world.node().labels[marks.STATE_LABEL] == "draining"
    edit(world, lambda node: node["spec"].update(taints=[CORDON_TAINT]))  # as Kubernetes does
    world.sync()
    assert len(world.node().taints) == 1
    assert (nudged, world.rescue().state, world.rescue().due_at) == ([], "waiting", due)


@pytest.mark.parametrize(
    "change",
    [
        lambda kube: kube.uncordon(NODE),
        lambda kube: kube.set_ready(NODE, False),
        lambda kube: kube.reboot(NODE),
        lambda kube: kube.delete_node(NODE),
        lambda kube: kube.label_node(NODE, {"kcover.io/exclude": "true"}),
        lambda kube: annotate(kube, None),
        lambda kube: annotate(kube, marks.Marks(rescue=99, cordon=True).render()),
        lambda kube: kube.objects.merge(
            "Node", "", NODE, {"spec": {"taints": [{"key": "theirs", "value": "x", "effect": "NoExecute"}]}}
        ),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_change_by_others_wakes_a_waiting_rescue(
    world: World, nudged: list[str], change: Callable[[FakeCluster], object], together: bool
) -> None:
    drains(world)
    if not together:
        world.sync()
    change(world.kube)
    world.sync()
    assert nudged == [NODE]
    assert (world.rescue().state, world.rescue().due_at) == ("running", world.now)


def test_a_label_of_the_rescue_is_its_own_until_another_changes_it(world: World, nudged: list[str]) -> None:
    drains(world)
    rescue = world.rescue()
    given = marks.read(rescue.marks).with_label("gpu", before=None, value="broken")
    Rescue.objects.update(marks=given.to_json())
    annotate(world.kube, given.render())
    world.kube.label_node(NODE, {"gpu": "broken"})
    world.sync()
    assert nudged == []
    world.kube.label_node(NODE, {"gpu": "fine"})
    world.sync()
    assert nudged == [NODE]


def test_a_held_rescue_is_woken_by_an_uncordon_only(world: World, nudged: list[str]) -> None:
    drains(world)
    Rescue.objects.update(state=Rescue.State.HELD, hold=Rescue.Hold.STEP, due_at=None)
    world.sync()
    world.kube.set_ready(NODE, False)
    world.sync()
    assert nudged == []
    world.kube.uncordon(NODE)
    world.sync()
    assert (nudged, world.rescue().state) == ([NODE], "running")


def test_a_running_rescue_reads_its_node_itself(world: World, nudged: list[str]) -> None:
    drains(world)
    Rescue.objects.update(state=Rescue.State.RUNNING)
    world.kube.uncordon(NODE)
    world.sync()
    assert nudged == []


def test_a_rescue_whose_node_another_system_has_waits_for_its_callback(world: World, nudged: list[str]) -> None:
    drains(world)
    Rescue.objects.update(hold=Rescue.Hold.EXTERNAL)
    world.kube.reboot(NODE)
    world.sync()
    assert (nudged, world.rescue().state) == ([], "waiting")


def test_the_cordon_of_an_ended_rescue_wakes_no_rescue(isolating: World, nudged: list[str]) -> None:
    isolating.fault(62)
    isolating.work()
    assert isolating.rescue().outcome == "isolated"
    isolating.sync()
    assert isolating.node().unschedulable
    assert (nudged, Incident.objects.get().decide_at) == ([], None)


def test_inv_20_an_isolated_node_that_is_uncordoned_is_released(isolating: World, nudged: list[str]) -> None:
    isolating.fault(62)
    isolating.work()
    isolating.sync()
    isolating.kube.uncordon(NODE)
    isolating.sync()
    assert nudged == [NODE]
    assert isolating.rescue().steps.get().name == "release"


def test_marks_without_a_rescue_that_has_them_are_left_to_reconcile(isolating: World, nudged: list[str]) -> None:
    annotate(isolating.kube, marks.Marks(rescue=99, cordon=True).render())
    isolating.sync()
    assert nudged == []


def test_changed_labels_let_a_decided_fault_be_decided_again(world: World, nudged: list[str]) -> None:
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.sync()
    world.fault(62)
    world.work()
    assert Incident.objects.get().decide_at is None
    world.kube.cordon(NODE)
    world.kube.label_node(NODE, {marks.STATE_LABEL: "theirs"})
    world.sync()
    assert nudged == []
    world.kube.label_node(NODE, {"kcover.io/exclude": None})
    world.sync()
    assert (nudged, Incident.objects.get().decide_at) == ([NODE], world.now)


@pytest.mark.parametrize("count", [1, 100])
def test_the_statements_do_not_depend_on_the_number_of_nodes(world: World, nudged: list[str], count: int) -> None:
    names = [f"gpu-{index}" for index in range(10, 10 + count)]
    for name in names:
        world.kube.add_node(name)
    world.sync()
    for node in Node.objects.filter(name__in=names):
        decided = {"decided_at": world.now, "decided_labels": labels_digest(node.labels)}
        times = {"opened_at": world.now, "last_at": world.now}
        Incident.objects.create(cluster=world.cluster, node=node, kind="xid", code="62", **decided, **times)
        world.kube.cordon(node.name)
    changes = node_rows.sync_list(world.cluster, world.kube.list_nodes().items, now=world.now)
    with CaptureQueriesContext(connection) as captured:
        services.nudge_changed(changes, now=world.now)
    assert (len(changes), nudged, len(captured.captured_queries)) == (count, [], 2)


def test_no_change_runs_no_query(world: World) -> None:
    with CaptureQueriesContext(connection) as captured:
        services.nudge_changed([], now=world.now)
    assert len(captured.captured_queries) == 0
