"""Objects of custom resources: listed where they are installed, and told whether they were accepted."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kcover_portal.kube import port
from tests.contract import apiserver as real
from tests.deploy.manifests import ROOT, documents
from tests.kube_fake import FakeCluster

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
KIND = next(kind for kind in port.POLICY_KINDS if kind.group == "kcover.io" and kind.kind == "RescuePolicy")

DEFINITION = ROOT / "deploy" / "crds" / "rescuepolicies.kcover.io.yaml"


@pytest.fixture
def served(http_rig):
    """A policy on a server. A real one serves none without their definition."""
    if isinstance(http_rig, real.ApiServerRig):
        (definition,) = documents(DEFINITION)
        http_rig.define(definition)
    name = http_rig.name("gitops")
    http_rig.create(
        {
            "apiVersion": KIND.api_version,
            "kind": KIND.kind,
            "metadata": {"name": name},
            "spec": {"rules": [{"priority": 1}]},
        }
    )
    return http_rig.cluster, name


def find(cluster, name):
    return next((one for one in cluster.custom_objects(KIND) if one.name == name), None)


def accepted(one):
    return port.StatedCondition(
        type="Accepted", status="True", reason="Accepted", message="active", generation=one.generation
    )


def check(cluster, name):
    one = find(cluster, name)
    assert (one.kind, one.namespace, one.conditions) == (KIND, "", ())
    assert one.spec == {"rules": [{"priority": 1}]}
    cluster.state_condition(KIND, name, version=one.version, condition=accepted(one), at=AT)
    after = find(cluster, name)
    assert after.conditions == (accepted(one),)
    assert (after.spec, after.generation) == (one.spec, one.generation)
    refused = replace(accepted(one), status="False")
    with pytest.raises(port.Conflict):  # the version before the condition: the object may be another one since
        cluster.state_condition(KIND, name, version=one.version, condition=refused, at=AT)
    assert find(cluster, name).conditions == (accepted(one),)


def test_custom_objects_are_read_over_http(served):
    check(*served)


def test_custom_objects_are_read_from_the_fake():
    cluster = FakeCluster()
    cluster.put_custom_object(KIND, "gitops", {"rules": [{"priority": 1}]})
    check(cluster, "gitops")
    assert cluster.custom_objects(port.PREFLIGHT_REPORT) == []


RULE, SLICE = port.DEVICE_TAINT_RULES[1], port.RESOURCE_SLICES[0]


def check_devices(cluster, node, *, delete_node):
    """One device of a node is tainted: a rule is made once, is the portal's, and goes with the node."""
    assert [cluster.serves(kind) for kind in (RULE, SLICE, port.RESOURCE_SLICES[2])] == [True, True, False]
    assert [one.spec["nodeName"] for one in cluster.custom_objects(SLICE, node=node)] == [node]
    assert cluster.custom_objects(SLICE, node="another") == []
    name, owner = f"rule-{node}", cluster.get_node(node)
    spec = {"deviceSelector": {"pool": node}, "taint": {"key": "k", "effect": "NoSchedule"}}
    made = cluster.create_object(RULE, name, spec, owner=owner)
    assert cluster.create_object(RULE, name, {**spec, "deviceSelector": {}}, owner=owner) == made
    assert (made.managed, made.spec["deviceSelector"]) == (True, {"pool": node})
    with pytest.raises(port.Conflict):
        cluster.delete_object(RULE, "", name, uid="another")
    assert made.uid in [one.uid for one in cluster.custom_objects(RULE)]
    delete_node(node)
    assert made.uid not in [one.uid for one in cluster.custom_objects(RULE)]


@pytest.mark.simulator_only
def test_a_device_of_a_node_over_http(http_rig):
    if not http_rig.unrestricted().serves(RULE):
        pytest.skip("the API server is older than DeviceTaintRules")
    node = http_rig.name("gpu")
    http_rig.node(node)
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": node, "pool": pool, "devices": []}
    made = {"apiVersion": SLICE.api_version, "kind": SLICE.kind, "metadata": {"name": node}, "spec": spec}
    http_rig.create(made)
    check_devices(http_rig.unrestricted(), node, delete_node=lambda name: http_rig.remove("Node", name))


def test_a_device_of_a_node_in_memory():
    cluster = FakeCluster()
    cluster.served |= {RULE, SLICE}
    cluster.add_node("gpu-1")
    cluster.put_custom_object(SLICE, "s", {"nodeName": "gpu-1"})
    check_devices(cluster, "gpu-1", delete_node=cluster.delete_node)
