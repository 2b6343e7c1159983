"""The Helm chart renders valid objects, refuses unknown values, and is the source of the plain manifests."""

import contextlib
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import helm_python
import kubernetes_validate
import pytest
import yaml
from kubernetes.utils import parse_quantity

from agents import VERSION, config
from kcover_portal.config import env, setting_values
from tests.deploy import chart
from tests.deploy.chart import AGENT_ONLY, EVERYTHING, LEAST, NOTHING, TRIAL, WHOLES, of_kind, render
from tools import chart as tool

KUBERNETES = ("1.29", "1.31", "1.34", "1.36")
CUSTOM = {
    "ServiceMonitor",
    "PodMonitor",
    "PrometheusRule",
    "HTTPRoute",
    "SecurityContextConstraints",
}  # their schemas are not Kubernetes' own
ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}  # v1 since Kubernetes 1.30

each_whole = pytest.mark.parametrize("values", WHOLES.values(), ids=WHOLES)


def test_the_files_in_deploy_equal_the_rendered_chart() -> None:
    assert tool.SCHEMA.read_text() == tool.schema(), "run `make manifests`"
    assert tool.NUMBERS.read_text() == tool.numbers(), "run `make manifests`"
    for path, text in tool.manifests():
        assert path.read_text() == text, f"{path}: run `make manifests`"


