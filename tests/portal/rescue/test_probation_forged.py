"""The mark of a probation, rewritten by the node's own kubelet: what the portal takes off is what its row says."""

import json
from collections.abc import Iterator

import pytest

from kcover.nodes.probation_mark import ANNOTATION, LABEL
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Probation
from tests.portal.rescue import agents
from tests.portal.rescue.test_probation import POLICY, TAINT, on_probation, rebooted, returned
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(db: None) -> Iterator[World]:
    made = World(policy=POLICY, nodes=2)
    agents.comes_up(made)
    yield made
    made.uninstall()


def rewrite(world: World, forged: dict[str, object]) -> None:
    mark = json.loads(world.kube.get_node(NODE).annotations[ANNOTATION]) | forged
    world.kube.apply_node(NODE, port.NodeChange(annotations={ANNOTATION: json.dumps(mark)}))
    world.sync()


@pytest.mark.parametrize("number", [1, 999])
@pytest.mark.parametrize("released", [False, True])
def test_the_mark_removes_no_taint_of_others(node: World, number: int, released: bool) -> None:
    """An administrator had set the same taint before, and the node took ordinary work without it."""
    node.kube.apply_node(NODE, port.NodeChange(add_taints=(TAINT,)))
    row = returned(node)
    rewrite(node, {"probation": number, "tainted": True, "before": {"label": "yes", "state": "well"}})
    if released:
        services.request(node.node(), "release", actor="user:ann", reason="it is well", now=node.now)
        node.until("succeeded")
    else:
        node.now = row.until
        node.pass_time(1)
    found = node.kube.get_node(NODE)
    assert (found.taints, LABEL in found.labels, "kcover.io/state" in found.labels) == ((TAINT,), False, False)


@pytest.mark.parametrize("forged", [{"tainted": False}, {"probation": 999}, {"probation": 10**30}, {"probation": -1}])
def test_the_mark_keeps_no_taint_of_the_portal(node: World, forged: dict[str, object]) -> None:
    row = returned(node)
    rewrite(node, forged)
    node.now = row.until
    node.pass_time(1)
    assert not on_probation(node.kube.get_node(NODE))


def test_a_mark_from_before_the_probation_makes_no_taint_the_portals(node: World) -> None:
    """An administrator had set the taint. The kubelet writes a mark before the patch that begins the probation."""
    forged = {
        "probation": 1,
        "rescue": 1,
        "until": node.now.isoformat(),
        "tainted": True,
        "before": {"label": None, "state": None},
    }
    change = port.NodeChange(add_taints=(TAINT,), annotations={ANNOTATION: json.dumps(forged)})
    node.kube.apply_node(NODE, change)
    row = returned(node)
    assert (row.pk, row.marks["tainted"]) == (1, False)
    node.now = row.until
    node.pass_time(1)
    found = node.kube.get_node(NODE)
    assert (found.taints, ANNOTATION in found.annotations) == ((TAINT,), False)


def test_a_release_between_the_patch_and_its_answer_takes_off_only_what_the_row_states(node: World) -> None:
    node.kube.apply_node(NODE, port.NodeChange(add_taints=(TAINT,)))
    row = returned(node)
    Probation.objects.filter(pk=row.pk).update(began_at=None)
    rewrite(node, {"tainted": True})
    services.request(node.node(), "release", actor="user:ann", reason="it is well", now=node.now)
    node.until("succeeded")
    found = node.kube.get_node(NODE)
    assert (found.taints, ANNOTATION in found.annotations) == ((TAINT,), False)


def test_the_row_states_the_marks_before_the_patch(node: World) -> None:
    rebooted(node)
    real, stated = node.kube.apply_node, []

    def applied(name: str, change: port.DesiredChange, **more: object) -> object:
        def noted(live: port.Node) -> port.NodeChange:
            wanted = change(live) if callable(change) else change
            if ANNOTATION in wanted.annotations:
                stated.extend(Probation.objects.filter(began_at=None).values_list("marks", flat=True))
            return wanted

        return real(name, noted, **more)

    node.kube.apply_node = applied
    node.until("succeeded")
    assert [marks["tainted"] for marks in stated] == [True]
