"""deploy/reboot-job-policy.yaml admits the portal's reboot job and no other job."""

import copy
from collections.abc import Callable
from typing import Any

import cel
import pytest

from kcover_portal.fleet.models import Cluster
from tests.deploy.admission import AdmissionPolicy
from tests.deploy.manifests import RBAC
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db

POLICY = AdmissionPolicy.of_file("reboot-job-policy.yaml")
BOOT_ID = "5b3c9c1e-6d0f-4c2a-9f57-0b1d2f7a4e10"


@pytest.fixture
def job() -> dict[str, Any]:
    """The manifest that reaches the API server."""
    world = World()
    try:
        world.kube.reboot("gpu-1", boot_id=BOOT_ID)
        world.sync()
        world.fault(62)
        world.until_reboot_is_asked()
        [made] = world.kube.objects.list("Job")
    finally:
        world.uninstall()
    return copy.deepcopy(made)


def denials(job: dict[str, Any]) -> list[str]:
    """The messages of the validations that fail when the Job is created."""
    return POLICY.denials(None, job)


def test_the_portals_job_is_admitted(job) -> None:
    assert denials(job) == []


def pod(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(job)["containers"][0]
    return found


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda job: pod(job)["containers"].append(container(job) | {"name": "x"}),
    lambda job: pod(job).update(initContainers=[container(job) | {"name": "x"}]),
    lambda job: container(job).update(image="evil.example.com/busybox:1.36"),
    lambda job: container(job)["command"].append("; id"),
    lambda job: container(job).update(command=["sh", "-c", "nsenter --target 1 --all"]),
    lambda job: container(job).pop("command"),
    lambda job: container(job).pop("env"),
    lambda job: container(job).update(args=["-c", "id"]),
    lambda job: container(job)["env"].append({"name": "LD_PRELOAD", "value": "/tmp/x.so"}),
    lambda job: container(job)["env"][0].update(value="$(id)"),
    lambda job: container(job)["env"][0].update(name="PATH"),
    lambda job: container(job).update(envFrom=[{"configMapRef": {"name": "x"}}]),
    lambda job: container(job).update(lifecycle={"postStart": {"exec": {"command": ["id"]}}}),
    lambda job: container(job).update(livenessProbe={"exec": {"command": ["id"]}}),
    lambda job: container(job).update(readinessProbe={"exec": {"command": ["id"]}}),
    lambda job: container(job).update(startupProbe={"exec": {"command": ["id"]}}),
    lambda job: pod(job).update(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    lambda job: container(job).update(volumeMounts=[{"name": "root", "mountPath": "/host"}]),
    lambda job: container(job).update(volumeDevices=[{"name": "root", "devicePath": "/dev/sda"}]),
    lambda job: pod(job).update(serviceAccountName="kcover-worker"),
    lambda job: pod(job).update(automountServiceAccountToken=True),
    lambda job: pod(job).pop("automountServiceAccountToken"),
    lambda job: pod(job).pop("nodeName"),
    lambda job: pod(job).update(hostNetwork=True),
    lambda job: pod(job).update(restartPolicy="OnFailure"),
    lambda job: job["spec"].update(backoffLimit=6),
    lambda job: job["spec"].update(parallelism=100),
    lambda job: job["spec"].update(completions=100),
    lambda job: job["spec"].pop("activeDeadlineSeconds"),
    lambda job: job["spec"].update(activeDeadlineSeconds=86_400),
    lambda job: job["spec"]["template"]["metadata"].update(annotations={"sidecar.istio.io/userVolume": "[]"}),
    lambda job: job["spec"]["template"]["metadata"]["labels"].update({"sidecar.istio.io/inject": "true"}),
]


def test_any_other_job_is_denied(job) -> None:
    for number, change in enumerate(CHANGES):
        other = copy.deepcopy(job)
        change(other)
        assert denials(other), number


def test_every_validation_is_needed(job) -> None:
    found = set()
    for change in CHANGES:
        other = copy.deepcopy(job)
        change(other)
        found |= set(denials(other))
    assert found == POLICY.messages


def test_the_policy_covers_the_image_and_namespace_of_the_settings_and_denies() -> None:
    image, namespace = (Cluster._meta.get_field(name).default for name in ("job_image", "job_namespace"))
    assert cel.evaluate(POLICY.spec["variables"][0]["expression"], {}) == image
    assert POLICY.spec["matchConstraints"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": namespace
    }
    assert namespace in {one["metadata"]["name"] for one in RBAC if one["kind"] == "Namespace"}
    assert POLICY.binding["spec"] == {"policyName": POLICY.policy["metadata"]["name"], "validationActions": ["Deny"]}
