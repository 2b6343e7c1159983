"""A trial of the Helm chart: its secrets, its addresses, and what it runs and says."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from django.core.management import load_command_class

from agents import config
from kcover_portal.config import env
from tests.deploy import chart
from tests.deploy.chart import AGENT_ONLY, TRIAL, of_kind, render


def secret() -> dict[str, str]:
    [found] = of_kind(render(TRIAL), "Secret").values()
    return {name: base64.b64decode(value).decode() for name, value in found["data"].items()}


def test_a_trials_secret_holds_keys_that_the_portal_takes(tmp_path) -> None:
    made = secret()
    key = load_pem_private_key(made["signing_key.pem"].encode(), None)
    assert isinstance(key, Ed25519PrivateKey)
    assert len(base64.b64decode(made["encryption_key"])) == 32
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    found = of_kind(render(TRIAL), "ConfigMap")["kcover-portal"]["data"]
    read = env.read({name: value.replace("/etc/kcover/", f"{tmp_path}/") for name, value in found.items()})
    assert urlsplit(str(read["KCOVER_DATABASE_URL"])).hostname == "kcover-postgresql"
    assert urlsplit(str(read["KCOVER_REDIS_URL"])).password == made["redis_password"]
    assert secret()["admin_password"] != made["admin_password"]


def test_a_trial_needs_no_ingress_and_its_agents_reach_live() -> None:
    manifests = render(TRIAL)
    assert not of_kind(manifests, "Ingress")
    agent = of_kind(manifests, "ConfigMap")["kcover-agent"]["data"]
    address = urlsplit(agent["KCOVER_AGENT_URL"])
    [port] = of_kind(manifests, "Service")["kcover-live"]["spec"]["ports"]
    assert (address.hostname, address.port) == ("kcover-live.kcover-system.svc", port["port"])
    [rule] = of_kind(manifests, "NetworkPolicy")["kcover-live"]["spec"]["ingress"]
    assert rule == {"ports": [{"port": 8000}]}
    portal = of_kind(manifests, "ConfigMap")["kcover-portal"]["data"]
    assert portal["KCOVER_WEB_URL"] == "http://kcover-web:8080"
    assert address.hostname in portal["KCOVER_ALLOWED_HOSTS"].split(",")
    assert portal["KCOVER_SERVICE_ACCOUNTS"] == "kcover-system/kcover-agent"
    assert config.load(None, agent).cluster == "prod"


def test_notes_show_the_next_commands() -> None:
    notes = chart.texts(TRIAL, name="t", namespace="gpu")["NOTES.txt"]
    assert "kubectl -n gpu port-forward service/t-live 8000:8000" in notes
    assert "kubectl -n gpu get secret t-portal -o jsonpath='{.data.admin_password}'" in notes
    assert "gpu/t-agent" in chart.texts(AGENT_ONLY, name="t", namespace="gpu")["NOTES.txt"]


def test_the_setup_job_passes_the_arguments_of_the_command() -> None:
    manifests = render(TRIAL | {"namespaces": {"jobs": {"name": "other-jobs"}}})
    [container] = of_kind(manifests, "Job")["kcover-setup"]["spec"]["template"]["spec"]["containers"]
    *_, manage, verb = container["command"][:3]
    given = (
        load_command_class("kcover_portal.operate", verb)
        .create_parser(manage, verb)
        .parse_args(container["command"][3:])
    )
    assert (given.cluster, given.job_namespace) == ("prod", "other-jobs")
    assert Path(given.password_file).name in of_kind(manifests, "Secret")["kcover-portal"]["data"]
