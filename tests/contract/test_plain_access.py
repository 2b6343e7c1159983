"""Access by embedded credentials and by a pod's token: what the official loader would make of them, without it."""

import json
import ssl
import subprocess
import sys

import pytest

from kcover_portal.kube import live, plain_access, port
from tests.contract import test_way_in as written

certificates, server = written.certificates, written.server  # fixtures


class Official:
    """What the official loader makes of a kubeconfig."""

    def __init__(self, text: str, context: str | None) -> None:
        def load(configuration):
            live.config.load_kube_config_from_dict(json.loads(text), context, configuration, persist_config=False)

        self.way_in = live.way_in(load)


def _shown(way_in):
    tls = way_in.tls
    checks = tls and (tls.verify_mode, tls.check_hostname, tls.verify_flags, tls.get_ca_certs())
    return way_in.host, way_in.authorization(), way_in.server_name, way_in.proxy, checks


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:1"])
@pytest.mark.parametrize("context", [None, "second"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_embedded_credentials_are_those_of_the_official_loader(certificates, monkeypatch, scheme, context, proxy):
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates["stranger"][0]))  # the system's take 20 ms to read
    authority = {"certificate-authority-data": written.data(certificates["server"][0])}
    clusters = ({}, {"tls-server-name": "api"}, authority, {"insecure-skip-tls-verify": True}, {"extensions": [{}]})
    for user in ({"token": "secret"}, written.tls_user(certificates), {"token": "x", **written.tls_user(certificates)}):
        for cluster in clusters:
            text = written.kubeconfig(f"{scheme}://api.example:6443/", user=user, **cluster)
            found = plain_access.of_kubeconfig(text, context, resolve=None)
            assert _shown(found) == _shown(Official(text, context).way_in)


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"tokenFile": "/x"}, {}),
        ({"exec": {"command": "x"}}, {}),
        ({"username": "a", "password": "b"}, {}),
        ({"token": ""}, {}),
        ({"token": 7}, {}),
        ({"token": "x", "as": "somebody"}, {}),
        ({"token": "x"}, {"insecure-skip-tls-verify": "true"}),
        ({"token": "x"}, {"certificate-authority": "/x"}),
        ({"token": "x"}, {"certificate-authority-data": "not base64"}),
    ],
)
def test_other_kubeconfigs_are_left_to_the_official_loader(user, cluster):
    text = written.kubeconfig("https://api.example", user=user, **cluster)
    assert plain_access.of_kubeconfig(text, None, resolve=None) is None
    for other in ("nobody", "first\n"):
        assert plain_access.of_kubeconfig(written.kubeconfig("https://x"), other, resolve=None) is None
    assert plain_access.of_kubeconfig("/nowhere:/either", None, resolve=None) is None


def test_a_pod_reads_its_token_again_each_minute(certificates, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    now = [100.0]
    with pytest.raises(port.RefusedByServer):
        plain_access.of_pod(tmp_path)
    (tmp_path / "ca.crt").write_bytes(certificates["server"][0].read_bytes())
    (tmp_path / "token").write_text("")
    with pytest.raises(port.RefusedByServer, match="empty"):
        plain_access.of_pod(tmp_path)
    (tmp_path / "token").write_text("old\n")
    found = plain_access.of_pod(tmp_path, monotonic=lambda: now[0])
    assert (found.host, found.tls.verify_mode) == ("https://[fd00::1]:443", ssl.CERT_REQUIRED)
    (tmp_path / "token").write_text("new")
    assert found.authorization() == "Bearer old"
    now[0] += plain_access.TOKEN_SECONDS
    assert found.authorization() == "Bearer new"
    (tmp_path / "token").unlink()
    assert found.authorization() == "Bearer new"
    now[0] += plain_access.TOKEN_SECONDS
    with pytest.raises(port.Unavailable):
        found.authorization()


def test_a_kubeconfig_with_a_token_imports_no_official_library(server):
    code = "import sys; from kcover_portal.kube import live; live.from_kubeconfig(sys.argv[1]).get_node('gpu-1')"
    shown = "; print(sum(name.startswith('kubernetes') for name in sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code + shown, written.kubeconfig(server.url)], capture_output=True, text=True
    )
    assert ended.stdout.strip() == "0", ended.stderr
