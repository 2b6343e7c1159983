"""Authentication of the live client: kubeconfigs, certificates, tokens that expire, proxies."""

import base64
import json
import ssl
import subprocess
import sys
import tempfile
import traceback

import pytest

from kcover_portal.kube import diagnosis, kubeconfig_rules, live, pasted_kubeconfig, port
from tests.contract import scripted

NODE = {"metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "5"}}


def kubeconfig(server, *, user=None, **cluster):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("first", "second")],
        "current-context": "first",
    }
    return json.dumps(config, indent=1)


@pytest.fixture
def server():
    with scripted.serve(lambda request: request.reply(200, NODE)) as made:
        yield made


def _authorizations(server):
    return [headers.get("Authorization") for _, _, headers, _ in server.requests]


@pytest.mark.parametrize("as_path", [True, False])
@pytest.mark.parametrize("context", [None, "second"])
def test_a_kubeconfig_by_path_or_text(server, tmp_path, as_path, context):
    text = kubeconfig(server.url)
    path = tmp_path / "config"
    path.write_text(text)
    live.from_kubeconfig(str(path) if as_path else text, context=context).get_node("gpu-1")
    assert _authorizations(server) == ["Bearer secret"]


@pytest.mark.parametrize(
    "text",
    [
        "/nowhere/config",
        "a: b\n",
        "\n",
        "{not: [yaml\n",
        "[" * 100_000,
        "a: " + "[" * 33 + "]" * 33,
        "- 1\n",
        kubeconfig("https://x", user={"client-certificate": "/no"}),
        kubeconfig("https://x", user={"auth-provider": {"name": "gcp"}}),
    ],
)
def test_an_invalid_kubeconfig_is_refused(text):
    with pytest.raises(port.RefusedByServer, match="kubeconfig"):
        live.from_kubeconfig(text)


@pytest.mark.parametrize("entry", ["exec: {command: *l29}", "tokenFile: *l29", "client-key: *l29"])
def test_aliases_that_would_fill_the_memory_are_not_quoted(entry):
    lists = "".join(f"l{n}: &l{n} [*l{n - 1}, *l{n - 1}]\n" for n in range(1, 30))
    with pytest.raises(port.RefusedByServer, match="not text") as caught:
        kubeconfig_rules.check(f"l0: &l0 x\n{lists}users: [{{user: {{{entry}}}}}]\n")
    assert len(str(caught.value)) < 300


def test_no_such_context():
    with pytest.raises(port.RefusedByServer, match="nobody"):
        live.from_kubeconfig(kubeconfig("https://127.0.0.1:1"), context="nobody")


