"""A job's pods are kept off nodes by a required node affinity in its pod templates, beside what its owner wrote."""

from typing import Any

import pytest

from kcover_portal.kube import node_exclusion, port
from tests.contract.apiserver import ApiServerRig

OWN = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["h100"]}]}
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-3"]}]}
KNOWN = port.WORKLOADS["PyTorchJob"]


def not_in(*hosts: str) -> dict[str, Any]:
    return {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(hosts)}


def role(*terms: dict[str, Any], **affinity: Any) -> dict[str, Any]:
    required = {"nodeAffinity": {node_exclusion.REQUIRED: {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return {"replicas": 1, "template": {"spec": {"affinity": {**affinity, **required}, "priority": 7}}}


def job(rig: Any, **roles: Any) -> port.Workload:
    meta = {"name": rig.name("llm"), "namespace": rig.namespace}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta}
    if isinstance(rig, ApiServerRig):
        pytest.skip("this API server has no PyTorchJobs")
    rig.create({**body, "spec": {"pytorchReplicaSpecs": roles, "nprocPerNode": "8"}})
    return rig.cluster.workload(rig.namespace, "PyTorchJob", meta["name"])


def exclude(rig: Any, one: port.Workload, *hosts: str, uid: str = "") -> None:
    rig.cluster.exclude_hosts(rig.namespace, one.kind, one.name, uid=uid or one.uid, hosts=hosts)


def terms_of(rig: Any, one: port.Workload) -> dict[str, Any]:
    spec = rig.read("PyTorchJob", one.name, namespace=rig.namespace)["spec"]
    assert spec["nprocPerNode"] == "8"
    found = {}
    for name, given in spec["pytorchReplicaSpecs"].items():
        assert given["template"]["spec"]["priority"] == 7
        affinity = given["template"]["spec"]["affinity"]
        found[name] = affinity["nodeAffinity"][node_exclusion.REQUIRED]["nodeSelectorTerms"]
    return found


def test_every_role_and_every_term_excludes_the_node(rig: Any) -> None:
    one = job(rig, Master=role(), Worker=role(OWN, FIELDS, podAffinity={}))
    exclude(rig, one, "gpu-1")
    exclude(rig, one, "gpu-1", "gpu-2")
    own = OWN["matchExpressions"]
    assert terms_of(rig, one) == {
        "Master": [{"matchExpressions": [not_in("gpu-1"), not_in("gpu-2")]}],
        "Worker": [
            {"matchExpressions": [*own, not_in("gpu-1"), not_in("gpu-2")]},
            {**FIELDS, "matchExpressions": [not_in("gpu-1"), not_in("gpu-2")]},
        ],
    }


def test_an_excluded_host_is_not_written_again(rig: Any) -> None:
    one = job(rig, Worker=role())
    exclude(rig, one, "gpu-1")
    before = rig.read("PyTorchJob", one.name, namespace=rig.namespace)["metadata"]["resourceVersion"]
    exclude(rig, one, "gpu-1")
    assert rig.read("PyTorchJob", one.name, namespace=rig.namespace)["metadata"]["resourceVersion"] == before


def test_another_job_of_the_same_name_is_left_alone(rig: Any) -> None:
    one = job(rig, Worker=role(OWN))
    with pytest.raises(port.Conflict):
        exclude(rig, one, "gpu-1", uid="another")
    assert terms_of(rig, one) == {"Worker": [OWN]}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "StatefulSet", "LeaderWorkerSet", "RayCluster"])
def test_a_kind_without_such_a_template(kind: str) -> None:
    with pytest.raises(port.RefusedByServer):
        node_exclusion.patch(port.WORKLOADS[kind], {"template": {}}, hosts=["gpu-1"], uid="u", version="1")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"pytorchReplicaSpecs": {}},
        {"pytorchReplicaSpecs": []},
        {"pytorchReplicaSpecs": {"Worker": 7}},
        {"pytorchReplicaSpecs": {"Worker": {"template": "x"}}},
        {"pytorchReplicaSpecs": {"Worker": role({"matchExpressions": "x"})}},
        {"pytorchReplicaSpecs": {"Worker": role({"matchExpressions": ["x"]})}},
        {"pytorchReplicaSpecs": {"Worker": role({"matchExpressions": [{**not_in(), "values": 7}]})}},
    ],
)
def test_a_template_of_an_unexpected_form_is_left_alone(spec: dict[str, Any]) -> None:
    with pytest.raises(port.RefusedByServer):
        node_exclusion.patch(KNOWN, spec, hosts=["gpu-1"], uid="u", version="1")
    assert node_exclusion.excluded(KNOWN, spec) == frozenset()


def test_without_a_node_nothing_is_written(rig: Any) -> None:
    one = job(rig, Worker=role(OWN))
    exclude(rig, one)
    assert terms_of(rig, one) == {"Worker": [OWN]}


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": []}])
def test_an_owner_s_term_that_matches_no_node_stays(empty: dict[str, Any]) -> None:
    spec = {"pytorchReplicaSpecs": {"Worker": role(empty)}}
    assert node_exclusion.patch(KNOWN, spec, hosts=["gpu-1"], uid="u", version="1") is None


@pytest.mark.parametrize(
    ("roles", "hosts"),
    [
        (
            [role({"matchExpressions": [not_in("gpu-1", "gpu-2")]}), role({"matchExpressions": [not_in("gpu-2")]})],
            {"gpu-2"},
        ),
        ([role({"matchExpressions": [not_in("gpu-2")]}), role()], set()),
        ([role({"matchExpressions": [not_in("gpu-2")]}), role({})], {"gpu-2"}),
        ([role({})], set()),
    ],
)
def test_the_hosts_that_a_job_excludes_already(roles: list[dict[str, Any]], hosts: set[str]) -> None:
    spec = {"pytorchReplicaSpecs": {str(index): one for index, one in enumerate(roles)}}
    assert node_exclusion.excluded(KNOWN, spec) == hosts
