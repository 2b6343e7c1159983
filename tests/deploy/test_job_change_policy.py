"""deploy/job-change-policy.yaml lets the portal's accounts change what the portal changes of jobs, and no more."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kcover_portal.kube import node_exclusion, port, values
from kcover_portal.kube.verbs import workloads
from kcover_portal.workloads.training_jobs import NEEDS_RECOVERY
from simulator.kubeapi import patches
from tests.deploy import chart
from tests.deploy.admission import AdmissionPolicy, is_about

POLICY = AdmissionPolicy.of_file("job-change-policy.yaml")
denials = POLICY.denials
WORKER = "system:serviceaccount:kcover-system:kcover-worker"
Object = dict[str, Any]
Change = Callable[[Object], object]
CONTAINER = {"name": "pytorch", "image": "registry.example.com/train:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER], "restartPolicy": "OnFailure"}}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def made(kind: str) -> Object:
    """A job as the API server keeps it."""
    known = port.WORKLOADS[kind]
    meta = {"namespace": "train", "name": "llm", "uid": "u", "labels": {"team": "a", NEEDS_RECOVERY: "true"}}
    meta |= {"annotations": {"note": "x"}, "finalizers": ["example.com/f"]}
    meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "o", "controller": True}]
    spec: Object = {"template": copy.deepcopy(TEMPLATE), "replicas": 2}
    if known.replicas:
        role = {"replicas": 2, "restartPolicy": "OnFailure", "template": copy.deepcopy(TEMPLATE)}
        spec = {
            known.replicas[1]: {"Master": role, "Worker": copy.deepcopy(role)},
            "runPolicy": {"cleanPodPolicy": "None"},
        }
    version = f"{known.group}/{known.version}"
    return {"apiVersion": version, "kind": known.api_kind, "metadata": meta, "spec": spec, "status": {"active": 1}}


KINDS = [kind for kind, known in port.WORKLOADS.items() if known.changed]
KUBEFLOW = [kind for kind in KINDS if port.WORKLOADS[kind].replicas]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_the_portal_are_admitted(kind: str) -> None:
    known, old = port.WORKLOADS[kind], made(kind)
    assert denials(old, patches.merge(old, {"metadata": {"labels": {NEEDS_RECOVERY: None}}})) == []
    assert denials(old, copy.deepcopy(old)) == []
    if known.stop is port.JobMethod.SUSPEND:
        patch = workloads.suspension(known, uid="u")
        assert denials(old, patches.merge(old, patch)) == []
        bare = {**old, "spec": {key: one for key, one in old["spec"].items() if key != "runPolicy"}}
        assert denials(bare, patches.merge(bare, patch)) == []


def test_the_labels_that_the_server_gives_a_job_without_any_are_admitted() -> None:
    old = made("Job")
    old["metadata"]["labels"] = {NEEDS_RECOVERY: "true"}
    new = patches.merge(old, {"metadata": {"labels": {NEEDS_RECOVERY: None, "a": "b"}}})
    assert denials(old, new) == []
    assert denials(old, patches.merge(new, {"metadata": {"labels": {"a": "c"}}}))
    other = made("JobSet") | {"metadata": old["metadata"]}
    assert denials(other, patches.merge(other, {"metadata": new["metadata"]}))


@pytest.mark.parametrize("kind", KUBEFLOW)
@pytest.mark.parametrize("terms", [None, [], [{"matchExpressions": [ZONE]}], [{"matchExpressions": [ZONE]}, {}]])
def test_the_nodes_that_a_job_avoids_are_admitted(kind: str, terms: list[Object] | None) -> None:
    known, old = port.WORKLOADS[kind], made(kind)
    if terms is not None:
        affinity = {"nodeAffinity": {node_exclusion.REQUIRED: {"nodeSelectorTerms": terms}}, "podAffinity": {"x": 1}}
        for role in old["spec"][known.replicas[1]].values():
            role["template"]["spec"]["affinity"] = copy.deepcopy(affinity)
    patch = node_exclusion.patch(known, old["spec"], hosts=["gpu-7"], uid="u", version="5")
    assert patch is not None
    patch["metadata"].pop("resourceVersion")
    assert denials(old, patches.merge(old, patch)) == []


def pod(job: Object) -> Object:
    """The pod of a role, or of the job."""
    spec = job["spec"]
    roles = next((one for key, one in spec.items() if key.endswith("ReplicaSpecs")), None)
    found: Object = (roles["Worker"] if roles else spec)["template"]["spec"]
    return found


OF_EVERY_KIND: list[Change] = [
    lambda job: pod(job).update(hostPID=True),
    lambda job: pod(job).update(hostNetwork=True),
    lambda job: pod(job).update(serviceAccountName="admin"),
    lambda job: pod(job)["containers"][0].update(image="evil.example.com/x:1"),
    lambda job: pod(job)["containers"][0].update(securityContext={"privileged": True}),
    lambda job: pod(job)["containers"].append({"name": "x", "image": "evil.example.com/x:1"}),
    lambda job: pod(job).update(initContainers=[{"name": "x", "image": "evil.example.com/x:1"}]),
    lambda job: pod(job).update(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    lambda job: pod(job).pop("restartPolicy"),
    lambda job: job["spec"].pop(next(iter(job["spec"]))),
    lambda job: job["spec"].update(ttlSecondsAfterFinished=0),
    lambda job: job["spec"].update(otherReplicaSpecs={"Worker": {"template": TEMPLATE}}),
    lambda job: job["metadata"]["labels"].update(team="b"),
    lambda job: job["metadata"]["labels"].update({"kcover.io/cascading-recovery": "true"}),
    lambda job: job["metadata"]["labels"].pop("team"),
    lambda job: job["metadata"]["labels"].update({NEEDS_RECOVERY: "false"}),
    lambda job: job["metadata"].update(annotations={}),
    lambda job: job["metadata"].pop("annotations"),
    lambda job: job["metadata"].update(finalizers=[]),
    lambda job: job["metadata"]["ownerReferences"].append({"uid": "p"}),
]


def roles(job: Object) -> Object:
    found: Object = next(one for key, one in job["spec"].items() if key.endswith("ReplicaSpecs"))
    return found


def template(job: Object) -> Object:
    found: Object = roles(job)["Worker"]["template"]
    return found


OF_KUBEFLOW: list[Change] = [
    lambda job: roles(job).update(Evil=roles(job)["Worker"]),
    lambda job: roles(job).pop("Master"),
    lambda job: roles(job)["Worker"].update(replicas=100),
    lambda job: roles(job)["Worker"].update(other=1),
    lambda job: roles(job)["Worker"].pop("restartPolicy"),
    lambda job: roles(job)["Worker"].pop("template"),
    lambda job: template(job)["metadata"]["labels"].update(a="c"),
    lambda job: template(job).update(other=1),
    lambda job: template(job).pop("metadata"),
    lambda job: template(job).pop("spec"),
    lambda job: template(job)["spec"].update(affinity={"podAffinity": {"x": 1}}),
    lambda job: job["spec"]["runPolicy"].update(cleanPodPolicy="All"),
    lambda job: job["spec"]["runPolicy"].pop("cleanPodPolicy"),
    lambda job: job["spec"]["runPolicy"].update(schedulingPolicy={"queue": "x"}),
    lambda job: job["spec"].update(suspend=True),
]


@pytest.mark.parametrize("kind", KINDS)
def test_other_changes_are_denied(kind: str) -> None:
    old = made(kind)
    for number, change in enumerate((*OF_EVERY_KIND, *(OF_KUBEFLOW if kind in KUBEFLOW else ()))):
        new = copy.deepcopy(old)
        change(new)
        assert denials(old, new), number


@pytest.mark.parametrize("kind", [kind for kind in KINDS if port.WORKLOADS[kind].stop is port.JobMethod.SUSPEND])
def test_no_job_is_resumed(kind: str) -> None:
    known, running = port.WORKLOADS[kind], made(kind)
    suspended = patches.merge(running, workloads.suspension(known, uid="u"))
    assert denials(suspended, copy.deepcopy(suspended)) == []
    resumed = copy.deepcopy(suspended)
    place = resumed
    for part in known.suspend[:-1]:
        place = place[part]
    place["suspend"] = False
    assert denials(suspended, resumed)


def test_a_change_that_loses_an_affinity_is_denied() -> None:
    old = made("PyTorchJob")
    template(old)["spec"]["affinity"] = {"podAntiAffinity": {"x": 1}, "nodeAffinity": {}}
    for change in (
        lambda affinity: affinity.pop("podAntiAffinity"),
        lambda affinity: affinity.update(podAntiAffinity={}),
        lambda affinity: affinity.update(podAffinity={"x": 1}),
    ):
        new = copy.deepcopy(old)
        change(template(new)["spec"]["affinity"])
        assert denials(old, new)


def test_every_validation_is_needed() -> None:
    found: set[str] = set()
    old = made("PyTorchJob")
    changes = [*OF_EVERY_KIND, *OF_KUBEFLOW]
    for change in changes:
        new = copy.deepcopy(old)
        change(new)
        found |= set(denials(old, new))
    assert found == POLICY.messages


def test_the_policy_covers_every_kind_and_denies() -> None:
    asked = {(group, resource) for rule in rules() for group in rule["apiGroups"] for resource in rule["resources"]}
    assert asked == {(known.group, known.plural) for known in values.WORKLOADS.values()}
    assert {tuple(rule["operations"]) for rule in rules()} == {("UPDATE",)}
    assert POLICY.binding["spec"] == {"policyName": POLICY.policy["metadata"]["name"], "validationActions": ["Deny"]}


def rules() -> list[Object]:
    found: list[Object] = POLICY.spec["matchConstraints"]["resourceRules"]
    return found


@pytest.mark.parametrize(
    ("user", "is_bound"),
    [
        (WORKER, True),
        ("system:serviceaccount:kcover-system:kcover-portal", True),
        ("system:serviceaccount:kubeflow:training-operator", False),
        ("system:serviceaccount:other:kcover-worker", False),
        ("system:admin", False),
    ],
)
def test_only_the_portals_accounts_are_bound_by_it(user: str, is_bound: bool) -> None:
    assert POLICY.is_about(user) is is_bound


def test_the_accounts_are_those_of_the_release() -> None:
    rendered = chart.render(chart.EVERYTHING, name="gpus", namespace="ops")
    [policy] = [
        one
        for one in rendered
        if one["metadata"]["name"] == "ops-gpus-job-change" and "spec" in one and "matchConditions" in one["spec"]
    ]
    for name in ("portal", "worker"):
        user = f"system:serviceaccount:ops:gpus-{name}"
        assert {one["metadata"]["name"] for one in rendered if one["kind"] == "ServiceAccount"} >= {f"gpus-{name}"}
        assert is_about(policy["spec"], user)


def test_the_policy_can_be_switched_off() -> None:
    features = {**chart.EVERYTHING["features"], "jobChangePolicy": False}
    rendered = chart.render(chart.EVERYTHING | {"features": features})
    assert not [one for one in rendered if one["metadata"]["name"].endswith("job-change")]
