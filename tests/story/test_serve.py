"""``make serve``: everything of a production installation behind one port, from one command."""

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from websockets.sync import client as websocket

from tests import servers
from tests.story import product as products
from tests.story.person import Person
from tests.story.product import ROOT, Product, call
from tests.waiting import HANG_SECONDS

POSTGRES = os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres")
pytestmark = pytest.mark.skipif(not POSTGRES, reason="needs the PostgreSQL that `make test` starts")

HEAL = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata:
  name: heal
spec:
  rules:
    - priority: 5
      errorCode: ["48", "62", "64"]
      actions:
        - name: cordon
        - name: drain
          attribute: {waittime: "20min"}
        - name: reboot
          attribute: {unCordon: "true"}
"""
SLOW_CLIENTS = 40  # more than the pages have threads
CHILDREN = {
    "web": "kcover_portal.operate.web_server",
    "live": "kcover_portal.asgi:application",
    "worker": "--quiet worker",
    "beat": "--quiet beat",
    "watch": "kcover_portal watch",
}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """One ``manage.py serve`` with a simulated cluster whose agents report through its port."""
    with products.on_postgres(tmp_path_factory.mktemp("serve"), one_command=True) as made:
        made.set_up(nodes=6, policies=HEAL)
        yield made


@pytest.fixture(scope="module")
def anna(product: Product) -> Person:
    """Anna, signed in."""
    person = Person(product)
    assert "Overview" in person.sign_in("anna", products.PASSWORD)
    return person


def test_a_console_page_and_its_assets_load(product: Product, anna: Person) -> None:
    page = anna.get("/")
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert assets
    for asset in assets:
        status, _ = call("GET", product.url + asset)
        assert status == 200, asset
    assert "gpu-0001" in anna.get("/nodes/")


def test_probes_and_documentation(product: Product) -> None:
    assert call("GET", product.url + "/healthz")[0] == 200
    product.wait(lambda: call("GET", product.url + "/readyz")[0] == 200, "the portal to be ready")
    status, found = call("GET", product.url + "/readyz")
    # Those of the set-up: the tests' installation has no key of its own, nor one of the engine.
    others = {name for name in found if not name.startswith(("audit log", "encryption key", "kubeconfig"))}
    assert (status, others) == (200, {"database", "broker", "sweep", "watch", "watch sim"})
    assert "kcover_sweep_age_seconds" in call("GET", product.url + "/metrics")[1]
    assert "openapi:" in call("GET", product.url + "/api/schema/", token=product.token)[1]
    assert "swagger" in call("GET", product.url + "/api/docs/", token=product.token)[1]
    status, problem = call("GET", product.url + "/api/v1/nowhere", token=product.token)
    assert (status, problem["status"]) == (404, 404)


def test_an_agent_enrols_reports_and_waits_for_commands(product: Product) -> None:
    secret = product.manage("token", "create", "--kind", "agent", "--cluster", "sim").strip()
    node = "not-in-the-cluster"
    status, enrolled = call("POST", product.url + "/api/v1/agent/enrol", {"node": node}, token=secret)
    assert status == 201
    body = report(node, 31)
    status, answer = call("POST", product.url + "/api/v1/agent/reports", body, token=enrolled["token"])
    assert (status, answer["accepted"]) == (202, 1)
    packed = gzip.compress(json.dumps(body).encode())
    headers = {"Content-Encoding": "gzip"}
    status, answer = call(
        "POST", product.url + "/api/v1/agent/reports", packed, token=enrolled["token"], headers=headers
    )
    assert (status, answer["duplicates"]) == (202, 1)
    began = time.monotonic()
    url = f"{product.url}/api/v1/agent/commands?node={node}&wait=1"
    assert call("GET", url, token=enrolled["token"]) == (200, {"commands": []})
    assert time.monotonic() - began >= 1


def test_a_fault_heals_while_a_page_listens(product: Product, anna: Person) -> None:
    address = f"ws://127.0.0.1:{product.port}/ws/pages"
    headers = {"Cookie": anna.cookies()}
    with websocket.connect(address, origin=product.url, additional_headers=headers) as page:
        assert json.loads(page.recv(timeout=HANG_SECONDS)) == {"t": "resync", "id": 0}
        product.inject("gpu-0001", 62)
        heard: set[str] = set()
        while not {"incident", "rescue", "node"} <= heard:
            heard.add(json.loads(page.recv(timeout=HANG_SECONDS))["t"])
    rescue = product.wait_rescue("gpu-0001", "succeeded")
    assert rescue["outcome"] == "healed"
    assert f"/rescues/{rescue['id']}/" in anna.get("/rescues/")


def test_bodies_in_chunks_arrive_whole(product: Product) -> None:
    body = HEAL.encode()
    headers = {"Authorization": f"Bearer {product.token}", "Content-Type": "application/yaml"}
    pieces = (body[start : start + 100] for start in range(0, len(body), 100))
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", product.port, timeout=HANG_SECONDS)) as connection:
        connection.request("POST", "/api/v1/policies/validate", pieces, headers, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["valid"]) == (200, True)


def test_only_clients_that_accept_gzip_get_a_compressed_response(product: Product) -> None:
    status, headers, plain = fetch(product, "GET", "/static/console/console.css")
    assert (status, headers.get("content-encoding")) == (200, None)
    assert len(headers.get_all("date")) == len(headers.get_all("server")) == 1
    status, headers, packed = fetch(product, "GET", "/static/console/console.css", {"Accept-Encoding": "gzip"})
    unpacked = gzip.decompress(packed) if headers.get("content-encoding") == "gzip" else packed
    assert unpacked == plain


def test_head_is_answered_without_a_body(product: Product) -> None:
    status, _, body = fetch(product, "HEAD", "/sign-in/")
    assert (status, body) == (200, b"")
    assert fetch(product, "GET", "/sign-in/")[0] == 200


@pytest.mark.parametrize("said", [True, False], ids=["its length said before", "in chunks"])
def test_a_body_that_is_too_large_is_refused(product: Product, said: bool) -> None:
    size = 64 * 1024 * 1024
    with socket.create_connection(("127.0.0.1", product.port), timeout=HANG_SECONDS) as line:
        framing = f"Content-Length: {size}" if said else "Transfer-Encoding: chunked"
        line.sendall(f"POST /api/v1/policies HTTP/1.1\r\nHost: portal\r\n{framing}\r\n\r\n".encode())
        sent = 0
        piece = b"x" * 65_536
        try:
            while sent < size:
                line.sendall(piece if said else b"10000\r\n" + piece + b"\r\n")
                sent += len(piece)
        except OSError:
            pass  # refused before all was sent
        answer = received(line)
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
    assert b"application/problem+json" in answer


def test_slow_clients_do_not_delay_other_requests(product: Product) -> None:
    lines = [socket.create_connection(("127.0.0.1", product.port), timeout=HANG_SECONDS) for _ in range(SLOW_CLIENTS)]
    try:
        for line in lines:
            line.sendall(b"POST /api/v1/policies HTTP/1.1\r\nHost: portal\r\nContent-Length: 100\r\n\r\nx")
        assert call("GET", product.url + "/sign-in/")[0] == 200
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize("name", CHILDREN)
def test_a_process_that_is_killed_is_started_again(product: Product, name: str) -> None:
    [before] = children(product, name)
    before.kill()

    def replaced() -> bool:
        return any(one.pid != before.pid for one in children(product, name))

    product.wait(replaced, f"{name} to be started again")
    # A client of a server that starts again waits, however busy the machine is; it is not refused.
    _, nodes = call("GET", product.url + "/api/v1/nodes", token=product.token, timeout=120)
    assert "gpu-0001" in json.dumps(nodes)
    product.wait(lambda: call("GET", product.url + "/readyz")[0] == 200, "the portal to be ready")
    assert f"{name} was ended by SIGKILL" in product.logs()
    code, node = 48, f"gpu-000{2 + list(CHILDREN).index(name)}"
    product.inject(node, code)
    product.wait_rescue(node, "succeeded")


# Ctrl-C is handled as SIGTERM is.
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_serve_ends_with_all_its_processes(product: Product, number: signal.Signals) -> None:
    product.start_processes()
    product.wait(lambda: all(children(product, name) for name in CHILDREN), "all processes")
    running = product.processes.pop("serve")
    everything = [psutil.Process(running.pid), *psutil.Process(running.pid).children(recursive=True)]
    running.send_signal(number)  # to it alone: what it started is its own business
    status = running.wait(timeout=HANG_SECONDS)
    _, left = psutil.wait_procs(everything, timeout=HANG_SECONDS)
    assert not left
    assert status == (0 if number != signal.SIGKILL else -signal.SIGKILL), product.logs()


def test_missing_settings_are_named(tmp_path: Path) -> None:
    status, said = serve({"KCOVER_DATABASE_URL": f"sqlite:///{tmp_path}/x.sqlite3"})
    assert status == 1
    assert "KCOVER_DATABASE_URL=postgres://" in said
    assert "KCOVER_REDIS_URL=redis://" in said
    assert "standalone" in said
    assert "Traceback" not in said


def test_a_database_that_does_not_answer_is_named() -> None:
    secret = "do-not-print"
    with servers.refusing_port() as port:
        nowhere = {"KCOVER_DATABASE_URL": f"postgres://kcover:{secret}@127.0.0.1:{port}/kcover"}
        status, said = serve({**nowhere, "KCOVER_REDIS_URL": "redis://127.0.0.1:1/0"})
    assert status == 1
    assert "KCOVER_DATABASE_URL" in said
    assert str(port) in said
    assert secret not in said
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        environment = {"KCOVER_DATABASE_URL": os.environ["KCOVER_DATABASE_URL"], "KCOVER_REDIS_URL": "redis://x/0"}
        status, said = serve({**environment, "PORT": str(port)})
        assert status == 1
        assert f"port {port} is in use; set PORT to another port" in said
    status, said = serve({**environment, "PORT": "eighty"})
    assert status == 2
    assert "'eighty' is not a port" in said


def children(product: Product, name: str) -> list[psutil.Process]:
    """The processes of that name that serve itself started."""
    found = []
    for one in psutil.Process(product.processes["serve"].pid).children():
        try:
            if CHILDREN[name] in " ".join(one.cmdline()) and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except psutil.Error:
            continue
    return found


def serve(environment: dict[str, str]) -> tuple[int, str]:
    """Runs serve until it ends by itself; its status and what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KCOVER_") and name != "PORT"}
    done = subprocess.run(
        [sys.executable, "manage.py", "serve"],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def report(node: str, code: int) -> dict[str, object]:
    """An agent's report of one Xid."""
    return {
        "version": 1,
        "node": node,
        "boot_id": "b1",
        "batch_id": str(uuid.uuid4()),
        "agent": "story",
        "sent_at": datetime.now(UTC).isoformat(),
        "faults": [{"kind": "xid", "code": code, "pci": "0000:4e:00", "message": "a line", "source": "kmsg"}],
        "checks": [],
    }


def fetch(
    product: Product, method: str, path: str, headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request that adds no headers of its own; status, headers, body."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", product.port, timeout=HANG_SECONDS)) as connection:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def received(line: socket.socket) -> bytes:
    """The head of an answer, or what arrives of it until the other side hangs up."""
    line.settimeout(HANG_SECONDS)
    head = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in head and (chunk := line.recv(65_536)):
            head += chunk
    return head
