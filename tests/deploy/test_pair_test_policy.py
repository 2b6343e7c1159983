"""deploy/pair-test-policy.yaml admits the Jobs of pair tests and no other Job."""

import copy
from collections.abc import Callable
from typing import Any

import cel
import pytest

from kcover.values import kube_names
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_selection
from kcover_portal.preflight.services import pair_plans, pair_runs
from tests.deploy import chart
from tests.deploy.admission import AdmissionPolicy
from tests.deploy.manifests import RBAC
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db

POLICY = AdmissionPolicy.of_file("pair-test-policy.yaml")
IMAGE = cel.evaluate(POLICY.spec["variables"][0]["expression"], {})


@pytest.fixture
def jobs() -> list[dict[str, Any]]:
    """The manifests that reach the API server: of two workers."""
    return made({})


def made(labels: dict[str, str]) -> list[dict[str, Any]]:
    """The Jobs of a pair of nodes of which the first has these labels."""
    world = World(policy="", nodes=2)
    try:
        world.kube.label_node("gpu-1", labels)
        world.sync()
        world.kube.add_namespace("kcover-preflight")
        Cluster.objects.update(nccl_image=IMAGE, nccl_resources="rdma/hca=1")
        world.cluster.refresh_from_db()
        nodes = node_selection.nodes(world.cluster)
        plan = pair_plans.begin(world.cluster, nodes, pair_plans.Wish(), actor="user:ann", now=world.now)
        pair_runs.advance(plan.pk, clock=world.clock)
        return copy.deepcopy(world.kube.objects.list("Job"))
    finally:
        world.uninstall()


def denials(job: dict[str, Any]) -> list[str]:
    """The messages of the validations that fail when the Job is created."""
    return POLICY.denials(None, job)


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(job)["containers"][0]
    return found