def test_not_in_a_cluster(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(port.RefusedByServer):
        live.in_cluster()


def test_a_credential_plug_in_runs_again_when_its_token_expires(server, tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "    'status': {'token': f'token-{number}', 'expirationTimestamp': '2020-01-01T00:00:00Z'}}))\n"
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    cluster = live.from_kubeconfig(kubeconfig(server.url, user=user))
    cluster.get_node("gpu-1")
    cluster.get_node("gpu-1")
    assert _authorizations(server) == ["Bearer token-2", "Bearer token-3"]


def test_a_token_file_that_was_rotated_is_read_again_after_a_401(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    def answer(request):
        good = request.headers["Authorization"] == "Bearer new"
        request.reply(200 if good else 401, NODE if good else {"code": 401, "message": "Unauthorized"})

    with scripted.serve(answer) as server:
        cluster = live.from_kubeconfig(kubeconfig(server.url, user={"tokenFile": str(token)}))
        token.write_text("new")
        with pytest.raises(port.Unavailable):
            cluster.get_node("gpu-1")
        assert cluster.get_node("gpu-1").name == "gpu-1"


# proxies


def test_a_proxy_from_the_environment_and_its_exceptions(server, monkeypatch):
    for name in (
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    live.from_kubeconfig(kubeconfig(server.url)).get_node("gpu-1")
    monkeypatch.setenv("http_proxy", server.url)
    live.from_kubeconfig(kubeconfig("http://api.invalid")).get_node("gpu-1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    live.from_kubeconfig(kubeconfig(server.url)).get_node("gpu-1")
    assert server.paths == ["/api/v1/nodes/gpu-1", "http://api.invalid/api/v1/nodes/gpu-1", "/api/v1/nodes/gpu-1"]


@pytest.mark.parametrize("user", [None, {"username": "a", "password": "b"}])
def test_the_proxy_of_a_kubeconfig(server, monkeypatch, user):
    """It goes before that of the environment. ``user``: with embedded credentials, and by the official loader."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    proxy = server.url.replace("http://", "http://me:s%40me@")
    live.from_kubeconfig(kubeconfig("http://api.invalid", user=user, **{"proxy-url": proxy})).get_node("gpu-1")
    assert server.paths == ["http://api.invalid/api/v1/nodes/gpu-1"]
    [(_, _, headers, _)] = server.requests
    assert headers["proxy-authorization"] == "Basic " + base64.b64encode(b"me:s@me").decode()


@pytest.mark.parametrize("user", [None, {"username": "a", "password": "b"}])
def test_the_proxy_of_a_pasted_kubeconfig_is_refused(server, user):
    text = kubeconfig("http://api.invalid", user=user, **{"proxy-url": server.url})
    with pytest.raises(port.RefusedByServer, match="proxy-url"):
        live.from_kubeconfig(text, resolve=lambda host: [host]).get_node("gpu-1")
    assert server.paths == []


# TLS


def _certificate(folder, name):
    key, cert = folder / f"{name}.key", folder / f"{name}.crt"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert]
    subprocess.run([*make, *subject], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return {name: _certificate(folder, name) for name in ("server", "client", "stranger")}


@pytest.fixture
def tls_server(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates["server"])
    context.load_verify_locations(certificates["client"][0])
    context.verify_mode = ssl.CERT_REQUIRED
    with scripted.serve(lambda request: request.reply(200, NODE), tls=context) as made:
        yield made


def data(path):
    return base64.b64encode(path.read_bytes()).decode()


def tls_user(certificates):
    cert, key = certificates["client"]
    return {"client-certificate-data": data(cert), "client-key-data": data(key)}


def test_certificates_in_a_kubeconfig(tls_server, certificates):
    authority = {"certificate-authority-data": data(certificates["server"][0])}
    text = kubeconfig(tls_server.url, user=tls_user(certificates), **authority)
    assert live.from_kubeconfig(text).get_node("gpu-1").name == "gpu-1"


def test_a_server_with_an_untrusted_certificate_receives_no_request(tls_server, certificates):
    authority = {"certificate-authority-data": data(certificates["stranger"][0])}
    cluster = live.from_kubeconfig(kubeconfig(tls_server.url, user=tls_user(certificates), **authority))
    with pytest.raises(port.Unavailable) as caught:
        cluster.delete_pod("ns", "p", uid="u")
    assert not caught.value.ambiguous
    assert tls_server.requests == []


TWO_CONNECTIONS = """
import logging, sys
from kcover_portal.kube import live
logging.basicConfig(format="%(name)s %(message)s")
for _ in range(2):
    print(live.from_kubeconfig(sys.argv[1]).get_node("gpu-1").name)
"""


def test_a_certificate_that_is_not_checked_is_one_log_line(tls_server, certificates, tmp_path):
    path = tmp_path / "kubeconfig"
    user = tls_user(certificates)
    path.write_text(kubeconfig(tls_server.url, user=user, **{"insecure-skip-tls-verify": True}), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-W", "default", "-c", TWO_CONNECTIONS, path], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == ["gpu-1", "gpu-1"]
    (line,) = ended.stderr.splitlines()
    assert line.startswith("kcover_portal.kube.live ")
    assert tls_server.url in line


def test_only_the_checked_addresses_of_a_server_are_called(server) -> None:
    """A later answer of the resolver (DNS rebinding) has no effect: here the name does not exist at all."""
    asked = []

    def resolve(host: str, number: int | None) -> list[str]:
        asked.append((host, number))
        return ["127.0.0.2", "127.0.0.1"]  # nothing listens at the first one

    number = server.url.rpartition(":")[2]
    text = kubeconfig(f"http://api.invalid:{number}")
    cluster = live.from_kubeconfig(text, resolve=resolve)
    assert cluster.get_node("gpu-1").name == "gpu-1"
    assert live.on_trial(text, resolve=resolve).get_node("gpu-1").name == "gpu-1"
    assert set(asked) == {("api.invalid", int(number))}


@pytest.mark.parametrize("token", ["s3cret\n", "s3crét中"])
def test_a_token_that_no_header_carries_is_in_no_error(server, token) -> None:
    text = kubeconfig(server.url, user={"token": token})
    cluster = live.on_trial(text, resolve=lambda host, number: ["127.0.0.1"])
    with pytest.raises(port.Unavailable) as refused:
        cluster.get_node("gpu-1")
    assert "s3cr" not in "".join(traceback.format_exception(refused.value))
    assert diagnosis.of(refused.value).code == "api_request_unsendable"
    assert server.requests == []


def test_only_the_value_true_skips_the_check_of_a_certificate() -> None:
    for given, mode in ((True, ssl.CERT_NONE), ("false", ssl.CERT_REQUIRED), ("true", ssl.CERT_REQUIRED)):
        text = kubeconfig("https://127.0.0.1:1", **{"insecure-skip-tls-verify": given})
        made = pasted_kubeconfig.way_in(text, resolve=lambda host, number: ["127.0.0.1"])
        assert made.tls is not None
        assert made.tls.verify_mode == mode


def test_a_certificate_is_compared_with_the_name_and_no_file_of_a_pasted_key_stays(
    tls_server, certificates, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    number = tls_server.url.rpartition(":")[2]
    authority = {"certificate-authority-data": data(certificates["server"][0])}
    for host, reached in (("127.0.0.1", True), ("other.invalid", False)):
        text = kubeconfig(f"https://{host}:{number}", user=tls_user(certificates), **authority)
        cluster = live.on_trial(text, resolve=lambda host, number: ["127.0.0.1"])
        if reached:
            assert cluster.get_node("gpu-1").name == "gpu-1"
        else:
            with pytest.raises(port.Unavailable) as refused:
                cluster.get_node("gpu-1")
            assert diagnosis.of(refused.value).code == "cluster_tls_failed"
    assert list(tmp_path.iterdir()) == []
