"""deploy/kubelet-policy.yaml keeps kubelets from what the portal believes of others, and from nothing else."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kcover.decisions import guards
from kcover.nodes import marks, node_stage
from kcover.sources import kube_events
from tests.deploy import chart
from tests.deploy.admission import AdmissionPolicy

POLICY = AdmissionPolicy.of_file("kubelet-policy.yaml")
Object = dict[str, Any]


def request(resource: str) -> Object:
    return {
        "resource": {"resource": resource},
        "userInfo": {"username": "system:node:gpu-1", "groups": ["system:nodes"]},
    }


def node() -> Object:
    """As a kubelet registers it, and with what the portal wrote."""
    labels = {"kubernetes.io/hostname": "gpu-1", "nvidia.com/gpu.count": "8", node_stage.STATE_LABEL: "held"}
    annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true", marks.ANNOTATION: "{}"}
    spec = {"podCIDR": "10.0.0.0/24", "unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]}
    return {"kind": "Node", "metadata": {"name": "gpu-1", "labels": labels, "annotations": annotations}, "spec": spec}


def event(about: str = "gpu-1", *, kind: str = "Node", annotations: Object | None = None) -> Object:
    found: Object = {
        "metadata": {"name": "x", "namespace": "default"},
        "involvedObject": {"kind": kind, "name": about, "uid": about},
        "reason": kube_events.XID_ERROR,
        "source": {"component": "kubelet", "host": "gpu-1"},
    }
    if annotations:
        found["metadata"]["annotations"] = annotations
    return found


OWN: list[Callable[[Object], object]] = [
    lambda one: one["metadata"]["labels"].update({"nvidia.com/gpu.count": "7", "kubernetes.io/os": "linux"}),
    lambda one: one["metadata"]["labels"].update({"notkcover.io/x": "y", "kcover.io.example.com/x": "y"}),
    lambda one: one["metadata"]["annotations"].pop("volumes.kubernetes.io/controller-managed-attach-detach"),
    lambda one: one["metadata"]["annotations"].update({"csi.volume.kubernetes.io/nodeid": "{}"}),
    lambda one: one["spec"].update(podCIDR="10.1.0.0/24", providerID="aws:///i-1"),
]
CHANGES: list[Callable[[Object], object]] = [
    lambda one: one["metadata"]["labels"].update({guards.EXCLUDE_LABEL: "true"}),
    lambda one: one["metadata"]["labels"].update({node_stage.STATE_LABEL: "ready"}),
    lambda one: one["metadata"]["labels"].pop(node_stage.STATE_LABEL),
    lambda one: one["metadata"].pop("labels"),
    lambda one: one["metadata"]["labels"].update({node_stage.STANDBY_LABEL: "true"}),
    lambda one: one["metadata"]["annotations"].update({marks.ANNOTATION: '{"labels": {}}'}),
    lambda one: one["metadata"].pop("annotations"),
    lambda one: one["metadata"]["annotations"].update({"kcover.io/bmc": "10.0.0.9"}),
    lambda one: one["spec"].update(unschedulable=False),
    lambda one: one["spec"].pop("unschedulable"),
    lambda one: one.pop("spec"),
]
LIES = [
    event("gpu-2"),
    event(""),
    {**event(), "involvedObject": {"kind": "Node"}},
    event("train-0", kind="Pod", annotations={kube_events.NEEDS_RECOVERY: "true"}),
    event(annotations={kube_events.PREFLIGHT_WORKLOAD: "job"}),
    event("gpu-2", annotations={f"{kube_events.PREFLIGHT_PREFIX}report": "x"}),
]


def test_what_a_kubelet_does_by_itself_is_admitted() -> None:
    for change in OWN:
        new = node()
        change(new)
        assert POLICY.denials(node(), new, request("nodes")) == []
    bare: Object = {"kind": "Node", "metadata": {"name": "gpu-1"}, "spec": {}}
    assert POLICY.denials(bare, copy.deepcopy(bare), request("nodes")) == []
    for told in (event(), event("train-0", kind="Pod"), event("train-0", kind="Pod", annotations={"a/b": "c"})):
        assert POLICY.denials(None, told, request("events")) == []
        assert POLICY.denials(told, {**told, "count": 2}, request("events")) == []


def test_what_the_portal_believes_of_others_is_denied_and_every_validation_is_needed() -> None:
    found: set[str] = set()
    for number, change in enumerate(CHANGES):
        new = node()
        change(new)
        denied = POLICY.denials(node(), new, request("nodes"))
        assert denied, number
        found |= set(denied)
    for number, lie in enumerate(LIES):
        for old in (None, event()):
            denied = POLICY.denials(old, lie, request("events"))
            assert denied, number
            found |= set(denied)
    assert found == POLICY.messages


def test_the_labels_that_an_update_of_the_status_changes_are_judged() -> None:
    [nodes, _] = POLICY.spec["matchConstraints"]["resourceRules"]
    assert nodes["resources"] == ["nodes", "nodes/status"]


def test_only_kubelets_are_bound() -> None:
    assert POLICY.is_about("system:node:gpu-1", "system:nodes", "system:authenticated")
    assert not POLICY.is_about("system:serviceaccount:kcover-system:kcover-portal", "system:serviceaccounts")
    assert not POLICY.is_about("kubernetes-admin", "system:masters")


def test_the_policy_denies_and_can_be_switched_off() -> None:
    assert POLICY.binding["spec"] == {"policyName": POLICY.policy["metadata"]["name"], "validationActions": ["Deny"]}
    features = {**chart.EVERYTHING["features"], "kubeletPolicy": False}
    rendered = chart.render(chart.EVERYTHING | {"features": features})
    assert not [one for one in rendered if one["metadata"]["name"].endswith("-kubelet")]


@pytest.mark.parametrize("values", [chart.LEAST, chart.TRIAL])
def test_it_is_in_force_by_default(values: Object) -> None:
    kinds = [one["kind"] for one in chart.render(values) if one["metadata"]["name"].endswith("-kubelet")]
    assert sorted(kinds) == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
