"""kubectl against the simulator: what an operator types on a GPU cluster.

Runs the kubectl on the PATH, and beside it every one named in ``KUBECTLS`` (paths joined by colons), such as
Debian's 1.20, which evicts by policy/v1beta1. A kubectl is older than this server, or newer; both have to work.
"""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from simulator.kubeapi import kubeconfig
from tests import waiting
from tests.simulator.api_server import ADMIN_TOKEN, budget, node, pod, serving

FOUND = [path for path in (shutil.which("kubectl"), *os.environ.get("KUBECTLS", "").split(":")) if path]

pytestmark = pytest.mark.skipif(not FOUND, reason="no kubectl on the PATH and none in KUBECTLS")


@pytest.fixture(params=FOUND or ["none"])
def program(request):
    return request.param


@pytest.fixture
def running():
    """Two nodes; on the first a daemon's pod and two of a replica set that may lose one at a time."""
    with serving(anonymous=True) as server:
        server.put("Node", node("gpu-0"))
        server.put("Node", node("gpu-1"))
        daemon = server.put("DaemonSet", {"metadata": {"name": "agent", "namespace": "default"}, "spec": {}})
        server.put("Pod", pod("agent-0", owner=daemon))
        web = server.put("ReplicaSet", {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 2}})
        for name in ("web-a", "web-b"):
            made = server.put("Pod", pod(name, owner=web, labels={"app": "web"}, grace=1))
            for line in ("first line", f"log of {name}"):
                server.do(lambda made=made, line=line: server.api.logs.write(made, line))
        server.put("PodDisruptionBudget", budget("web", {"app": "web"}, minAvailable=1))
        yield server


@pytest.fixture
def kubectl(program, running, tmp_path):
    config = tmp_path / "kubeconfig"
    kubeconfig.write(config, server=running.url, token=ADMIN_TOKEN)
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": os.environ["PATH"]}

    def run(*arguments: str, ok: bool = True) -> str:
        command = [program, f"--cache-dir={tmp_path}/cache", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) == ok, done.stderr
        return done.stdout if ok else done.stderr

    run.program, run.environment, run.cache = program, environment, tmp_path / "cache"
    return run


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_get_nodes(kubectl):
    assert [row[:3] for row in rows(kubectl("get", "nodes"))] == [["gpu-0", "Ready", "gpu"], ["gpu-1", "Ready", "gpu"]]
    wide = kubectl("get", "nodes", "-o", "wide")
    assert "INTERNAL-IP" in wide.splitlines()[0]
    assert "containerd://1.7.22" in wide
    assert kubectl("get", "nodes", "-o", "name").split() == ["node/gpu-0", "node/gpu-1"]
    assert rows(kubectl("get", "nodes", "-l", "kubernetes.io/hostname in (gpu-1)"))[0][0] == "gpu-1"
    assert 'nodes "gpu-9" not found' in kubectl("get", "node", "gpu-9", ok=False)


def test_get_the_rest(kubectl):
    assert [row[:3] for row in rows(kubectl("get", "pods", "--all-namespaces", "-o", "wide"))] == [
        ["default", "agent-0", "1/1"],
        ["default", "web-a", "1/1"],
        ["default", "web-b", "1/1"],
    ]
    assert rows(kubectl("get", "pdb"))[0][:4] == ["web", "1", "N/A", "1"]
    assert rows(kubectl("get", "namespaces"))[0][0] == "default"
    assert kubectl("logs", "web-a", "--tail=1") == "log of web-a\n"
    assert "v1.32.4" in kubectl("version")


def test_describe_a_node(kubectl):
    text = kubectl("describe", "node", "gpu-0")
    assert "Unschedulable:      false" in text
    assert "nvidia.com/gpu" in text
    assert "(3 in total)" in text
    assert "KubeletReady" in text


def test_cordon_taint_label_and_back(kubectl, running):
    kubectl("cordon", "gpu-0")
    assert rows(kubectl("get", "node", "gpu-0"))[0][1] == "Ready,SchedulingDisabled"
    kubectl("taint", "node", "gpu-0", "kcover.io/unhealthy=79:NoSchedule")
    kubectl("taint", "node", "gpu-0", "other=1:NoExecute")
    taints = running.store.get("Node", "", "gpu-0")["spec"]["taints"]
    assert {(taint["key"], taint["effect"]) for taint in taints} == {
        ("kcover.io/unhealthy", "NoSchedule"),
        ("other", "NoExecute"),
    }
    kubectl("taint", "node", "gpu-0", "kcover.io/unhealthy-")
    assert [taint["key"] for taint in running.store.get("Node", "", "gpu-0")["spec"]["taints"]] == ["other"]
    kubectl("label", "node", "gpu-0", "kcover.io/standby=true")
    kubectl("annotate", "node", "gpu-0", "note=text")
    kubectl("label", "node", "gpu-0", "kcover.io/standby-")
    kubectl("uncordon", "gpu-0")
    after = running.store.get("Node", "", "gpu-0")
    assert "unschedulable" not in after["spec"] or after["spec"]["unschedulable"] is False
    assert "kcover.io/standby" not in after["metadata"]["labels"]
    assert after["metadata"]["annotations"] == {"note": "text"}


