"""Each process of the portal has an account of its own, with no more rights than its code uses."""

from typing import Any

import pytest

from tests.contract import rbac
from tests.contract.rbac import Asked
from tests.deploy import chart
from tests.deploy.manifests import MANIFESTS, PODS, RBAC, of_kind

WRITES = {"create", "patch", "delete", "update", "deletecollection"}


def rights(account: str, manifests: list[dict[str, Any]] = MANIFESTS) -> set[Asked]:
    """What the account may do: the rules of the roles that are bound to it."""
    roles = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")): one
        for one in manifests
        if "rules" in one
    }
    found: set[Asked] = set()
    for binding in (one for one in manifests if "roleRef" in one):
        if account in {subject["name"] for subject in binding["subjects"]}:
            reference = (binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace"))
            found |= set(rbac.rules([roles[reference]]))
    return found


def test_each_process_has_an_account_of_its_own() -> None:
    accounts = {one["metadata"]["name"] for one in of_kind("ServiceAccount")}
    assert {name: pod["serviceAccountName"] for name, pod in PODS.items()} == {name: f"kcover-{name}" for name in PODS}
    assert accounts == {f"kcover-{name}" for name in PODS}
    bound = {(subject["kind"], subject["name"]) for one in MANIFESTS for subject in one.get("subjects", ())}
    assert bound == {("ServiceAccount", f"kcover-{name}") for name in PODS if name != "beat"}
    assert all(len(one["subjects"]) == 1 for one in MANIFESTS if "roleRef" in one)


def test_every_role_is_bound_once() -> None:
    roles = [
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in MANIFESTS if "rules" in one
    ]
    bound = [
        (one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace"))
        for one in MANIFESTS
        if "roleRef" in one
    ]
    assert sorted(map(str, roles)) == sorted(map(str, bound))


def test_together_they_have_the_rights_of_a_kubeconfigs_account() -> None:
    assert set().union(*(rights(f"kcover-{name}") for name in PODS)) == set(rbac.rules(RBAC))


@pytest.mark.parametrize(
    ("account", "writes"),
    [
        ("kcover-web", {Asked("delete", "", "persistentvolumeclaims", "kcover-jobs")}),
        ("kcover-live", {Asked("create", "authentication.k8s.io", "tokenreviews")}),
        ("kcover-watch", set()),
        ("kcover-beat", set()),
    ],
)
def test_only_the_worker_acts_on_nodes_and_pods(account: str, writes: set[Asked]) -> None:
    assert {asked for asked in rights(account) if asked.verb in WRITES} == writes


def test_the_doors_read_pods_and_web_reads_jobs() -> None:
    pods = {Asked("list", "", "pods")}
    web, live = ({asked for asked in rights(f"kcover-{name}") if asked.verb not in WRITES} for name in ("web", "live"))
    assert (live, {asked for asked in web if asked.resource == "pods"}) == (pods, pods)
    assert {asked.verb for asked in web - pods} == {"get", "list"}


def test_the_account_of_a_second_kubeconfig_has_the_rights_of_web_and_live() -> None:
    assert rights("kcover-portal-read", RBAC) == rights("kcover-web") | rights("kcover-live")


def test_only_worker_and_watch_get_the_engines_key() -> None:
    found: dict[str, set[str]] = {"volume": set(), "mount": set(), "env": set(), "read": set()}
    for one in [one for one in chart.render(chart.EVERYTHING) if one["kind"] == "Deployment"]:
        pod = one["spec"]["template"]["spec"]
        name = pod["containers"][0]["name"]
        for container in pod["containers"]:
            env = {each["name"]: each["value"] for each in container.get("env", [])}
            mounts = {each["mountPath"] for each in container["volumeMounts"]}
            if env.get("KCOVER_ENGINE_KEY_FILE") == "/etc/kcover-engine/engine_key":
                found["env"].add(name)
            if env.get("KCOVER_CLUSTER_ACCESS") == "read":
                found["read"].add(name)
            if "/etc/kcover-engine" in mounts:
                found["mount"].add(name)
        if any(volume.get("secret", {}).get("secretName") == "engine" for volume in pod["volumes"]):
            found["volume"].add(name)
    engine = {"worker", "watch"}
    assert found == {"volume": engine, "mount": engine, "env": engine, "read": {"web", "live"}}
