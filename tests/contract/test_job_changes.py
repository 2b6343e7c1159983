"""A real API server lets the portal's account change of a job what deploy/job-change-policy.yaml says, and no more."""

import itertools
from collections.abc import Iterator

import pytest

from kcover_portal.kube import port
from kcover_portal.workloads.training_jobs import NEEDS_RECOVERY
from tests import waiting
from tests.contract import admission, apiserver as real
from tests.contract.admission import patched
from tests.deploy.test_job_change_policy import OF_EVERY_KIND, OF_KUBEFLOW, POLICY, made

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
    job = made(kind)
    job["metadata"] |= {"name": rig.name(name), "namespace": rig.namespace}
    del job["metadata"]["uid"], job["status"]
    if kind == "Job":
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    rig.create(job)
    return rig.place(job["kind"], rig.namespace, job["metadata"]["name"])


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


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_other_changes_are_denied_to_the_portal_only(bound: real.ApiServerRig, kind: str) -> None:
    at = add(bound, kind, "llm")
    found = admission.denials(bound, at, [*OF_EVERY_KIND, *(OF_KUBEFLOW if kind == "PyTorchJob" else ())])
    if kind == "PyTorchJob":
        assert found == POLICY.messages
    else:  # its template is fixed for everybody, and it has no roles
        assert set() < found < POLICY.messages


def test_a_suspended_job_is_not_resumed(bound: real.ApiServerRig) -> None:
    at = add(bound, "PyTorchJob", "llm")
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": True}}}) == 200
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": False}}}) == 422
    assert patched(bound, at, {"spec": {"runPolicy": {"suspend": None}}}) == 422