def test_drain_waits_for_the_budget_and_leaves_daemons(kubectl, running):
    """A replica set's pod comes back on the other node once its kubelet let go of the old one; then the next may go."""

    def world(change):
        old, new = change.before, change.object
        if change.resource.kind != "Pod" or change.kind != "MODIFIED":
            return
        if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
            asyncio.get_running_loop().call_later(0.1, replace, new)

    def replace(gone):
        name = gone["metadata"]["name"]
        owner = running.store.get("ReplicaSet", "default", "web")
        running.store.delete("Pod", "default", name, grace=0)
        running.store.create("Pod", pod(f"{name}-again", on="gpu-1", owner=owner, labels={"app": "web"}))

    running.do(lambda: running.store.subscribe(world))
    text = kubectl("drain", "gpu-0", "--ignore-daemonsets", "--timeout=30s")
    assert "pod/web-a evicted" in text
    assert "pod/web-b evicted" in text
    left = running.do(lambda: running.store.list("Pod"))
    assert [(item["metadata"]["name"], item["spec"]["nodeName"]) for item in left] == [
        ("agent-0", "gpu-0"),
        ("web-a-again", "gpu-1"),
        ("web-b-again", "gpu-1"),
    ]
    counted = running.api.calls.report(resource="pods/eviction", node="gpu-0")
    assert sum(row["count"] for row in counted["calls"] if row["applied"]) == 2
    assert any(row["status"] == 429 for row in counted["calls"])


def test_drain_gives_up_with_the_message_of_the_budget(kubectl, running):
    running.do(lambda: running.store.patch("PodDisruptionBudget", "default", "web", {"spec": {"minAvailable": 2}}))
    text = kubectl("drain", "gpu-0", "--ignore-daemonsets", "--timeout=2s", ok=False)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in text
    assert rows(kubectl("get", "node", "gpu-0"))[0][1] == "Ready,SchedulingDisabled"


def test_manifests_are_created_changed_and_deleted(kubectl, running, tmp_path):
    manifest = tmp_path / "job.yaml"
    manifest.write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n"
        "spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
    )
    kubectl("apply", "-f", str(manifest))
    manifest.write_text(manifest.read_text().replace("backoffLimit: 0", "backoffLimit: 3"))
    kubectl("apply", "-f", str(manifest))
    assert running.store.get("Job", "default", "j")["spec"]["backoffLimit"] == 3
    assert rows(kubectl("get", "jobs"))[0][0] == "j"
    kubectl("delete", "job", "j")
    assert running.store.find("Job", "default", "j") is None


def test_a_watch_prints_changes(kubectl, running):
    command = [kubectl.program, f"--cache-dir={kubectl.cache}", "get", "nodes", "-w"]
    process = subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, text=True)
    try:
        waiting.until(lambda: running.api.calls.total(verb="watch"), "the watch to begin")
        running.do(lambda: running.store.patch("Node", "", "gpu-1", {"spec": {"unschedulable": True}}))
        lines = [process.stdout.readline().split()[:2] for _ in range(4)]
    finally:
        process.kill()
        process.communicate()
    assert lines == [["NAME", "STATUS"], ["gpu-0", "Ready"], ["gpu-1", "Ready"], ["gpu-1", "Ready,SchedulingDisabled"]]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_a_token_is_sent_over_tls(program, tmp_path):
    """Over https the kubeconfig's token goes along, so that nobody needs to be let in without one."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=simulator", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-keyout",
        key,
        "-out",
        certificate,
    ]
    subprocess.run([*made, *subject], capture_output=True, check=True, timeout=60)
    with serving(certificate=certificate, key=key) as running:
        running.put("Node", node("gpu-0"))
        config = Path(tmp_path / "kubeconfig")
        kubeconfig.write(config, server=running.url, token=ADMIN_TOKEN, certificate_authority=certificate)
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(config), "PATH": os.environ["PATH"]}
        command = [program, "get", "nodes", "-o", "name"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.stdout, done.stderr) == ("node/gpu-0\n", "")
