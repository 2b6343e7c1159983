"""The demo's button, against a simulator that listens."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.portal.rescue.world import World


@pytest.fixture
def simulator(settings) -> Iterator[list[dict]]:
    """What was asked of it, in order."""
    heard: list[dict] = []

    class Faults(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append({"path": self.path, **json.loads(self.rfile.read(int(self.headers["Content-Length"])))})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Faults)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    settings.KCOVER_DEMO_URL = f"http://127.0.0.1:{server.server_port}"
    yield heard
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_demo_fault_is_injected_into_the_named_node(person, world: World, simulator):
    response = person("operator").post("/demo/faults/", {"code": "79", "node": "gpu-1", "gpu": "3"})
    assert response.url == "/nodes/c1/gpu-1/"
    assert simulator == [{"path": "/sim/faults", "node": "gpu-1", "kind": "xid", "code": 79, "gpu": 3}]


def test_a_demo_fault_without_a_node_is_injected_into_a_healthy_one(person, world: World, simulator):
    world.kube.add_node("gpu-2", gpus=8)
    world.sync()
    world.fault(95, node="gpu-1")
    person("operator").post("/demo/faults/", {"code": "62", "node": "", "gpu": ""})
    assert [(one["node"], one["code"]) for one in simulator] == [("gpu-2", 62)]
    assert 0 <= simulator[0]["gpu"] < 8


def test_an_unknown_node_is_reported_and_a_viewer_is_refused(person, world: World, simulator):
    response = person("operator").post("/demo/faults/", {"code": "62", "node": "gpu-9"}, follow=True)
    assert "Unknown node" in response.content.decode()
    assert person("viewer").post("/demo/faults/", {"code": "62", "node": "gpu-1"}).status_code == 302
    assert simulator == []


def test_an_unreachable_simulator_is_reported(person, world: World, settings):
    settings.KCOVER_DEMO_URL = "http://127.0.0.1:1"
    response = person("operator").post("/demo/faults/", {"code": "62", "node": "gpu-1"}, follow=True)
    assert "The simulator rejected the fault" in response.content.decode()


def test_without_a_simulator_there_is_no_button(person, world: World, settings):
    settings.KCOVER_DEMO_URL = ""
    client = person("operator")
    assert client.post("/demo/faults/", {"code": "62"}).status_code == 404
    assert "/demo/faults/" not in client.get("/").content.decode()
