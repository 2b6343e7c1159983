"""The network access of deploy/portal: probes, Services, budgets, the Ingress."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from django.urls import resolve

from kcover_portal import asgi
from kcover_portal.api.agent import app as door
from kcover_portal.api.v1.status import responses
from kcover_portal.config import env, request_limits
from kcover_portal.console import routing
from kcover_portal.kube import bounds
from kcover_portal.operate import views
from tests.deploy import manifests
from tests.deploy.manifests import DEPLOYMENTS, INGRESS, PODS, of_kind, only, options


@pytest.fixture
def as_in_the_cluster(settings, tmp_path):
    """Django as the ConfigMap sets it."""
    values = env.read(manifests.given(tmp_path))
    settings.ALLOWED_HOSTS = values["KCOVER_ALLOWED_HOSTS"]
    settings.SECURE_SSL_REDIRECT = True


@pytest.mark.parametrize("name", ["web", "live"])
@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe"])
def test_probes_are_answered_without_the_database(name, probe, as_in_the_cluster, client):
    container = only(PODS[name]["containers"])
    asked = container[probe]["httpGet"]
    assert resolve(asked["path"]).func is views.healthz
    assert asked["port"] == only(container["ports"])["name"]
    header = only(asked["httpHeaders"])
    assert header["name"] == "Host"
    assert client.get(asked["path"], headers={"host": f"{header['value']}:8080"}).status_code == 200
    by_itself = client.get(asked["path"], headers={"host": "10.1.2.3:8080"})  # how a kubelet would ask
    assert by_itself.status_code == 400


def test_a_slow_database_does_not_end_a_process():
    for name in ("web", "live"):
        probe = only(PODS[name]["containers"])["livenessProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] >= 300


@pytest.mark.parametrize(("name", "seconds"), [("worker", 1800), ("beat", 300), ("watch", 300)])
def test_a_process_without_clients_is_restarted_if_its_heartbeat_is_old(name, seconds, tmp_path):
    """A worker touches its file in the pool, whose threads may all wait for API servers, also from its start on."""
    container = only(PODS[name]["containers"])
    [file] = [one["value"] for one in container["env"] if one["name"] == "KCOVER_HEARTBEAT_FILE"]
    assert Path(file).parent == Path("/tmp")
    *shell, line = container["livenessProbe"]["exec"]["command"]
    beat = tmp_path / "heartbeat"
    command = [*shell, line.replace(file, str(beat))]
    assert subprocess.run(command, check=False, capture_output=True).returncode != 0
    for age, healthy in ((0, True), (seconds - 60, True), (seconds + 60, False)):
        beat.touch()
        at = time.time() - age
        os.utime(beat, (at, at))
        assert (subprocess.run(command, check=False).returncode == 0) is healthy
    if name == "worker":
        assert container["livenessProbe"]["initialDelaySeconds"] >= seconds
        assert seconds > 3 * bounds.LIST_SECONDS


def test_services_and_budgets_find_their_pods():
    for service in of_kind("Service"):
        chosen = [name for name, spec in DEPLOYMENTS.items() if chooses(service["spec"]["selector"], spec)]
        container = only(PODS[only(chosen)]["containers"])
        port, listens = only(service["spec"]["ports"]), only(container["ports"])
        assert (port["port"], port["targetPort"]) == (listens["containerPort"], listens["name"])
        bound, _ = options(container["command"])
        assert str(port["port"]) == bound["--port"]
    budgets = [one["spec"] for one in of_kind("PodDisruptionBudget")]
    kept = [n for one in budgets for n in DEPLOYMENTS if chooses(one["selector"]["matchLabels"], DEPLOYMENTS[n])]
    assert kept == ["web", "live", "worker", "watch"]
    assert {one["maxUnavailable"] for one in budgets} == {1}
    for spec in DEPLOYMENTS.values():
        assert chooses(spec["selector"]["matchLabels"], spec)
        assert all(chooses(one["labelSelector"]["matchLabels"], spec) for one in spread(spec))


def chooses(labels, spec):
    return labels.items() <= spec["template"]["metadata"]["labels"].items()


def spread(spec):
    return spec["template"]["spec"].get("topologySpreadConstraints", [])


def begins_with(path, prefix):
    """As an Ingress compares, part by part; an end of "/" says nothing."""
    parts, wanted = path.strip("/").split("/"), prefix.strip("/").split("/")
    return prefix == "/" or parts[: len(wanted)] == wanted


def routed(path):
    """The Service that the Ingress hands a path to: that of the longest prefix."""
    rules = [rule for rule in only(INGRESS["spec"]["rules"])["http"]["paths"] if begins_with(path, rule["path"])]
    assert {rule["pathType"] for rule in rules} == {"Prefix"}
    return max(rules, key=lambda rule: len(rule["path"]))["backend"]["service"]["name"]


PATHS = [
    *("/api/v1/agent/reports", "/api/v1/agent/commands", "/api/v1/agent/enrol"),
    *("/", "/nodes/", "/api/v1/agents", "/api/v1/status", "/healthz", "/static/console/console.css"),
]


@pytest.mark.parametrize("path", PATHS)
async def test_live_receives_only_the_paths_that_it_serves(path, monkeypatch):
    asked = []

    async def agents(_scope, _receive, _send):
        asked.append("kcover-live")

    async def pages(_scope, _receive, _send):
        asked.append("kcover-web")

    monkeypatch.setattr(asgi.agent, "application", agents)
    monkeypatch.setattr(asgi, "pages", pages)
    await asgi.application({"type": "http", "path": path}, None, None)
    assert asked == [routed(path)]


def test_sockets_go_to_live():
    assert {routed(f"/{socket.pattern}") for socket in routing.websocket_urlpatterns} == {"kcover-live"}


def test_the_ingress_names_existing_services_and_ports():
    services = {one["metadata"]["name"]: only(one["spec"]["ports"])["name"] for one in of_kind("Service")}
    for rule in only(INGRESS["spec"]["rules"])["http"]["paths"]:
        backend = rule["backend"]["service"]
        assert backend["port"]["name"] == services[backend["name"]]


def test_the_ingress_allows_the_portals_longest_wait_and_largest_body():
    said = {name.rpartition("/")[2]: value for name, value in INGRESS["metadata"]["annotations"].items()}
    assert int(said["proxy-read-timeout"]) > 2 * max(door.MAX_WAIT_SECONDS, responses.KEEPALIVE_SECONDS)
    assert said["proxy-body-size"] == f"{request_limits.MAX_BODY // 1024**2}m"


def test_only_the_ingress_and_prometheus_connect_and_only_where_something_listens():
    policies = {one["metadata"]["name"]: one["spec"] for one in manifests.of_kind("NetworkPolicy")}
    everything = policies["kcover-portal"]
    assert (everything["policyTypes"], everything["ingress"]) == (["Ingress"], [])
    labels = [spec["template"]["metadata"]["labels"] for spec in manifests.DEPLOYMENTS.values()]
    assert all(everything["podSelector"]["matchLabels"].items() <= each.items() for each in labels)
    reached = {name: spec for name, spec in policies.items() if spec.get("ingress")}
    assert set(reached) == {"kcover-web", "kcover-live"}
    for name, spec in reached.items():
        process = name.removeprefix("kcover-")
        assert spec["podSelector"]["matchLabels"] == manifests.DEPLOYMENTS[process]["selector"]["matchLabels"]
        rule = manifests.only(spec["ingress"])
        ports = [port["containerPort"] for port in manifests.only(manifests.PODS[process]["containers"])["ports"]]
        assert [port["port"] for port in rule["ports"]] == ports
        assert all("namespaceSelector" in peer for peer in rule["from"])
