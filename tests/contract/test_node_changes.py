"""A real API server lets the portal's account change of a node what deploy/node-change-policy.yaml says."""

import itertools
from collections.abc import Iterator

import pytest

from kcover.nodes import marks
from kcover_portal.kube import port
from tests.contract import admission, apiserver as real
from tests.contract.admission import patched
from tests.deploy.test_node_change_policy import ANNOTATIONS, CHANGES, CONTROL_PLANE, LABELS, POLICY, made

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]
BAD = port.Taint("kcover.io/unhealthy", "79", "NoExecute")


@pytest.fixture
def bound(apiserver: real.ApiServerRig) -> Iterator[real.ApiServerRig]:
    """The server with the policy in force."""
    canary = add(apiserver, "canary")
    tries = itertools.count()  # a patch that changes nothing is admitted

    def denied() -> int:
        return patched(apiserver, canary, {"metadata": {"annotations": {"x": f"y{next(tries)}"}}})

    with admission.in_force(apiserver, "node-change-policy.yaml", denied=denied):
        yield apiserver


def add(rig: real.ApiServerRig, name: str) -> str:
    """A node of the control plane, too; returns its path. It has no podCIDR, which is fixed once set."""
    node = made()
    node["metadata"] |= {"name": rig.name(name)}
    del node["metadata"]["uid"], node["metadata"]["resourceVersion"], node["spec"]["podCIDR"]
    rig.create(node)
    return rig.place("Node", "", rig.name(name))


def test_the_portals_changes_are_admitted(bound: real.ApiServerRig) -> None:
    name = add(bound, "gpu-1").rpartition("/")[2]
    marked = port.NodeChange(cordon=True, add_taints=(BAD,), annotations={marks.ANNOTATION: "{}"})
    _, after = bound.cluster.apply_node(name, marked)
    assert after.unschedulable
    assert BAD in after.taints
    bound.cluster.apply_node(name, port.NodeChange(labels=dict.fromkeys(LABELS, "x")))
    bound.cluster.apply_node(name, port.NodeChange(annotations=dict.fromkeys(ANNOTATIONS, "{}")))
    bound.cluster.apply_node(
        name, port.NodeChange(labels=dict.fromkeys(LABELS), annotations=dict.fromkeys(ANNOTATIONS))
    )
    _, after = bound.cluster.apply_node(name, port.NodeChange(cordon=False, remove_taints=(BAD,)))
    assert not after.unschedulable
    assert BAD not in after.taints
    assert port.Taint(CONTROL_PLANE["key"], "", CONTROL_PLANE["effect"]) in after.taints


def test_other_changes_are_denied_to_the_portal_only(bound: real.ApiServerRig) -> None:
    assert admission.denials(bound, add(bound, "gpu-1"), CHANGES) == POLICY.messages
