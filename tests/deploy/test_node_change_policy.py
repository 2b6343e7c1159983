"""deploy/node-change-policy.yaml lets the portal's accounts change what the portal changes of nodes, and no more."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kcover.actions import label, taint
from kcover.checks import autopilot
from kcover.decisions import guards, standby
from kcover.nodes import marks, node_stage, probation_mark
from kcover.preflight import gate
from kcover.values import kube_names
from kcover_portal.kube import change, port
from kcover_portal.kube.wire import nodes
from simulator.kubeapi import patches
from tests.deploy import chart
from tests.deploy.admission import AdmissionPolicy

POLICY = AdmissionPolicy.of_file("node-change-policy.yaml")
Object = dict[str, Any]
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def made(**labels: str) -> Object:
    """A node as the API server keeps it."""
    known = {"kubernetes.io/hostname": "gpu-1", "topology.kubernetes.io/zone": "a", "team": "a", **labels}
    meta = {"name": "gpu-1", "uid": "u", "resourceVersion": "5", "labels": known, "finalizers": ["example.com/f"]}
    meta |= {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true", "kcover.io/bmc": "b"}}
    spec = {
        "podCIDR": "10.0.0.0/24",
        "providerID": "aws:///i-1",
        "taints": [CONTROL_PLANE, {"key": "a", "effect": "NoSchedule"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def after(old: Object, wanted: port.NodeChange) -> Object:
    """The node after a change by the portal's client."""
    patch = change.merge_patch(msgspec.convert(old, nodes.NodeObject), wanted)
    assert patch is not None
    new: Object = patches.merge(old, patch)
    return new


LABELS = (
    *(node_stage.STATE_LABEL, node_stage.STANDBY_LABEL, probation_mark.LABEL, gate.LABEL),
    *(autopilot.GPU_HEALTH, autopilot.LEVEL_3, "nvidia.com/mig.config", "pool", "node-role.kubernetes.io/trainer"),
    *("node.kubernetes.io/exclude-from-external-load-balancers", guards.EXCLUDE_LABEL),
)
ANNOTATIONS = (marks.ANNOTATION, probation_mark.ANNOTATION, standby.ANNOTATION, autopilot.LEVEL_3_OUTPUT)


@pytest.mark.parametrize("key", LABELS)
def test_the_labels_that_the_portal_writes_are_admitted(key: str) -> None:
    bare, full = made(), made(**{key: "y"})
    assert POLICY.denials(bare, after(bare, port.NodeChange(labels={key: "x"}))) == []
    assert POLICY.denials(full, after(full, port.NodeChange(labels={key: "x"}))) == []
    assert POLICY.denials(full, after(full, port.NodeChange(labels={key: None}))) == []


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_the_annotations_that_the_portal_writes_are_admitted(key: str) -> None:
    bare = made()
    full = after(bare, port.NodeChange(annotations={key: "x"}))
    assert POLICY.denials(bare, full) == []
    assert POLICY.denials(full, after(full, port.NodeChange(annotations={key: None}))) == []


def test_cordons_and_taints_are_admitted() -> None:
    ours = (
        port.Taint(taint.DEFAULT_KEY, "79", "NoExecute"),
        port.Taint("node.kubernetes.io/out-of-service", "x", "No"),
    )
    old = made()
    new = after(old, port.NodeChange(cordon=True, add_taints=ours, annotations={marks.ANNOTATION: "{}"}))
    assert POLICY.denials(old, new) == []
    assert POLICY.denials(new, after(new, port.NodeChange(cordon=False, remove_taints=ours))) == []
    bare = {key: one for key, one in made().items() if key != "spec"} | {"spec": {}}
    bare["metadata"] = {"name": "gpu-1", "resourceVersion": "5"}
    assert POLICY.denials(bare, after(bare, port.NodeChange(cordon=True, labels={"a": "b"}, add_taints=ours))) == []


