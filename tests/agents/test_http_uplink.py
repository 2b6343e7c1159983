"""The uplink to the portal, against a real HTTP server."""

import http.client
import json
import socket
import ssl
import stat
import subprocess
import threading
import time
from datetime import UTC, datetime

import pytest

from agents.host import store
from agents.uplink import credential, protocol
from agents.uplink.http import HttpUplink
from agents.uplink.protocol import PortalFailed, ReportDeferred, ReportMalformed, UplinkError
from agents.uplink.trust import TrustStore, hashed_certificates
from kcover import wire
from kcover.faults.fault import Command, Fault
from tests.waiting import HANG_SECONDS

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
BATCH = "3f1c9d9e-0a1b-4c2d-8e3f-000000000001"


def body(*, faults=1):
    fault = Fault(kind="xid", code=79, message="NVRM: Xid")
    report = wire.Report(node="gpu-1", boot_id="b", batch_id=BATCH, sent_at=NOW, faults=(fault,) * faults)
    return json.dumps(wire.encode(report)).encode()


class Token:
    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value


@pytest.fixture
def connect():
    opened = []

    def connect(url, *, token="kca_x", keep=None, clock=lambda: NOW, **more):
        agent = HttpUplink(
            url=url,
            node="gpu-1",
            token=token if callable(token) else Token(token),
            store=store.MemoryStore() if keep is None else keep,
            clock=clock,
            **more,
        )
        opened.append(agent)
        return agent

    yield connect
    for agent in opened:
        agent.close()


def test_a_report_small_and_large(connect, portal):
    agent = connect(portal.url)
    assert agent.post_report(body()).accepted == 1
    assert agent.post_report(body(faults=500)).accepted == 500  # compressed
    assert portal.bearers == ["kca_x"] * 2


@pytest.mark.parametrize(
    ("status", "headers", "kind", "retry_after"),
    [
        (400, {}, ReportMalformed, None),
        (401, {}, UplinkError, None),
        (403, {}, ReportDeferred, None),
        (413, {}, ReportDeferred, None),
        (429, {"Retry-After": "7"}, UplinkError, 7.0),
        (503, {"Retry-After": "Sat, 21 Nov 2026 08:00:30 GMT"}, UplinkError, 30.0),
        (500, {"Retry-After": "soon"}, PortalFailed, None),
        (503, {"Retry-After": "1e9"}, UplinkError, protocol.MAX_RETRY_AFTER),
        (302, {"Location": "http://elsewhere"}, UplinkError, None),
    ],
)
def test_each_response_maps_to_its_error(connect, portal, status, headers, kind, retry_after):
    portal.answers = [(status, headers)]
    agent = connect(portal.url)
    with pytest.raises(UplinkError) as raised:
        agent.post_report(body())
    assert (type(raised.value), raised.value.retry_after) == (kind, retry_after)
    assert agent.post_report(body()).accepted == 1


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", b'{"accepted": "x"}'])
def test_an_unreadable_answer_keeps_the_report(answer):
    with pytest.raises(UplinkError, match="cannot be read"):
        protocol.parse_answer(202, {}, answer, now=NOW)


