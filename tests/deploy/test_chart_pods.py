"""What the values of the chart say about pods: users, places, certificates, volumes, variables, accounts and images."""

import ssl
from typing import Any

import helm_python
import pytest

from tests.deploy.chart import EVERYTHING, LEAST, TRIAL, WHOLES, Manifest, of_kind, render

IDS = ("runAsUser", "runAsGroup", "fsGroup")
KINDS = ("Deployment", "StatefulSet", "Job", "DaemonSet")


def pods(values: Manifest) -> dict[str, Manifest]:
    """The pod template of each workload."""
    manifests = render(values)
    return {name: one["spec"]["template"] for kind in KINDS for name, one in of_kind(manifests, kind).items()}


def portal(values: Manifest) -> dict[str, Manifest]:
    """Those of the portal and of a trial's stores."""
    return {name: pod for name, pod in pods(values).items() if name != "kcover-agent"}


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def variables(container: Manifest) -> dict[str, Any]:
    return {one["name"]: one.get("value") for one in container.get("env", ())}


def test_openshift_chooses_the_users() -> None:
    for values, given in ((TRIAL, True), (TRIAL | {"openshift": {"enabled": True}}, False)):
        for name, pod in portal(values).items():
            assert [key in pod["spec"]["securityContext"] for key in IDS] == [given] * 3, name
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_a_user_can_be_left_to_the_platform_or_be_another_one() -> None:
    changed = LEAST | {"podSecurityContext": {"runAsUser": None, "runAsGroup": 20000, "supplementalGroups": [5]}}
    for pod in portal(changed).values():
        assert pod["spec"]["securityContext"] == {
            "runAsGroup": 20000,
            "fsGroup": 10001,
            "supplementalGroups": [5],
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    for wrong in ({"runAsUser": 0}, {"runAsNonRoot": False}):
        with pytest.raises(helm_python.HelmError, match="podSecurityContext"):
            render(LEAST | {"podSecurityContext": wrong})


def test_places_of_the_portal_and_its_stores_can_be_chosen() -> None:
    affinity = {"podAntiAffinity": {}}
    chosen = {"nodeSelector": {"pool": "system"}, "affinity": affinity, "tolerations": [{"key": "cpu"}]}
    for name, pod in portal(TRIAL | chosen).items():
        assert pod["spec"]["nodeSelector"] == {"pool": "system"}, name
        assert pod["spec"]["affinity"] == affinity
        assert {"key": "cpu"} in pod["spec"]["tolerations"]


def test_places_of_the_agent_can_be_chosen() -> None:
    spec = pods(LEAST)["kcover-agent"]["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in spec
    chosen = {"nodeSelector": {"pool": "gpu"}, "affinity": {"nodeAffinity": {}}, "tolerations": [{"key": "gpu"}]}
    spec = pods(LEAST | {"agent": chosen})["kcover-agent"]["spec"]
    assert {name: spec[name] for name in chosen} == chosen


@pytest.mark.parametrize("values", [EVERYTHING, TRIAL | {"ca": {"secret": "private"}}], ids=["map", "secret"])
def test_each_container_of_the_portal_trusts_the_ca_that_is_mounted(values) -> None:
    """The names are those that OpenSSL, libpq and requests read."""
    for name, pod in portal(values).items():
        if name.endswith(("postgresql", "redis", "status-port")):
            continue
        [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "ca"]
        source = volume.get("configMap") or volume["secret"]
        assert source["items"] == [{"key": values["ca"].get("key", "ca.crt"), "path": "ca.crt"}]
        for container in containers(pod):
            [mount] = [one for one in container["volumeMounts"] if one["name"] == "ca"]
            trusted = variables(container)
            names = (ssl.get_default_verify_paths().openssl_cafile_env, "PGSSLROOTCERT", "REQUESTS_CA_BUNDLE")
            assert {trusted[one] for one in names} == {f"{mount['mountPath']}/ca.crt"}


def test_two_sources_of_the_ca_are_refused() -> None:
    with pytest.raises(helm_python.HelmError, match=r"ca\.configMap and ca\.secret"):
        render(LEAST | {"ca": {"configMap": "a", "secret": "b"}})


def test_volumes_and_variables_reach_each_container() -> None:
    for pod in pods(EVERYTHING).values():
        names = {one["name"] for one in pod["spec"]["volumes"]}
        assert names & {"extra", "crio"}
        for container in containers(pod):
            mounts = {one["name"] for one in container["volumeMounts"]}
            assert mounts <= names
            assert mounts & {"extra", "crio"}
            assert variables(container)["HTTPS_PROXY"] == "http://proxy:3128"


def test_annotations_reach_pods_and_accounts() -> None:
    made = pods(EVERYTHING)
    for name, pod in made.items():
        wanted = "k8s.v1.cni.cncf.io/networks" if name == "kcover-agent" else "example.com/scrape"
        settings = set() if name == "kcover-status-port" else {"kcover.io/settings"}
        assert {wanted, *settings} == set(pod["metadata"]["annotations"])
    accounts = of_kind(render(EVERYTHING), "ServiceAccount")
    for name in ("web", "live", "worker", "beat", "watch"):
        assert accounts[f"kcover-{name}"]["metadata"]["annotations"] == EVERYTHING["serviceAccountAnnotations"]
    assert "example.com/owner" in accounts["kcover-agent"]["metadata"]["annotations"]


@pytest.mark.parametrize("values", [EVERYTHING, TRIAL | {"imagePullSecrets": ["pull"]}], ids=["everything", "trial"])
def test_all_pods_pull_with_the_same_secrets(values) -> None:
    wanted = [{"name": "pull"}, *([{"name": "registry"}] if values is EVERYTHING else [])]
    assert {str(pod["spec"]["imagePullSecrets"]) for pod in pods(values).values()} == {str(wanted)}


def test_a_pull_secret_is_made_from_data() -> None:
    secret = of_kind(render(EVERYTHING), "Secret")["registry"]
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert secret["data"] == {".dockerconfigjson": "e30="}
    with pytest.raises(helm_python.HelmError, match="imagePullSecretData"):
        render(LEAST | {"pullSecrets": {"create": True, "name": "registry"}})


def test_all_replicated_processes_have_a_budget() -> None:
    manifests = render(LEAST)
    replicated = {name for name, one in of_kind(manifests, "Deployment").items() if one["spec"]["replicas"] > 1}
    assert set(of_kind(manifests, "PodDisruptionBudget")) == replicated
    assert replicated == {f"kcover-{name}" for name in ("web", "live", "worker", "watch")}


def test_the_whole_sets_are_without_empty_lists() -> None:
    """An empty `env:` or `annotations:` would be null, which an API server refuses."""
    for values in WHOLES.values():
        for pod in pods(values).values():
            assert None not in pod["metadata"].values()
            for container in containers(pod):
                assert None not in container.values()