CHANGES: list[Callable[[Object], object]] = [
    lambda node: node["metadata"]["labels"].update({"kubernetes.io/hostname": "gpu-2"}),
    lambda node: node["metadata"]["labels"].pop("topology.kubernetes.io/zone"),
    lambda node: node["metadata"]["labels"].update({"node-restriction.kubernetes.io/trusted": "true"}),
    lambda node: node["metadata"]["labels"].update({"feature.node.kubernetes.io/pci-10de.present": "true"}),
    lambda node: node["metadata"]["labels"].update({"node.k8s.io/x": "true"}),
    lambda node: node["metadata"]["labels"].update({"node-role.kubernetes.io/control-plane": ""}),
    lambda node: node["metadata"]["labels"].update({"node-role.kubernetes.io/etcd": ""}),
    lambda node: node["metadata"]["labels"].update({"kcover.io/another": "true"}),
    lambda node: node["metadata"]["annotations"].update({"kcover.io/bmc": "evil.example.com"}),
    lambda node: node["metadata"]["annotations"].pop("kcover.io/bmc"),
    lambda node: node["metadata"]["annotations"].update({"machineconfiguration.openshift.io/desiredConfig": "evil"}),
    lambda node: node["metadata"].update(annotations={}),
    lambda node: node["metadata"].update(finalizers=[]),
    lambda node: node["metadata"].update(ownerReferences=[{"uid": "o"}]),
    lambda node: node["spec"].update(podCIDR="10.1.0.0/24"),
    lambda node: node["spec"].pop("providerID"),
    lambda node: node["spec"].update(configSource={"x": 1}),
    lambda node: node["spec"].update(taints=node["spec"]["taints"][1:]),
    lambda node: node["spec"].pop("taints"),
    lambda node: node["spec"]["taints"].append({**CONTROL_PLANE, "effect": "NoExecute"}),
]


def test_other_changes_are_denied_and_every_validation_is_needed() -> None:
    found: set[str] = set()
    for number, one in enumerate(CHANGES):
        old = made()
        new = copy.deepcopy(old)
        one(new)
        denied = POLICY.denials(old, new)
        assert len(denied) == 1, number
        found |= set(denied)
    assert found == POLICY.messages


@pytest.mark.parametrize(
    "key",
    [
        *("team", "example.com/x", "node-role.kubernetes.io/worker", *kube_names.CONTROL_PLANE),
        *("kubernetes.io/os", "a.kubernetes.io/x", "k8s.io/x", "a.k8s.io/x", "mykubernetes.io/x", "notk8s.io/x"),
        *("team.kcover.io/x", "kcover.io.example.com/x"),
        *(
            "kubernetes.io",
            "node.kubernetes.io/instance-type",
            kube_names.NO_LOAD_BALANCER,
            "kubernetes.io.example.com/x",
        ),
    ],
)
def test_a_rule_may_set_just_the_labels_that_the_api_server_admits(key: str) -> None:
    """Or an action that a policy names would be refused on the way."""
    refusal = label.SPEC.policy.when_saved["key"](key)
    assert (refusal is not None) == kube_names.is_fixed_label(key)
    old = made()
    assert bool(POLICY.denials(old, after(old, port.NodeChange(labels={key: "x"})))) == (refusal is not None)
    old = made(**{key: "y"})
    assert bool(POLICY.denials(old, after(old, port.NodeChange(labels={key: None})))) == (refusal is not None)


@pytest.mark.parametrize("key", ["team", "node.kubernetes.io/out-of-service", *kube_names.CONTROL_PLANE])
def test_a_rule_may_set_just_the_taints_that_the_api_server_admits(key: str) -> None:
    refusal = taint.SPEC.policy.when_saved["key"](key)
    assert (refusal is not None) == (key in kube_names.CONTROL_PLANE)
    old = made()
    new = after(old, port.NodeChange(add_taints=(port.Taint(key, "x", "NoSchedule"),)))
    assert bool(POLICY.denials(old, new)) == (refusal is not None)


@pytest.mark.parametrize(("name", "is_bound"), [("portal", True), ("worker", True), ("watch", False), ("agent", False)])
def test_the_accounts_that_may_change_nodes_are_bound(name: str, is_bound: bool) -> None:
    assert POLICY.is_about(f"system:serviceaccount:kcover-system:kcover-{name}") is is_bound
    assert not POLICY.is_about(f"system:serviceaccount:other:kcover-{name}")


def test_the_policy_denies_and_can_be_switched_off() -> None:
    assert POLICY.binding["spec"] == {"policyName": POLICY.policy["metadata"]["name"], "validationActions": ["Deny"]}
    features = {**chart.EVERYTHING["features"], "nodeChangePolicy": False}
    rendered = chart.render(chart.EVERYTHING | {"features": features})
    assert not [one for one in rendered if one["metadata"]["name"].endswith("node-change")]