def test_lint_finds_nothing() -> None:
    for values in (None, *WHOLES.values()):
        report = helm_python.lint(tool.CHART, values, strict=True, namespace="gpu")
        assert [one for one in report["messages"] if one["severity"] > 1] == []
        assert not report["errors"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_each_object_is_valid(version) -> None:
    """Against the published schemas, which refuse unknown fields here."""
    without = CUSTOM | (ADMISSION if version == "1.29" else set())  # where the chart leaves it out
    distinct = {json.dumps(one) for values in WHOLES.values() for one in render(values) if one["kind"] not in without}
    for one in distinct:
        kubernetes_validate.validate(json.loads(one), version, strict=True)


def test_the_versions_are_those_of_portal_and_agent() -> None:
    about = yaml.safe_load((tool.CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == about["version"] == VERSION


def test_the_schema_knows_each_setting_of_portal_and_agent() -> None:
    with helm_python.Chart.load(tool.CHART) as loaded:
        schema = loaded.schema
    assert schema
    known = schema["properties"]
    secret = {one.name for one in env.VARIABLES if one.secret}
    assert set(known["settings"]["properties"]) == {one.name for one in env.VARIABLES} - secret
    assert set(known["secret"]["properties"]["settings"]["items"]["enum"]) == secret
    names = {name for names, _ in config.SETTINGS.values() for name in names if name.startswith("KCOVER_")}
    own = known["agent"]["properties"]["settings"]["properties"]
    assert names - set(own) == tool.AGENT_KEYS - {"NODE_NAME"}


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"hosts": "x"}, "hosts"),
        ({"settings": {"KCOVER_WORKER": "8"}}, "KCOVER_WORKER"),
        ({"settings": {"KCOVER_WORKERS": 8}}, "/settings/KCOVER_WORKERS"),
        ({"settings": {"KCOVER_SECRET_KEY": "x"}}, "KCOVER_SECRET_KEY"),
        ({"secret": {"settings": ["KCOVER_MODE"]}}, "/secret/settings/0"),
        ({"agent": {"settings": {"KCOVER_AGENT_TOKEN": "x"}}}, "KCOVER_AGENT_TOKEN"),
        ({"agent": {"vendor": "intel"}}, "/agent/vendor"),
        ({"features": {"reboot": True}}, "reboot"),
        ({"features": {"jobs": {"slurm": True}}}, "slurm"),
        ({"placement": "gpu"}, "/placement"),
        ({"web": {"replicas": 0}}, "/web/replicas"),
        ({"host": "https://portal.example.com"}, "/host"),
        ({"host": "portal.example.com/kcover"}, "/host"),
        ({"image": {"digest": "sha256:0"}}, "/image/digest"),
        ({"networkPolicy": {"storePorts": [0]}}, "/networkPolicy/storePorts/0"),
        ({"host": ""}, "host is not set"),
        ({"settings": {"KCOVER_TRUSTED_PROXIES": ""}}, "settings.KCOVER_TRUSTED_PROXIES"),
        ({"agent": {"only": True}}, "agent.url"),
        ({"gateway": {"enabled": True}}, "gateway.parentRefs"),
        ({"agent": {"podMonitor": {"enabled": True}}}, "agent.settings.KCOVER_AGENT_LISTEN"),
        ({"settings": {"KCOVER_MODE": "enfroce"}}, "'paused', 'shadow', 'approve', 'enforce'"),
        ({"settings": LEAST["settings"] | {"KCOVER_WORKERS": "many"}}, "a number from 1 to 512"),
        ({"settings": {"KCOVER_PUBLIC_URL": "https://example.com/kcover"}}, "/settings/KCOVER_PUBLIC_URL"),
        ({"web": {"resources": {"requests": {"cpu": "lots"}}}}, "/web/resources/requests/cpu"),
        ({"agent": {"resources": {"limits": {"memory": "2GB"}}}}, "/agent/resources/limits/memory"),
        ({"postgresql": {"storage": {"size": "ten"}}}, "/postgresql/storage/size"),
        ({"anchor": {"claim": "/x"}}, "/anchor/claim"),
        ({"gateway": {"enabled": True, "parentRefs": [{"name": "public"}]}}, "ingress.enabled=false"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(values, key) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(key)):
        render(LEAST | values)


NUMBERS = ("", "0", "1", "5", "512", "513", "99999999", "many", "1.5", "-1")
NUMBERS += ("08", " 8", "8 ", "010", "0513", "+8", "00000000000007", " ", "0x8")
TEXTS = ("", "true", "shadow", "Shadow", "off", "json", "all", "admins", "read")
TEXTS += ("https://gpu.example.com/", "https://gpu.example.com/kcover", "gpu.example.com")
COUNTS = [one.name for one in env.VARIABLES if isinstance(one.read, setting_values.Count)]
LIMITED = [one.name for one in env.VARIABLES if tool.setting(one) != tool.TEXT and not one.secret]


@pytest.mark.parametrize(
    ("name", "samples"), [*((name, NUMBERS) for name in COUNTS), *((name, TEXTS) for name in LIMITED)]
)
def test_chart_and_portal_accept_the_same_settings(name, samples) -> None:
    accepted: dict[str, list[str]] = {"chart": [], "portal": []}
    for text in samples:
        with contextlib.suppress(env.SettingsInvalid):
            env.read({name: text})
            accepted["portal"].append(text)
        with contextlib.suppress(helm_python.HelmError):
            render(LEAST | {"settings": LEAST["settings"] | {name: text}})
            accepted["chart"].append(text)
    assert accepted["chart"] == accepted["portal"]
    assert 0 < len(accepted["portal"]) < len(samples)


# Settings


def settings_of(values: chart.Manifest, folder: Path) -> dict[str, object]:
    """The settings that a process reads from its ConfigMap and its Secret."""
    found = of_kind(render(values), "ConfigMap")["kcover-portal"]["data"]
    for name, text in (
        ("database_url", "postgres://k:p@db/k"),
        ("redis_url", "redis://r/0"),
        ("secret_key", "only-for-tests-8bdfc9d2a4e64fd6a1f8"),
        ("mail_url", "smtp://mail"),
        ("metrics_token", "0123456789abcdef0123456789abcdef"),
    ):
        (folder / name).write_text(text)
    return env.read({name: value.replace("/etc/kcover/", f"{folder}/") for name, value in found.items()})


@pytest.mark.parametrize("values", [LEAST, TRIAL, EVERYTHING, NOTHING], ids=["least", "trial", "everything", "nothing"])
def test_the_portal_reads_its_settings_and_starts_in_shadow_mode(values, tmp_path) -> None:
    read = settings_of(values, tmp_path)
    assert read["KCOVER_MODE"] == "shadow"
    host = urlsplit(str(read["KCOVER_PUBLIC_URL"])).hostname
    assert {host, "kcover-web.kcover-system.svc"} <= set(read["KCOVER_ALLOWED_HOSTS"])  # type: ignore[call-overload]


QUANTITIES = ("100m", "1.5", "2Gi", "1e9", "1E3", "1e-3", "5.", ".5", "+1", "100u", "1n", 2, 0.5, 1e9)
NO_QUANTITIES = ("", "lots", "2GB", "-1", "1 Gi", ".", "1.2.3", "1e", "1ki", "0x1", True)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_quantity_of_kubernetes_is_taken(quantity) -> None:
    assert parse_quantity(quantity) >= 0
    made = render(TRIAL | {"web": {"resources": {"requests": {"cpu": quantity}}}})
    [web] = of_kind(made, "Deployment")["kcover-web"]["spec"]["template"]["spec"]["containers"]
    assert parse_quantity(web["resources"]["requests"]["cpu"]) == parse_quantity(quantity)
    made = render(TRIAL | {"postgresql": {"storage": {"size": quantity}}})
    [claim] = of_kind(made, "StatefulSet")["kcover-postgresql"]["spec"]["volumeClaimTemplates"]
    assert parse_quantity(claim["spec"]["resources"]["requests"]["storage"]) == parse_quantity(quantity)


@pytest.mark.parametrize("quantity", NO_QUANTITIES)
def test_another_quantity_is_refused(quantity) -> None:
    with pytest.raises(helm_python.HelmError, match="/web/resources/requests/cpu"):
        render(LEAST | {"web": {"resources": {"requests": {"cpu": quantity}}}})


def test_each_setting_reaches_the_portal(tmp_path) -> None:
    """Defaults, given as values, are read as they are without the chart."""
    given = {one.name: one.default for one in env.VARIABLES if not one.secret and one.default}
    given |= {"KCOVER_TRUSTED_PROXIES": "10.0.0.0/24", "KCOVER_PUBLIC_URL": "https://gpu.example.com"}
    read = settings_of(LEAST | {"settings": given}, tmp_path)
    assert {name: read[name] for name in given} == {name: env.read(given)[name] for name in given}


def test_secret_settings_are_files() -> None:
    found = of_kind(render(EVERYTHING), "ConfigMap")["kcover-portal"]["data"]
    assert found["KCOVER_MAIL_URL_FILE"] == "/etc/kcover/mail_url"
    secret = {one.name for one in env.VARIABLES if one.secret}
    assert not secret & set(found)


def test_a_changed_setting_restarts_the_pods() -> None:
    def marks(values: chart.Manifest) -> set[str]:
        pods = of_kind(render(values), "Deployment").values()
        return {one["spec"]["template"]["metadata"]["annotations"]["kcover.io/settings"] for one in pods}

    changed = LEAST | {"settings": {"KCOVER_TRUSTED_PROXIES": "10.0.1.0/24"}}
    assert len(marks(LEAST)) == 1
    assert marks(LEAST) != marks(changed)


def test_existing_stores_are_read_from_their_secrets() -> None:
    pod = of_kind(render(EVERYTHING), "Deployment")["kcover-worker"]["spec"]["template"]["spec"]
    [volume] = [one["projected"] for one in pod["volumes"] if one["name"] == "secret"]
    files = {
        item["path"]: (one["secret"]["name"], item["key"])
        for one in volume["sources"][1:]
        for item in one["secret"]["items"]
    }
    assert files == {"database_url": ("postgres", "uri"), "redis_url": ("redis", "url")}


# Pods


def pods(manifests: list[chart.Manifest]) -> dict[str, chart.Manifest]:
    kinds = ("Deployment", "StatefulSet", "Job")
    return {name: one["spec"]["template"]["spec"] for kind in kinds for name, one in of_kind(manifests, kind).items()}


@each_whole
def test_pods_of_portal_and_stores_may_no_more_than_they_need(values) -> None:
    for pod in pods(render(values)).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            limited = container["securityContext"]
            assert (limited["allowPrivilegeEscalation"], limited["readOnlyRootFilesystem"]) == (False, True)
            assert limited["capabilities"] == {"drop": ["ALL"]}
            assert set(container["resources"]) == {"requests", "limits"}
            assert re.search(r":[0-9][^:/]*$", container["image"])


def test_an_image_can_be_pinned_by_its_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    [worker] = pods(render(LEAST | {"image": {"digest": digest}}))["kcover-worker"]["containers"]
    assert worker["image"] == f"registry.example.com/kcover-portal:{VERSION}@{digest}"


def test_with_digests_no_image_is_named_by_its_tag_alone() -> None:
    digest = f"sha256:{'0' * 64}"
    image, jobs = {"image": {"digest": digest}}, ("rebootJobImage", "pairTestImage")
    features = {name: f"registry.example.com/{name.lower()}:1@{digest}" for name in jobs}
    made = render(TRIAL | image | dict.fromkeys(("agent", "postgresql", "redis"), image) | {"features": features})
    agents = [one["spec"]["template"]["spec"] for one in of_kind(made, "DaemonSet").values()]
    whole = [*pods(made).values(), *agents]
    found = [one for pod in whole for one in (*pod.get("initContainers", ()), *pod["containers"])]
    assert len(found) > 8
    assert {one["image"].partition("@")[2] for one in found} == {digest}
    policies = of_kind(made, "ValidatingAdmissionPolicy")
    for name in ("kcover-job-change", "kcover-node-change", "kcover-kubelet"):
        policies.pop(name)  # they name no image
    admitted = {policy["spec"]["variables"][0]["expression"] for policy in policies.values()}
    assert admitted == {f"'{image}'" for image in features.values()}


@pytest.mark.parametrize(
    ("placement", "rule"),
    [
        ("preferred", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("required", "requiredDuringSchedulingIgnoredDuringExecution"),
    ],
)
def test_nodes_without_gpus_are_preferred_or_required(placement, rule) -> None:
    for pod in pods(render(TRIAL | {"placement": placement})).values():
        assert list(pod["affinity"]["nodeAffinity"]) == [rule]
    assert all("affinity" not in pod for pod in pods(render(TRIAL | {"placement": "any"})).values())


@each_whole
def test_mounted_volumes_and_bound_accounts_exist(values) -> None:
    manifests = render(values)
    accounts = set(of_kind(manifests, "ServiceAccount"))
    for pod in pods(manifests).values():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            claims = {"data"} if "postgresql" in container["name"] else set()
            assert {one["name"] for one in container["volumeMounts"]} <= {
                one["name"] for one in pod["volumes"]
            } | claims
        assert pod.get("serviceAccountName") in accounts or pod["automountServiceAccountToken"] is False
    for one in manifests:
        assert {subject["name"] for subject in one.get("subjects", ())} <= accounts


# Several releases


def test_two_releases_in_one_cluster_share_no_name() -> None:
    def names(name: str, namespace: str) -> set[tuple[str, str, str]]:
        other = {
            "jobs": {"name": f"{namespace}-jobs"},
            "preflight": {"name": f"{namespace}-preflight"},
            "events": {"name": f"{namespace}-events"},
            "lease": {"create": (name, namespace) == ("kcover", "kcover-system")},
        }
        own = {"namespaces": other, "pullSecrets": EVERYTHING["pullSecrets"] | {"name": f"{name}-registry"}}
        own["statusPort"] = EVERYTHING["statusPort"] | {"enabled": name == "kcover"}  # its name is Autopilot's
        found = render(EVERYTHING | own, name=name, namespace=namespace)
        return {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")) for one in found}

    assert not names("kcover", "kcover-system") & names("kcover", "team-a")
    assert not names("kcover", "team-a") & names("other", "team-a") - {
        ("Namespace", name, "") for name in ("team-a", "team-a-jobs", "team-a-preflight", "team-a-events")
    }


@each_whole
def test_objects_of_a_release_are_in_its_namespaces_and_selectors_name_it(values) -> None:
    manifests = render(values, name="edge", namespace="gpu")
    allowed = {
        "gpu",
        "default",
        "training",
        "kcover-jobs",
        "kcover-preflight",
        "kce-rescue-system",
        "kcover-lease",
        None,
    }
    assert {one["metadata"].get("namespace") for one in manifests} <= allowed
    for one in manifests:
        selector = one.get("spec", {}).get("selector")
        if selector and one["kind"] not in ("ServiceMonitor", "PodMonitor"):
            labels = selector.get("matchLabels", selector)
            assert labels["app.kubernetes.io/instance"] == "edge"


# Agents alone


def test_an_edge_cluster_gets_agents_and_nothing_else() -> None:
    assert sorted(one["kind"] for one in render(AGENT_ONLY)) == ["ConfigMap", "DaemonSet", "ServiceAccount"]
    with_account = {one["kind"] for one in render(WHOLES["edge"])}
    assert "ClusterRole" in with_account
    assert "Deployment" not in with_account
