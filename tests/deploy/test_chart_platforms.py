"""OpenShift and Autopilot's Service: off by default, each with one value."""

import helm_python
import pytest
from aiohttp.test_utils import TestClient, TestServer
from django.core.management import load_command_class

from agents import config
from kcover_portal.config import env
from kcover_portal.operate.status_port import StatusPort
from tests.deploy.chart import AGENT_ONLY, LEAST, TRIAL, Manifest, of_kind, render, texts

OPENSHIFT = {"openshift": {"enabled": True}}
SERVICE = "autopilot-healthchecks"
STATUS = {"enabled": True, "tokenSecret": "status", "namespace": "autopilot"}


def service(values: Manifest) -> tuple[Manifest, Manifest, Manifest]:
    """Autopilot's Service, the pod behind it and its network policy."""
    made = render(values)
    names = {"Service": SERVICE, "Deployment": "kcover-status-port", "NetworkPolicy": SERVICE}
    found = [of_kind(made, kind)[name] for kind, name in names.items()]
    assert {one["metadata"]["namespace"] for one in found} == {values["statusPort"].get("namespace") or "kcover-system"}
    return found[0]["spec"], found[1]["spec"]["template"], found[2]["spec"]


# Autopilot's Service


def test_the_service_answers_at_autopilots_address() -> None:
    spec, pod, policy = service(LEAST | {"statusPort": STATUS})
    [port] = spec["ports"]
    assert port["port"] == 3333
    [container] = pod["spec"]["containers"]
    [listens] = container["ports"]
    assert (port["targetPort"], listens["containerPort"]) == (listens["name"], 3333)
    labels = pod["metadata"]["labels"]
    assert spec["selector"] == policy["podSelector"]["matchLabels"] == labels
    assert SERVICE not in of_kind(render(LEAST), "Service")


@pytest.mark.parametrize(
    ("values", "portal"),
    [(LEAST, "https://gpu.example.com"), (TRIAL, "http://kcover-live.kcover-system.svc:8000")],
    ids=["behind-an-ingress", "trial"],
)
def test_its_command_is_one_of_the_portal_and_has_the_token_of_the_secret(values, portal) -> None:
    _, pod, _ = service(values | {"statusPort": STATUS})
    [container] = pod["spec"]["containers"]
    manage, name = container["command"][1:3]
    command = load_command_class("kcover_portal.operate", name)
    given = command.create_parser(manage, name).parse_args(container["command"][3:])
    assert (given.portal, given.host, given.port) == (portal, "0.0.0.0", 3333)
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "token"]
    assert str(given.token_file) == f"{mount['mountPath']}/token"
    [volume] = [one["secret"] for one in pod["spec"]["volumes"] if one["name"] == "token"]
    assert volume["secretName"] == "status"


@pytest.mark.parametrize("names", [[], ["status.example.com", "gpu.example.com"]])
@pytest.mark.parametrize("namespace", ["autopilot", ""])
async def test_it_answers_at_each_name_of_the_service_and_at_those_of_the_values(names, namespace) -> None:
    _, pod, _ = service(LEAST | {"statusPort": STATUS | {"names": names, "namespace": namespace}})
    [container] = pod["spec"]["containers"]
    command = load_command_class("kcover_portal.operate", "status_port")
    given = command.create_parser("manage.py", "status_port").parse_args(container["command"][3:])
    called = f"{SERVICE}.{namespace or 'kcover-system'}"
    assert given.name == [called, *names]
    port = StatusPort(portal="http://127.0.0.1:9", token=lambda: "x", names=given.name)
    async with TestClient(TestServer(port.application())) as client:
        for name in (SERVICE, called, f"{called}.svc", f"{called}.svc.cluster.local", *names, "10.0.0.7"):
            answer = await client.get("/status", headers={"Host": f"{name}:3333"})
            assert answer.status == 502, name  # it asks the portal, which is away
        assert (await client.get("/status", headers={"Host": "evil.example.com"})).status == 403


