"""The pods of deploy/portal match the portal, deploy/rbac.yaml and deploy/agent, so that no difference goes
unnoticed.
"""

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agents import VERSION
from kcover_portal.config import env
from kcover_portal.kube import http
from kcover_portal.operate import web_server
from kcover_portal.operate.management.commands import serve
from tests.deploy import manifests
from tests.deploy.manifests import (
    AGENT,
    DEPLOYMENTS,
    INGRESS,
    MANIFESTS,
    PODS,
    RBAC,
    ROOT,
    SETTINGS,
    all_containers,
    of_kind,
    only,
    options,
)

SERVED = {child.name: list(child.command) for child in serve.processes(front=3, back=4, schedule_file="/tmp/beat")}
# Where a pod's command is not what `serve` runs: it binds a port of its own, and keeps idle connections for longer than
# the Ingress does (ingress-nginx: 60 s), which would else send into one that is being closed.
OWN = {
    "web": {"--host": "0.0.0.0", "--port": "8080", "--timeout-keep-alive": "75"},
    "live": {"--host": "0.0.0.0", "--port": "8000", "--timeout-keep-alive": "75"},
}
TIED = {"web": {"--fd", "--timeout-keep-alive"}, "live": {"--fd"}}  # what stands for them in serve's


each_pod = pytest.mark.parametrize("pod", PODS.values(), ids=PODS)


# Settings and secrets


def test_the_settings_are_the_portals_and_are_understood(tmp_path):
    given = manifests.given(tmp_path)
    secret = {f"{one.name}_FILE" for one in env.VARIABLES if one.secret} | {"KCOVER_ENCRYPTION_KEY_FILE"}
    assert {name for name in given if name.endswith("_FILE")} <= secret
    values = env.read(given)
    assert values["KCOVER_DATABASE_URL"] == "postgres://k:p@db/k"
    assert values["KCOVER_REDIS_URL"] == "redis://r/0"
    assert values["KCOVER_SECRET_KEY"] == "only-for-tests-8bdfc9d2a4e64fd6a1f8"
    assert values["KCOVER_OUTGOING_HOSTS"] == []
    assert values["KCOVER_MODE"] == "shadow"  # who applies this has not seen a decision yet
    host = urlsplit(values["KCOVER_PUBLIC_URL"])
    assert (host.scheme, host.hostname) == ("https", only(INGRESS["spec"]["rules"])["host"])
    assert only(INGRESS["spec"]["tls"])["hosts"] == [host.hostname]
    assert host.hostname in values["KCOVER_ALLOWED_HOSTS"]
    assert only(one for one in AGENT if one["kind"] == "ConfigMap")["data"]["KCOVER_AGENT_URL"] == host.geturl()


def test_the_address_of_a_service_is_not_read_as_a_setting():
    with pytest.raises(env.SettingsInvalid, match="KCOVER_WEB_SERVICE_HOST is not a portal setting"):
        env.read({"KCOVER_WEB_SERVICE_HOST": "10.0.0.1"})
    assert [pod["enableServiceLinks"] for pod in PODS.values()] == [False] * len(PODS)


def test_the_documentation_makes_the_secret_that_is_mounted():
    files = {Path(path).name for name, path in SETTINGS.items() if name.endswith("_FILE")}
    key = Path(SETTINGS["KCOVER_SIGNING_KEY"]).name
    files |= {key, f"{key}.pub"}
    name = only(
        {volume["secret"]["secretName"] for pod in PODS.values() for volume in pod["volumes"] if "secret" in volume}
    )
    written = re.search(
        rf"create secret generic {name} (.+)", (ROOT / "docs" / "operations" / "install" / "install.md").read_text()
    )[1]
    assert set(re.findall(r"--from-file=(\S+)", written)) == files


@each_pod
def test_mounted_files_exist_and_only_tmp_is_writable(pod):
    folders = {str(Path(path).parent) for name, path in SETTINGS.items() if name.endswith("_FILE")}
    for container in all_containers(pod):
        assert container["envFrom"] == [{"configMapRef": {"name": only(of_kind("ConfigMap"))["metadata"]["name"]}}]
        given = {variable["name"]: variable["value"] for variable in container.get("env", ())}
        assert given in ({}, {"KCOVER_CLUSTER_ACCESS": "read"}, {"KCOVER_HEARTBEAT_FILE": "/tmp/heartbeat"})
        mounts = container["volumeMounts"]
        assert {mount["mountPath"] for mount in mounts if mount.get("readOnly")} == folders
        assert [mount["mountPath"] for mount in mounts if not mount.get("readOnly")] == ["/tmp"]
        assert {mount["name"] for mount in mounts} == {volume["name"] for volume in pod["volumes"]}


