"""The probe of kubelet and container runtime, against servers of the test."""

import http.server
import socket
import threading

import pytest

from agents.probes.host import kubelet
from tests.agents.probe_run import ProbeRun, write


@pytest.fixture
def healthz():
    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_GET(self):
            self.send_response(Handler.status)
            self.end_headers()
            self.wfile.write(b"ok" if Handler.status == 200 else b"[-]syncloop failed")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield Handler, server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def test_kubelet_and_runtime(healthz, tmp_path):
    handler, address = healthz
    runtime = tmp_path / "containerd.sock"
    probe = kubelet.KubeletProbe(address=address, folder=tmp_path, runtimes=(runtime, tmp_path / "crio.sock"))
    probe_run = ProbeRun(probe)
    assert probe_run.all() == []  # no kubelet here
    write(tmp_path, **{"config.yaml": ""})
    assert probe_run.all() == [("kubelet", "", "pass")]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runtime))
        listener.listen()
        assert probe_run.all() == [("kubelet", "", "pass"), ("container_runtime", "containerd", "pass")]
    assert probe_run.bad() == [("container_runtime", "containerd", "fail", False)]
    handler.status = 500
    assert probe_run.observe()[0].check.message == "500 [-]syncloop failed"


def test_a_kubelet_that_is_gone(tmp_path):
    write(tmp_path, **{"config.yaml": ""})
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = bound.getsockname()
        (found,) = ProbeRun(kubelet.KubeletProbe(address=address, folder=tmp_path, runtimes=())).observe()
    assert (found.check.status, found.is_fault) == ("fail", False)
    assert "refused" in found.check.message