def test_its_pod_is_not_let_to_the_stores_of_a_trial() -> None:
    values = TRIAL | {"statusPort": STATUS | {"namespace": ""}}
    _, pod, _ = service(values)
    made = render(values)
    web = of_kind(made, "Deployment")["kcover-web"]["spec"]["template"]["metadata"]["labels"]
    policies = of_kind(made, "NetworkPolicy")
    for store in ("kcover-postgresql", "kcover-redis"):
        [rule] = policies[store]["spec"]["ingress"]
        [peer] = [one["podSelector"]["matchLabels"] for one in rule["from"]]
        assert peer.items() <= web.items()
        assert not peer.items() <= pod["metadata"]["labels"].items()


def test_its_pod_has_no_secret_but_the_token_and_no_account() -> None:
    _, pod, _ = service(LEAST | {"statusPort": STATUS})
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert [one["name"] for one in pod["spec"]["volumes"] if "secret" in one] == ["token"]
    [container] = pod["spec"]["containers"]
    assert "envFrom" not in container
    env.read({one["name"]: one["value"] for one in container["env"]})


def test_only_named_namespaces_reach_it() -> None:
    _, _, policy = service(LEAST | {"statusPort": STATUS | {"fromNamespaces": ["training"]}})
    [rule] = policy["ingress"]
    own, other = rule["from"]
    assert own == {"podSelector": {}}
    assert other == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}}


def test_it_is_refused_without_a_token() -> None:
    with pytest.raises(helm_python.HelmError, match=r"statusPort\.tokenSecret"):
        render(LEAST | {"statusPort": {"enabled": True}})


def test_it_trusts_the_private_ca() -> None:
    _, pod, _ = service(LEAST | {"statusPort": STATUS, "ca": {"configMap": "private"}})
    [container] = pod["spec"]["containers"]
    assert {"name": "SSL_CERT_FILE", "value": "/etc/kcover-ca/ca.crt"} in container["env"]
    assert {one["name"] for one in container["volumeMounts"]} == {"token", "ca", "tmp"}


# OpenShift


def test_nothing_of_openshift_is_there_by_default() -> None:
    kinds = {one["kind"] for one in render(LEAST)}
    assert not kinds & {"SecurityContextConstraints", "PrometheusRule", "ServiceMonitor"}


def test_the_agents_pod_is_admitted_by_its_constraints() -> None:
    for values in (LEAST, AGENT_ONLY, LEAST | {"agent": {"settings": {"KCOVER_AGENT_LISTEN": "0.0.0.0:9412"}}}):
        made = render(values | OPENSHIFT)
        [allowed] = of_kind(made, "SecurityContextConstraints").values()
        spec = of_kind(made, "DaemonSet")["kcover-agent"]["spec"]["template"]["spec"]
        assert f"system:serviceaccount:kcover-system:{spec['serviceAccountName']}" in allowed["users"]
        assert (spec["hostPID"], spec["hostNetwork"]) == (allowed["allowHostPID"], allowed["allowHostNetwork"])
        [container] = spec["containers"]
        assert container["securityContext"]["privileged"] is allowed["allowPrivilegedContainer"] is True
        used = {kind for one in spec["volumes"] for kind in one if kind != "name"}
        assert used <= set(allowed["volumes"])


def test_accounts_of_jobs_are_admitted_where_the_portal_makes_jobs() -> None:
    [allowed] = of_kind(render(LEAST | OPENSHIFT), "SecurityContextConstraints").values()
    jobs = {f"system:serviceaccount:{name}:default" for name in ("kcover-jobs", "kcover-preflight")}
    assert jobs < set(allowed["users"])
    [allowed] = of_kind(render(AGENT_ONLY | OPENSHIFT), "SecurityContextConstraints").values()
    assert not jobs & set(allowed["users"])