def terms(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of the node affinity that a kubelet requires."""
    required = pod(job)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda job: pod(job)["containers"].append(container(job) | {"name": "x"}),
    lambda job: pod(job).update(initContainers=[container(job) | {"name": "x"}]),
    lambda job: container(job).update(image="evil.example.com/pytorch:2"),
    lambda job: container(job).update(command=["sh", "-c", "id"]),
    lambda job: container(job).pop("command"),
    lambda job: container(job).pop("env"),
    lambda job: container(job).update(args=["-c", "id"]),
    lambda job: container(job)["env"].append({"name": "LD_PRELOAD", "value": "/tmp/x.so"}),
    lambda job: container(job).update(envFrom=[{"secretRef": {"name": "x"}}]),
    lambda job: container(job).update(lifecycle={"postStart": {"exec": {"command": ["id"]}}}),
    lambda job: container(job).update(livenessProbe={"exec": {"command": ["id"]}}),
    lambda job: container(job).update(readinessProbe={"exec": {"command": ["id"]}}),
    lambda job: container(job).update(startupProbe={"exec": {"command": ["id"]}}),
    lambda job: container(job).update(securityContext={"privileged": True}),
    lambda job: container(job)["securityContext"].update(capabilities={"add": ["SYS_ADMIN"]}),
    lambda job: container(job).pop("securityContext"),
    lambda job: container(job)["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    lambda job: container(job)["securityContext"].update(appArmorProfile={"type": "Unconfined"}),
    lambda job: container(job)["securityContext"].update(seLinuxOptions={"type": "spc_t"}),
    lambda job: pod(job).update(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    lambda job: pod(job).update(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
    lambda job: pod(job).update(securityContext={"seLinuxOptions": {"type": "spc_t"}}),
    lambda job: pod(job).update(securityContext={"sysctls": [{"name": "kernel.core_pattern", "value": "|/x"}]}),
    lambda job: pod(job).update(runtimeClassName="unsafe"),
    lambda job: pod(job).update(priorityClassName="system-node-critical"),
    lambda job: pod(job).update(resourceClaims=[{"name": "x"}]),
    lambda job: container(job)["resources"].update(claims=[{"name": "x"}]),
    lambda job: container(job).update(ports=[{"containerPort": 1, "hostPort": 22}]),
    lambda job: pod(job).update(hostPID=True),
    lambda job: pod(job).update(hostIPC=True),
    lambda job: pod(job).update(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    lambda job: container(job).update(volumeMounts=[{"name": "root", "mountPath": "/host"}]),
    lambda job: container(job).update(volumeDevices=[{"name": "root", "devicePath": "/dev/sda"}]),
    lambda job: pod(job).update(serviceAccountName="kcover-worker"),
    lambda job: pod(job).pop("automountServiceAccountToken"),
    lambda job: pod(job).pop("nodeName"),
    lambda job: pod(job).pop("affinity"),
    lambda job: pod(job)["affinity"].pop("nodeAffinity"),
    lambda job: terms(job)[0]["matchExpressions"].pop(),
    lambda job: terms(job)[0]["matchExpressions"][0].update(operator="Exists"),
    lambda job: terms(job).append({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}),
    lambda job: container(job).pop("resources"),
    lambda job: container(job).update(resources={"limits": {"cpu": "1"}}),
    lambda job: container(job)["resources"]["limits"].update({"smarter-devices/fuse": "1"}),
    lambda job: container(job)["resources"].update(requests={"devices.kubevirt.io/kvm": "1"}),
    lambda job: pod(job).update(restartPolicy="OnFailure"),
    lambda job: job["spec"].update(backoffLimit=6),
    lambda job: job["spec"].update(parallelism=100),
    lambda job: job["spec"].update(completions=100),
    lambda job: job["spec"].update(activeDeadlineSeconds=86_400),
    lambda job: job["spec"]["template"]["metadata"].update(annotations={"sidecar.istio.io/userVolume": "[]"}),
    lambda job: job["spec"]["template"]["metadata"]["labels"].update({"sidecar.istio.io/inject": "true"}),
]


def test_the_portals_jobs_are_admitted(jobs: list[dict[str, Any]]) -> None:
    assert [denials(job) for job in jobs] == [[], []]
    for job in jobs:
        pod(job)["securityContext"] = {}  # as the API server completes it
    assert [denials(job) for job in jobs] == [[], []]


def test_any_other_job_is_denied(jobs: list[dict[str, Any]]) -> None:
    found = set()
    for number, change in enumerate(CHANGES):
        other = copy.deepcopy(jobs[0])
        change(other)
        assert denials(other), number
        found |= set(denials(other))
    assert found == POLICY.messages


@pytest.mark.parametrize("role", kube_names.CONTROL_PLANE_ROLES)
def test_a_control_plane_node_is_tested_only_where_the_chart_allows_it(role: str) -> None:
    first, second = made({role: ""})
    assert [len(denials(first)), denials(second)] == [1, []]
    values = {"features": {"pairTestsOnControlPlanes": True}}
    rendered = [one for one in chart.render(chart.LEAST | values) if one["metadata"]["name"].endswith("-pair-test")]
    policy, binding = (one for one in rendered if one["kind"].startswith("ValidatingAdmissionPolicy"))
    assert AdmissionPolicy(policy, binding).denials(None, first) == []


def test_the_chart_names_further_devices(jobs: list[dict[str, Any]]) -> None:
    container(jobs[0])["resources"]["limits"]["openshift.io/mlnx"] = "1"
    assert len(denials(jobs[0])) == 1
    values = {"features": {"pairTestDevices": ["nvidia.com/", "rdma/", "openshift.io/mlnx"]}}
    rendered = [one for one in chart.render(chart.LEAST | values) if one["metadata"]["name"].endswith("-pair-test")]
    policy, binding = (one for one in rendered if one["kind"].startswith("ValidatingAdmissionPolicy"))
    assert AdmissionPolicy(policy, binding).denials(None, jobs[0]) == []


def test_the_policy_covers_the_namespace_of_the_settings_and_denies() -> None:
    namespace = Cluster._meta.get_field("nccl_namespace").default
    assert POLICY.spec["matchConstraints"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": namespace
    }
    assert namespace in {one["metadata"]["name"] for one in RBAC if one["kind"] == "Namespace"}
    assert POLICY.binding["spec"] == {"policyName": POLICY.policy["metadata"]["name"], "validationActions": ["Deny"]}