# Processes


@pytest.mark.parametrize("name", SERVED)
def test_a_pod_runs_the_command_of_serve(name):
    (python, *ours), (_, *theirs) = only(PODS[name]["containers"])["command"], SERVED[name]
    ours, words = options(ours)
    theirs, expected = options(theirs)
    assert (python, words) == ("python", expected)
    for tied in TIED.get(name, ()):
        theirs.pop(tied)
    assert ours == theirs | OWN.get(name, {})


@pytest.mark.parametrize("name", ["web", "live"])
def test_a_pod_runs_the_command_of_the_page(name):
    page = (ROOT / "docs" / "operations" / "install" / "install.md").read_text(encoding="utf-8")
    [command] = re.findall(rf"(?m)^\| `{name}`: [^|]+ \| `([^`]+)`", page)
    ours, words = options(only(PODS[name]["containers"])["command"])
    assert options(shlex.split(command)) == (ours, words)


def test_each_process_has_a_deployment_and_beat_has_one_replica():
    assert set(DEPLOYMENTS) == set(SERVED)
    assert DEPLOYMENTS["beat"]["replicas"] == 1
    assert DEPLOYMENTS["beat"]["strategy"] == {"type": "Recreate"}
    assert all(spec["replicas"] > 1 for name, spec in DEPLOYMENTS.items() if name != "beat")


@each_pod
def test_each_pod_migrates_before_it_starts(pod):
    first, process = only(pod["initContainers"]), only(pod["containers"])
    assert first["command"] == ["python", "manage.py", "migrate", "--no-input"]
    assert first["image"] == process["image"] == f"registry.example.com/kcover-portal:{VERSION}"


@each_pod
def test_no_pod_may_more_than_it_needs(pod):
    assert (
        pod["securityContext"].items() >= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}.items()
    )
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for container in all_containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"memory"}  # a process that is held back misses its leases


def test_applied_objects_are_in_the_portals_namespace():
    account = next(one for one in RBAC if one["kind"] == "ServiceAccount")["metadata"]
    places = {one["metadata"].get("namespace", account["namespace"]) for one in MANIFESTS}
    assert places - {"kce-rescue-system", "default", "kcover-jobs", "kcover-preflight"} == {
        account["namespace"]
    }  # Events and jobs are written there
    kinds = {"ConfigMap", "PriorityClass", "Service", "PodDisruptionBudget", "Ingress", "Deployment", "NetworkPolicy"}
    kinds |= {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    assert {one["kind"] for one in MANIFESTS} == kinds
    without = [name for name, pod in PODS.items() if pod.get("automountServiceAccountToken") is False]
    assert without == ["beat"]
    assert {pod["priorityClassName"] for pod in PODS.values()} == {only(of_kind("PriorityClass"))["metadata"]["name"]}


@each_pod
def test_no_pod_runs_where_agents_do(pod):
    """One term, all of whose expressions must hold, says the opposite of several, of which one is gpu_count_finding."""
    affinity = only(one for one in AGENT if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    opposite = {"In": "NotIn", "Exists": "DoesNotExist"}
    wanted = [{**only(term["matchExpressions"])} for term in terms]
    ours = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert only(ours)["matchExpressions"] == [one | {"operator": opposite[one["operator"]]} for one in wanted]


def test_a_pod_ends_in_order():
    """Within its time: the pause and the graceful end of web and live, the longest call of a worker to a cluster."""
    for name in ("web", "live"):
        container = only(PODS[name]["containers"])
        program, pause = container["lifecycle"]["preStop"]["exec"]["command"]
        assert program == "sleep"
        graceful = int(options(container["command"])[0].get("--timeout-graceful-shutdown", web_server.END_SECONDS))
        assert int(pause) + graceful < PODS[name]["terminationGracePeriodSeconds"]
        assert DEPLOYMENTS[name]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert PODS["worker"]["terminationGracePeriodSeconds"] > http.CONNECT_SECONDS + http.READ_SECONDS