def test_the_cluster_monitoring_scrapes_the_portal_and_shows_its_alerts() -> None:
    made = render(LEAST | OPENSHIFT | {"namespaces": {"release": {"create": True}}})
    assert of_kind(made, "PrometheusRule")
    assert of_kind(made, "ServiceMonitor")
    labels = of_kind(made, "Namespace")["kcover-system"]["metadata"]["labels"]
    assert labels["openshift.io/cluster-monitoring"] == "true"
    [rule] = of_kind(made, "NetworkPolicy")["kcover-web"]["spec"]["ingress"]
    reached = {one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in rule["from"]}
    assert {"openshift-monitoring", "openshift-ingress"} <= reached
    notes = texts(LEAST | OPENSHIFT)["NOTES.txt"]
    assert "oc label namespace kcover-system openshift.io/cluster-monitoring=true" in notes


# The agent's probe


@pytest.mark.parametrize(
    ("listen", "host"),
    [
        ("0.0.0.0:8081", "127.0.0.1"),
        ("[::]:8081", "::1"),
        ("::1:8081", "::1"),
        (":::8081", "::1"),
        ("fd00::7:8081", "fd00::7"),
        ("10.0.0.7:8081", "10.0.0.7"),
        ("127.0.0.1:9413", "127.0.0.1"),
        ("none", None),
        ("", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("in_file", [False, True], ids=["settings", "file"])
def test_the_probe_asks_where_the_agent_listens(listen, host, in_file) -> None:
    data = {"config": {"data": {"listen": listen}}} if in_file else {"settings": {"KCOVER_AGENT_LISTEN": listen}}
    made = render(LEAST | {"agent": data})
    [container] = of_kind(made, "DaemonSet")["kcover-agent"]["spec"]["template"]["spec"]["containers"]
    listens = config.load(None, {"KCOVER_AGENT_LISTEN": listen, "NODE_NAME": "gpu-1"}).listen
    if listens is None:
        assert "livenessProbe" not in container
    else:
        asked = container["livenessProbe"]["httpGet"]
        assert (asked["host"], asked["port"]) == (host, listens[1])


def test_prometheus_scrapes_the_port_that_the_agent_listens_on() -> None:
    agent = {"settings": {"KCOVER_AGENT_LISTEN": "0.0.0.0:8081"}, "podMonitor": {"enabled": True}}
    [container] = of_kind(render(LEAST | {"agent": agent}), "DaemonSet")["kcover-agent"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["ports"] == [{"name": "metrics", "containerPort": 8081, "hostPort": 8081}]
    for listen in ("none", "127.0.0.1:9412", "[::1]:9412", "::1:9412", "9412"):
        agent["settings"] = {"KCOVER_AGENT_LISTEN": listen}
        with pytest.raises(helm_python.HelmError, match="KCOVER_AGENT_LISTEN"):
            render(LEAST | {"agent": agent})


def test_multus_gives_an_agent_with_a_network_of_its_own_more_interfaces() -> None:
    networks = {"k8s.v1.cni.cncf.io/networks": "multi-nic"}
    agent = {"podAnnotations": networks, "hostNetwork": False, "podMonitor": {"enabled": True}}
    pod = of_kind(render(LEAST | {"agent": agent}), "DaemonSet")["kcover-agent"]["spec"]["template"]
    assert networks.items() <= pod["metadata"]["annotations"].items()
    assert not {"hostNetwork", "dnsPolicy"} & set(pod["spec"])
    [container] = pod["spec"]["containers"]
    given = {one["name"]: one.get("value", "gpu-1") for one in container["env"] if not one["name"].startswith("NVIDIA")}
    host, port = config.load(None, given).listen or ("", 0)
    assert host == "0.0.0.0"  # the kubelet asks at the pod's address
    assert container["livenessProbe"]["httpGet"] == {"port": port, "path": "/healthz"}
    assert container["ports"] == [{"name": "metrics", "containerPort": port}]
    for listen in ("127.0.0.1:9412", "::1:9412"):
        with pytest.raises(helm_python.HelmError, match=r"agent\.hostNetwork"):
            render(LEAST | {"agent": agent | {"settings": {"KCOVER_AGENT_LISTEN": listen}, "podMonitor": {}}})
