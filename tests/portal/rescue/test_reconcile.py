"""Rows and nodes that diverged while no rescue was open."""

import pytest

from kcover.nodes import marks
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import connections, port
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.models import Decision, Rescue
from tests.codes import code_of
from tests.kube_fake import FakeCluster
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def isolating(db: None):
    world = World(policy=CORDON)
    yield world
    world.uninstall()


def cancelled_in_flight(world: World) -> Rescue:
    """The cordon is made, its answer is lost, and a person ends the rescue before it is tried again."""
    world.kube.fail("apply_node", port.Unavailable("timed out", ambiguous=True), after=True)
    world.fault(62)
    world.work()
    services.cancel(world.rescue(), actor="user:ann", reason="wait", now=world.now)
    world.sync()
    return world.rescue()


def test_a_cordon_whose_answer_was_lost_is_found(isolating: World) -> None:
    rescue = cancelled_in_flight(isolating)
    assert isolating.kube.get_node(NODE).unschedulable
    assert not rescue.marks
    assert services.reconcile(now=isolating.now) == 1
    assert queries.marked_on(isolating.node()) == rescue
    isolating.kube.uncordon(NODE)
    isolating.sync()
    isolating.work()
    assert marks.ANNOTATION not in isolating.kube.get_node(NODE).annotations
    isolating.sync()
    assert services.reconcile(now=isolating.now) == 0


def test_a_node_that_was_uncordoned_meanwhile_is_released_at_once(isolating: World) -> None:
    cancelled_in_flight(isolating)
    isolating.kube.uncordon(NODE)
    isolating.sync()
    services.reconcile(now=isolating.now)
    isolating.work()
    released = Rescue.objects.latest("pk")
    assert (code_of(released.opened_because), released.reason) == ("uncordoned_by_hand", "")
    assert marks.ANNOTATION not in isolating.kube.get_node(NODE).annotations


def test_a_recreated_node_takes_no_slot(isolating: World) -> None:
    isolating.fault(62)
    isolating.work()
    isolating.sync()
    isolating.kube.delete_node(NODE)
    isolating.sync()
    isolating.kube.add_node(NODE, gpus=8)
    isolating.sync()
    services.reconcile(now=isolating.now)
    assert queries.marked_on(isolating.node()) is None
    assert not isolating.kube.get_node(NODE).unschedulable
    assert ledger.timeline("c1", node=NODE).first().verb == "marks.gone"
    isolating.fault(62)
    isolating.work()
    assert isolating.kube.get_node(NODE).unschedulable


def test_a_late_watch_is_not_believed(isolating: World) -> None:
    isolating.fault(62)
    isolating.work()  # the row of the node is from before the cordon
    assert services.reconcile(now=isolating.now) == 1
    assert queries.marked_on(isolating.node()) == isolating.rescue()


def test_nothing_is_released_while_paused_and_everything_afterwards(isolating: World) -> None:
    isolating.fault(62)
    isolating.work()
    isolating.sync()
    fleet.pause(cluster=None, reason="look first", actor="user:ann", now=isolating.now)
    isolating.kube.uncordon(NODE)
    isolating.sync()
    services.reconcile(now=isolating.now)
    assert marks.ANNOTATION in isolating.kube.get_node(NODE).annotations
    fleet.resume(cluster=None, reason="seen", actor="user:ann", now=isolating.now)
    services.reconcile(now=isolating.now)
    isolating.work()
    assert marks.ANNOTATION not in isolating.kube.get_node(NODE).annotations


@pytest.mark.parametrize("other", ["paused", "shadow", "away"])
def test_a_cluster_with_many_unreadable_nodes_does_not_delay_other_clusters(isolating: World, other: str) -> None:
    cancelled_in_flight(isolating)
    # "b" is before "c1", the cluster that can be looked at, by name and by key.
    first = Cluster(pk=isolating.cluster.pk - 1, name="b", kubeconfig="fake", created_at=isolating.now)
    first.mode = other if other != "away" else "enforce"
    first.save()
    rows = [Node(cluster=first, name=f"n{n}", created_at=isolating.now, in_cluster=True, gpus=8) for n in range(101)]
    Node.objects.bulk_create(rows)
    mark = marks.Marks(rescue=1, cordon=True).to_json()
    common = {"cluster": first, "origin": "policy", "plan_hash": "x", "state": "succeeded", "marks": mark}
    Rescue.objects.bulk_create([Rescue(node=node, opened_at=isolating.now, **common) for node in rows])
    away = FakeCluster(clock=isolating.clock)
    away.fail("get_node", port.Unavailable("no route to host"), times=1000)
    uninstall = connections.install(first.pk, away)
    try:
        assert services.reconcile(now=isolating.now) == (2 if other == "away" else 1)
        assert len(away.called("get_node")) == (1 if other == "away" else 0)
    finally:
        uninstall()
    assert queries.marked_on(isolating.node()) == Rescue.objects.get(cluster=isolating.cluster)


def test_without_an_answer_of_the_cluster_nothing_changes(isolating: World) -> None:
    rescue = cancelled_in_flight(isolating)
    isolating.kube.fail("get_node", port.Unavailable("away"))
    services.reconcile(now=isolating.now)
    rescue.refresh_from_db()
    assert not rescue.marks


def test_a_release_that_found_it_cordoned_again_leaves_the_node_to_people(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.until("waiting", step="drain")
    stopped = services.cancel(world.rescue(), actor="user:ann", reason="mine", now=world.now)
    world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    world.sync()
    world.kube.uncordon(NODE)
    world.sync()
    world.kube.cordon(NODE)
    world.sync()
    world.work()
    assert (world.rescue().requested_by, world.rescue().state) == ("system", "succeeded")
    assert code_of(world.step("release").because) == "release_still_cordoned"

    world.pass_time(60)
    world.fault(48, pci="0000:5d:00")
    world.work()
    assert world.rescue().requested_by == "system"
    [why] = [one for one in Decision.objects.latest("pk").reasons if one.code == "left_to_people"]
    assert dict(why.params)["rescue"] == str(stopped.pk)


def test_a_mark_of_an_unknown_rescue_is_left_alone(isolating: World) -> None:
    mark = marks.Marks(rescue=4711, cordon=True).render()
    isolating.kube.apply_node(NODE, port.NodeChange(cordon=True, annotations={marks.ANNOTATION: mark}))
    isolating.sync()
    services.reconcile(now=isolating.now)
    assert queries.marked_on(isolating.node()) is None
    assert isolating.kube.get_node(NODE).unschedulable


def test_a_pause_in_the_middle_of_a_call_stops_the_event_about_it(isolating: World) -> None:
    apply_node = isolating.kube.apply_node

    def paused_meanwhile(*args: object, **more: object) -> object:
        fleet.pause(cluster=isolating.cluster, reason="stop", actor="user:ann", now=isolating.now)
        return apply_node(*args, **more)

    isolating.kube.apply_node = paused_meanwhile
    isolating.fault(62)
    isolating.work()
    assert isolating.kube.called("emit") == []
