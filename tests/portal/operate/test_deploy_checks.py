"""Warnings about the configuration: secrets in plain text, plain HTTP, and proxy networks that are too large."""

import ipaddress
from datetime import datetime

import pytest
from django.db import connection

from kcover_portal.fleet.models import Cluster
from kcover_portal.operate import deploy_checks, health
from kcover_portal.shared_reads import portal_checks

pytestmark = pytest.mark.django_db
KUBECONFIG = "clusters:\n- name: c\n  cluster:\n    server: {}\n"


def codes(now: datetime) -> set[str]:
    return {problem.because.code for problem in portal_checks.problems(now=now)}


def test_postgresql_without_an_encryption_key_is_a_warning(now: datetime, settings) -> None:
    settings.KCOVER_ENCRYPTION_KEY_FILE = settings.KCOVER_ENCRYPTION_KEY_COMMAND = ""
    settings.KCOVER_OWN_ENCRYPTION_KEY = None
    wanted = {"secrets_in_plain_text"} if connection.vendor == "postgresql" else set()
    assert codes(now) == wanted
    assert [each.id for each in deploy_checks.secrets_are_encrypted()] == ["kcover.W003"] * len(wanted)
    found = [each for each in health.findings(now=now) if each.name == "encryption key"]
    assert [(each.well, each.needed) for each in found] == [(False, False)] * len(wanted)
    settings.KCOVER_ENCRYPTION_KEY_FILE = "/etc/kcover/encryption_key"
    assert codes(now) == set()


@pytest.mark.parametrize(
    ("server", "reported"),
    [
        ("https://10.0.0.1:6443", False),
        ("http://10.0.0.1:8080", True),
        ("'http://k8s.example'", True),
        ("http://127.0.0.1:8001", False),
        ("http://localhost:8001", False),
    ],
)
def test_an_api_server_over_plain_http_is_a_warning(now: datetime, server: str, reported: bool) -> None:
    Cluster.objects.create(name="east", created_at=now, kubeconfig=KUBECONFIG.format(server))
    assert ("api_server_plain_http" in codes(now)) is reported
    assert ("API server east" in {finding.name for finding in health.findings(now=now)}) is reported


@pytest.mark.parametrize(
    ("url", "reported"),
    [("http://portal.example", True), ("https://portal.example", False), ("http://127.0.0.1:8000", False), ("", False)],
)
def test_a_public_address_without_tls_is_a_warning(now: datetime, settings, url: str, reported: bool) -> None:
    settings.KCOVER_PUBLIC_URL = url
    assert ("portal_plain_http" in codes(now)) is reported
    assert [each.id for each in deploy_checks.browsers_use_https()] == ["kcover.W004"] * reported


@pytest.mark.parametrize(
    ("network", "reported"),
    [("10.0.0.0/8", True), ("10.42.3.0/24", False), ("127.0.0.0/8", False), ("fd00::/8", True), ("fd00::1/128", False)],
)
def test_a_large_network_of_proxies_is_a_warning(settings, network: str, reported: bool) -> None:
    settings.KCOVER_TRUSTED_PROXIES = [ipaddress.ip_network(network)]
    assert [each.id for each in deploy_checks.proxies_are_few()] == ["kcover.W005"] * reported
