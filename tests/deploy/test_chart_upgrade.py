"""Helm renders an upgrade against an API server: the secrets of a trial stay.

Helm sends its own requests to the simulator, which has no server-side apply. So nothing is created
(``helm install --dry-run=server``).
"""

from collections.abc import Iterator

import helm_python
import pytest
import yaml

from simulator.kubeapi import access
from tests.contract import over_http
from tests.deploy.chart import LEAST, TRIAL, Manifest, of_kind, render, texts
from tests.simulator import api_server
from tools import chart

NAMESPACE = "gpu"
OWNER = {"meta.helm.sh/release-name": "kcover", "meta.helm.sh/release-namespace": NAMESPACE}


@pytest.fixture
def cluster() -> Iterator[api_server.ApiServer]:
    with api_server.serving(anonymous=True) as running:
        yield running


def made(cluster: api_server.ApiServer, values: Manifest) -> list[Manifest]:
    """What ``helm install --dry-run=server`` would create."""
    kubeconfig = over_http.kubeconfig(cluster.url, "unused")
    with helm_python.Config(kubeconfig_content=kubeconfig, namespace=NAMESPACE, storage_driver="memory") as helm:
        release = helm.install(chart.CHART, "kcover", values, namespace=NAMESPACE, dry_run="server")
    return [one for one in yaml.safe_load_all(release["manifest"]) if one]


def secret(cluster: api_server.ApiServer, values: Manifest) -> Manifest:
    [found] = [one for one in made(cluster, values) if one["kind"] == "Secret"]
    return found


def exists(cluster: api_server.ApiServer, one: Manifest) -> None:
    marks = {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": OWNER}
    cluster.put(one["kind"], one | {"metadata": one["metadata"] | marks})


def test_an_upgrade_keeps_every_secret_of_a_trial(cluster) -> None:
    first = secret(cluster, TRIAL)
    assert secret(cluster, TRIAL)["data"].keys() == first["data"].keys()
    assert secret(cluster, TRIAL)["data"]["admin_password"] != first["data"]["admin_password"]
    exists(cluster, first)
    assert secret(cluster, TRIAL | {"host": "gpu.example.com", "ingress": {"enabled": False}})["data"] == first["data"]


def test_added_keys_of_a_secret_stay_and_missing_keys_are_created(cluster) -> None:
    first = secret(cluster, TRIAL)
    kept = {name: text for name, text in first["data"].items() if name != "encryption_key"} | {"mail_url": "c210cA=="}
    exists(cluster, first | {"data": kept})
    upgraded = secret(cluster, TRIAL)["data"]
    assert upgraded == kept | {"encryption_key": upgraded["encryption_key"]}


def has_volume(cluster: api_server.ApiServer, values: Manifest) -> bool:
    [found] = [
        one
        for one in made(cluster, values)
        if one["metadata"]["name"] == "kcover-postgresql" and "template" in one["spec"]
    ]
    volumes = {one["name"] for one in found["spec"]["template"]["spec"]["volumes"]}
    claimed = "volumeClaimTemplates" in found["spec"]
    assert claimed != ("data" in volumes)
    return claimed


def storage_class(cluster: api_server.ApiServer, name: str, *, default: bool) -> None:
    marks = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    about = {"name": name, "annotations": marks}
    cluster.put("StorageClass", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": about})


def test_a_trial_keeps_its_data_in_a_volume_where_the_cluster_makes_one(cluster) -> None:
    assert not has_volume(cluster, TRIAL)
    storage_class(cluster, "slow", default=False)
    assert not has_volume(cluster, TRIAL)
    named = {"postgresql": {"storage": {"className": "slow"}}}
    assert has_volume(cluster, TRIAL | named)
    storage_class(cluster, "fast", default=True)
    assert has_volume(cluster, TRIAL)
    assert not has_volume(cluster, TRIAL | {"postgresql": {"storage": {"persistent": False}}})


def test_a_trial_needs_the_right_to_list_classes_only_to_find_the_default_one(monkeypatch) -> None:
    monkeypatch.setattr(access, "ANONYMOUS", access.Identity(name="team", verbs=frozenset({"get"})))
    with api_server.serving(anonymous=True) as limited:
        with pytest.raises(helm_python.HelmError, match="storageclasses"):
            made(limited, TRIAL)
        for storage in ({"className": "slow"}, {"persistent": False}):
            assert made(limited, TRIAL | {"postgresql": {"storage": storage}})


# Values of an older chart, as `helm upgrade --reuse-values` keeps them

LATER = ("openshift", "ca", "statusPort", "pullSecrets", "podSecurityContext", "podAnnotations", "extraEnv")
LATER += ("dashboards", "engineSecret", "prometheusRule", "extraVolumes", "extraVolumeMounts")
LATER += ("serviceAccountAnnotations",)
LATER_OF_AGENT = ("config", "hostNetwork", "podAnnotations", "nodeSelector", "affinity", "extraEnv", "extraVolumes")


def test_values_without_later_keys_render_as_by_default() -> None:
    """null takes a default away."""
    given = dict.fromkeys(LATER) | {"agent": dict.fromkeys(LATER_OF_AGENT)}
    without, whole = render(TRIAL | given), render(TRIAL)
    assert {(one["kind"], one["metadata"]["name"]) for one in without} == {
        (one["kind"], one["metadata"]["name"]) for one in whole
    }
    [agent], [usual] = (of_kind(one, "DaemonSet").values() for one in (without, whole))
    for spec in (agent["spec"]["template"]["spec"], usual["spec"]["template"]["spec"]):
        assert spec["hostNetwork"] is True
        assert spec["containers"][0]["livenessProbe"]["httpGet"]["host"] == "127.0.0.1"


@pytest.mark.parametrize("key", LATER)
def test_values_without_one_later_key_render(key) -> None:
    assert render(LEAST | {key: None})


def test_the_agents_file_may_have_no_data() -> None:
    found = render(LEAST | {"agent": {"config": {"data": None}}})
    [container] = of_kind(found, "DaemonSet")["kcover-agent"]["spec"]["template"]["spec"]["containers"]
    assert "args" not in container


def test_an_upgrade_changes_no_volume_of_a_trial(cluster) -> None:
    """Kubernetes refuses a StatefulSet whose volumes change."""
    [first] = [
        one for one in made(cluster, TRIAL) if one["kind"] == "StatefulSet" and "postgresql" in one["metadata"]["name"]
    ]
    exists(cluster, first)
    storage_class(cluster, "fast", default=True)
    assert not has_volume(cluster, TRIAL)


def test_the_notes_say_that_a_trial_has_no_volume(cluster) -> None:
    kubeconfig = over_http.kubeconfig(cluster.url, "unused")
    with helm_python.Config(kubeconfig_content=kubeconfig, namespace=NAMESPACE, storage_driver="memory") as helm:
        release = helm.install(chart.CHART, "kcover", TRIAL, namespace=NAMESPACE, dry_run="server")
    assert "postgresql.storage.className" in str(release)
    assert "no volume" not in texts(TRIAL)["NOTES.txt"]
