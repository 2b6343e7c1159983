"""A real API server lets the portal's account change of a node what deploy/node-change-policy.yaml says."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kcover.nodes import marks
from kcover_portal.kube import port
from tests.contract import admission, apiserver as real
from tests.contract.admission import MERGE, patched
from tests.deploy.test_node_change_policy import ANNOTATIONS, LABELS

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]
BAD = port.Taint("kcover.io/unhealthy", "79", "NoExecute")
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


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
    """A node of the control plane, too; returns its path."""
    name = rig.name(name)
    rig.node(name, taints=[CONTROL_PLANE], podCIDR="10.9.0.0/24")
    return rig.place("Node", "", name)


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


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"kubernetes.io/hostname": "gpu-9"}}},
        {"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "true"}}},
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"kcover.io/another": "true"}}},
        {"metadata": {"annotations": {"kcover.io/bmc": "evil.example.com"}}},
        {"metadata": {"annotations": {"machineconfiguration.openshift.io/desiredConfig": "evil"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "u"}]}},
        {"spec": {"providerID": "aws:///i-2"}},
        {"spec": {"taints": None}},
    ],
)
def test_other_changes_are_denied_to_the_portal_only(bound: real.ApiServerRig, patch: dict[str, Any]) -> None:
    at = add(bound, "gpu-1")
    assert patched(bound, at, patch) == 422
    assert bound.admin.ask("PATCH", at, patch, MERGE)[0] == 200