def test_connections_are_kept_alive_and_opened_again(connect):
    """A server that closes after each answer without saying so, as one does whose keep-alive time ran out."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def serve(answers_each):
        for count in answers_each:
            peer, _ = listener.accept()
            accepted.append(peer)
            with peer, peer.makefile("rb") as stream:
                for _ in range(count):
                    http.client.parse_headers(_after_request_line(stream))
                    stream.read(len(body()))
                    peer.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}")

    def _after_request_line(stream):
        stream.readline()
        return stream

    thread = threading.Thread(target=serve, args=([2, 1],))
    thread.start()
    agent = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
    for _ in range(3):
        agent.post_report(body())
    thread.join()
    listener.close()
    assert len(accepted) == 2


def test_a_refused_connection_and_an_unknown_host_are_uplink_errors(connect):
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(UplinkError, match="refused"):
            connect(f"http://127.0.0.1:{bound.getsockname()[1]}").post_report(body())
    with pytest.raises(UplinkError, match="gaierror"):
        connect("http://nobody.invalid").post_report(body())


def test_a_portal_that_never_answers(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = connect(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2)
        with pytest.raises(UplinkError, match="TimeoutError"):
            agent.post_report(body())


def test_closing_ends_a_pending_call(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        closer = threading.Timer(0.2, agent.close)
        closer.start()
        started = time.monotonic()
        with pytest.raises(UplinkError):
            agent.poll_commands(wait=4 * HANG_SECONDS)
        assert time.monotonic() - started < HANG_SECONDS
        closer.join()


def test_commands_are_polled_for(connect, portal):
    agent = connect(portal.url)
    assert agent.poll_commands(wait=0) == ()
    command = Command(id="c1", kind="reboot", args={"boot_id": "b"}, created_at=NOW, expires_at=NOW)
    portal.commands = [command]
    assert agent.poll_commands(wait=30) == (command,)


@pytest.mark.parametrize("peers", ["10.0.0.2", None, [1], {"a": 1}])
def test_peers_are_a_list_of_addresses(connect, portal, peers):
    agent = connect(portal.url)
    assert agent.fetch_peers() == ("10.0.0.2",)
    portal.peers = peers
    with pytest.raises(UplinkError, match="peers"):
        agent.fetch_peers()


def test_enrolling_once_and_keeping_the_token(connect, portal, tmp_path):
    keep = store.FolderStore(tmp_path / "spool")
    agent = connect(portal.url, token="kce_all", keep=keep)
    agent.post_report(body())
    agent.poll_commands(wait=0)
    connect(portal.url, token="kce_all", keep=keep).post_report(body())  # after a restart
    assert portal.enrolled == [("gpu-1", "kce_all")]
    assert portal.bearers == ["kca_1", "kca_1"]
    path = tmp_path / "spool" / credential.CREDENTIAL_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keep.close()


def test_enrolling_again_when_the_token_is_no_longer_taken(connect, portal):
    keep = store.MemoryStore()
    agent = connect(portal.url, token="kce_all", keep=keep)
    agent.post_report(body())
    portal.tokens = {"kca_2"}
    assert agent.post_report(body()).accepted == 1
    assert portal.bearers == ["kca_1", "kca_1", "kca_2"]
    assert json.loads(keep.read(credential.CREDENTIAL_FILE))["token"] == "kca_2"


def test_inv_56_the_key_of_an_enrolment_stays_until_an_answer_arrives(connect, portal):
    keep = store.MemoryStore()
    agent = connect(portal.url, token="kce_all", keep=keep)
    portal.cut = 3  # a fresh connection is not tried twice
    for _ in range(3):
        with pytest.raises(UplinkError, match="enrol"):
            agent.post_report(body())
    agent.post_report(body())
    portal.tokens = {"kca_5"}  # the credential is refused: another enrolment
    agent.post_report(body())
    assert len(portal.keys) == 5
    assert len(set(portal.keys[:4])) == 1
    assert portal.keys[4] not in (None, portal.keys[0])


def test_a_refusal_is_logged_by_its_code_and_detail(connect, portal):
    problem = {"title": "Too many", "code": "node_enrolled_often", "detail": "Wait.", "params": {"x": "y" * 900}}
    portal.post = lambda *_: (429, {"Retry-After": "77"}, problem)
    with pytest.raises(UplinkError) as raised:
        connect(portal.url, token="kce_all").post_report(body())
    assert str(raised.value) == "enrolment: 429 node_enrolled_often: Wait."
    assert raised.value.retry_after == 77.0


def test_a_refused_enrolment_drops_no_report(connect, portal):
    portal.post = lambda *_: (400, {}, {"detail": "no such node"})
    with pytest.raises(UplinkError, match="enrolment: 400") as raised:
        connect(portal.url, token="kce_all").post_report(body())
    assert type(raised.value) is UplinkError


def test_a_token_of_another_node_or_damaged_is_not_used(connect, portal):
    for content in (b'{"node": "gpu-2", "token": "kca_9"}', b"{", b"[]"):
        keep = store.MemoryStore()
        keep.write(credential.CREDENTIAL_FILE, content)
        connect(portal.url, token="kce_all", keep=keep).post_report(body())
    assert portal.bearers == ["kca_1", "kca_2", "kca_3"]


def test_a_rotated_token_is_used_at_once(connect, portal):
    token = Token("kca_a")
    agent = connect(portal.url, token=token)
    agent.post_report(body())
    token.value = "kca_b"
    agent.post_report(body())
    assert portal.bearers == ["kca_a", "kca_b"]


def test_the_cluster_is_named_when_wanted(connect, portal):
    seen = []
    portal.post = lambda path, headers, body: seen.append(headers.get("X-Kcover-Cluster")) or (202, {}, {})
    connect(portal.url, cluster="east").post_report(body())
    connect(portal.url).post_report(body())
    assert seen == ["east", None]


def test_tls_with_our_own_authority(connect, portal, authority):
    assert connect(portal.url, ca_file=authority).post_report(body()).accepted == 1
    with pytest.raises(UplinkError, match="certificate verify failed"):
        connect(portal.url).post_report(body())


def test_certificates_of_the_system_are_looked_up_one_by_one(authority, portal, connect, tmp_path):
    folder = tmp_path / "certs"
    folder.mkdir()
    by_hash = subprocess.run(("openssl", "x509", "-hash", "-noout", "-in", authority), capture_output=True, text=True)
    (folder / f"{by_hash.stdout.strip()}.0").write_bytes(authority.read_bytes())
    trust = TrustStore(hashed_folder=folder)
    assert connect(portal.url, trust=trust).post_report(body()).accepted == 1
    assert len(trust.context.get_ca_certs()) == 1
    assert not trust.may_accept_after(OSError("refused"))
    assert trust.may_accept_after(ssl.SSLCertVerificationError())
    assert not trust.may_accept_after(ssl.SSLCertVerificationError())


def test_a_certificate_that_is_in_the_bundle_alone_is_believed(authority, portal, connect, tmp_path, monkeypatch):
    folder = tmp_path / "certs"
    folder.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    agent = connect(portal.url, trust=TrustStore(hashed_folder=folder))
    assert agent.post_report(body()).accepted == 1
    assert agent.poll_commands(wait=0) == ()


def test_the_systems_certificate_folder_is_used_when_no_other_is_set(monkeypatch, tmp_path):
    paths = ssl.get_default_verify_paths()
    monkeypatch.setenv(paths.openssl_cafile_env, str(tmp_path / "ca.pem"))
    assert hashed_certificates() is None
    monkeypatch.delenv(paths.openssl_cafile_env)
    monkeypatch.delenv(paths.openssl_capath_env, raising=False)
    paths = paths._replace(capath=str(tmp_path))
    assert hashed_certificates(paths) is None  # a folder, but not by hash
    (tmp_path / "0a1b2c3d.0").touch()
    assert hashed_certificates(paths) == tmp_path


def test_a_service_accounts_token_is_sent_unchanged_and_read_again(connect, portal):
    token = Token("eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJrIn0.c2ln")
    agent = connect(portal.url, token=token, cluster="east")
    agent.post_report(body())
    token.value = "eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJsIn0.c2ln"  # the kubelet has written another one
    agent.post_report(body())
    assert portal.bearers == ["eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJrIn0.c2ln", token.value]
    assert portal.enrolled == []


def test_a_token_rotated_in_mid_call_is_tried_once_more(connect, portal):
    values = iter(["eyJ.old.x", *["eyJ.new.x"] * 5])
    portal.tokens = {"eyJ.new.x"}
    agent = connect(portal.url, token=lambda: next(values))
    assert agent.post_report(body()).accepted == 1
    assert portal.bearers == ["eyJ.old.x", "eyJ.new.x"]


def test_an_unreadable_token_keeps_the_report(connect, portal, tmp_path):
    agent = connect(portal.url, token=(tmp_path / "token").read_text)
    with pytest.raises(UplinkError, match="the token cannot be read"):
        agent.post_report(body())
    (tmp_path / "token").write_text("kca_x")
    assert agent.post_report(body()).accepted == 1
