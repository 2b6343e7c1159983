"""The mark of a probation, rewritten by the node's own kubelet: what the portal takes off is what its row says."""

import json
from collections.abc import Iterator

import pytest

from kcover.nodes.probation_mark import ANNOTATION, LABEL
from kcover_portal.kube import port
from kcover_portal.rescue import services
from tests.portal.rescue import agents
from tests.portal.rescue.test_probation import POLICY, TAINT, on_probation, returned
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
