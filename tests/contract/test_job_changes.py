"""A real API server lets the portal's account change of a job what deploy/job-change-policy.yaml says, and no more."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kcover_portal.kube import port
from kcover_portal.workloads.training_jobs import NEEDS_RECOVERY
from tests import waiting
from tests.contract import admission, apiserver as real
from tests.contract.admission import MERGE, patched

pytestmark = [pytest.mark.needs_cluster, real.needs_assets]
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "pytorchjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "PyTorchJob", "plural": "pytorchjobs", "singular": "pytorchjob"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
CONTAINERS = [{"name": "pytorch", "image": "registry.example.com/train:1"}]


@pytest.fixture
def bound(apiserver: real.ApiServerRig) -> Iterator[real.ApiServerRig]:
    """The server with the policy in force, and with PyTorchJobs."""
    apiserver.admin.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    at = "/apis/kubeflow.org/v1/pytorchjobs"
    waiting.until(lambda: apiserver.admin.ask("GET", at)[0] == 200, "PyTorchJobs")
    canary = add(apiserver, "PyTorchJob", "canary")
    tries = itertools.count()  # a patch that changes nothing is admitted

    def denied() -> int:
        return patched(apiserver, canary, {"metadata": {"labels": {"x": f"y{next(tries)}"}}})

    with admission.in_force(apiserver, "job-change-policy.yaml", denied=denied):
        yield apiserver


def add(rig: real.ApiServerRig, kind: str, name: str) -> str:
    """A job; returns its path."""
    known = port.WORKLOADS[kind]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}
    spec: dict[str, Any] = {"template": template}
    if known.replicas:
        spec = {known.replicas[1]: {"Worker": {"replicas": 1, "template": template}}}
    meta = {"name": rig.name(name), "namespace": rig.namespace, "labels": {NEEDS_RECOVERY: "true"}}
    version = f"{known.group}/{known.version}"
    rig.create({"apiVersion": version, "kind": known.api_kind, "metadata": meta, "spec": spec})
    return rig.place(known.api_kind, rig.namespace, meta["name"])


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_the_portals_changes_are_admitted(bound: real.ApiServerRig, kind: str) -> None:
    at = add(bound, kind, "llm")
    name = at.rpartition("/")[2]
    bound.cluster.label_workload(bound.namespace, kind, name, labels={NEEDS_RECOVERY: None})
    uid = bound.cluster.workload(bound.namespace, kind, name).uid
    if port.WORKLOADS[kind].replicas:
        bound.cluster.exclude_hosts(bound.namespace, kind, name, uid=uid, hosts=["gpu-1"])
        bound.cluster.exclude_hosts(bound.namespace, kind, name, uid=uid, hosts=["gpu-1", "gpu-2"])
        assert bound.cluster.workload(bound.namespace, kind, name).excluded_hosts == {"gpu-1", "gpu-2"}
    found = bound.cluster.suspend_workload(bound.namespace, kind, name, uid=uid)
    assert found.phase is port.Phase.SUSPENDED
    assert NEEDS_RECOVERY not in found.labels


def pod(**spec: Any) -> Callable[[str], dict[str, Any]]:
    """A patch of the pod's spec, by the kind of the job."""

    def patch(kind: str) -> dict[str, Any]:
        template = {"template": {"spec": spec}}
        known = port.WORKLOADS[kind]
        return {"spec": {known.replicas[1]: {"Worker": template}} if known.replicas else template}

    return patch


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
@pytest.mark.parametrize(
    "patch",
    [
        pod(hostPID=True),
        pod(serviceAccountName="admin"),
        pod(containers=[{**CONTAINERS[0], "image": "evil.example.com/x:1"}]),
        pod(containers=[{**CONTAINERS[0], "securityContext": {"privileged": True}}]),
        lambda kind: {"metadata": {"labels": {"kcover.io/cascading-recovery": "true"}}},
        lambda kind: {"metadata": {"annotations": {"x": "y"}}},
        lambda kind: {"metadata": {"finalizers": ["example.com/x"]}},
        lambda kind: {"spec": {"parallelism": 100, "other": 1}},
    ],
)
def test_other_changes_are_denied_to_the_portal_only(
    bound: real.ApiServerRig, kind: str, patch: Callable[[str], dict[str, Any]]
) -> None:
    at = add(bound, kind, "llm")
    assert patched(bound, at, patch(kind)) == 422
    # A batch Job's template is fixed for everybody; the rest is open to its owner.
    if kind == "PyTorchJob" or "metadata" in patch(kind):
        assert bound.admin.ask("PATCH", at, patch(kind), MERGE)[0] == 200


def test_a_suspended_job_is_not_resumed(bound: real.ApiServerRig) -> None:
    at = add(bound, "PyTorchJob", "llm")
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": True}}}) == 200
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": False}}}) == 422
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": None}}}) == 422
