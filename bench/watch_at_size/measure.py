"""Measures the watch process on 10,000 nodes and 100,000 pods: first list, memory, and interruptions."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import scene
from bench.ingest.server import cpu
from bench.result import Result, scaled
from simulator.kubeapi import kubeconfig
from tests import servers
from tests.story import product as products

NODES, PODS = 10_000, 100_000
CHURN_SECONDS = 60.0
DOWN_SECONDS = 5.0  # from kill -9 of the API server to its start
MIN_DOWN_SECONDS = 1.0
CHURN = {"Pod": 200, "Node": 50}  # changes a second
WAIT_SECONDS = 600.0
LISTED = "SELECT count(*) FROM fleet_node WHERE in_cluster"
CORDONED = "SELECT count(*) FROM fleet_node WHERE name = %s AND unschedulable"
NODE_PATH, POD_PATH = "/api/v1/nodes", "/api/v1/pods"


class LargeCluster:
    """The API server's process. ``token`` is the one that it accepts; its file is what the portal reads."""

    def __init__(self, folder: Path, *, nodes: int, pods: int) -> None:
        self._kept = servers.reserved_port()
        self.port, self.token_file, self._folder = self._kept.getsockname()[1], folder / "token", folder
        self.url = f"http://127.0.0.1:{self.port}"
        self._size = ("--nodes", str(nodes), "--pods", str(pods))
        self._process: subprocess.Popen[bytes] | None = None
        self.token = ""

    def start(self, token: str) -> None:
        """Returns when it answers."""
        self.token = token
        self.token_file.write_text(token, encoding="utf-8")
        command = (sys.executable, "-m", "bench.watch_at_size.cluster", *self._size)
        with (self._folder / "cluster.log").open("ab") as log:
            self._process = subprocess.Popen(
                (*command, "--port", str(self.port), "--token-file", str(self.token_file)),
                cwd=products.ROOT,
                stdout=log,
                stderr=log,
            )
        until(self._answers, "the API server to answer")

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Ends it for good."""
        self.kill()
        self._kept.close()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer to an administrator."""
        status, answer = products.call(
            method, self.url + path, body, token=self.token, headers=headers, timeout=WAIT_SECONDS
        )
        assert status < 300, (status, answer)
        return answer

    def cordon(self, node: str) -> None:
        """Marks the node as unschedulable."""
        merge = {"Content-Type": "application/merge-patch+json"}
        self.ask("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, **merge)

    def asked(self, verb: str, path: str, *, since: float) -> float | None:
        """The wall-clock time of the first request after ``since``; ``verb``: list or watch."""
        found = self.ask("GET", "/bench/requests")
        return next((at for how, where, at in found if (how, where) == (verb, path) and at > since), None)

    def _answers(self) -> bool:
        try:
            return products.call("GET", self.url + "/readyz", token=self.token)[0] == 200
        except OSError:
            return False


def measure(scale: float) -> Result:
    """Starts the watch alone: nothing else of the portal is needed to follow a cluster."""
    nodes, pods = scaled(NODES, scale, least=20), scaled(PODS, scale, least=200)
    with tempfile.TemporaryDirectory() as temporary, products.on_postgres(Path(temporary)) as product:
        folder = Path(temporary)
        cluster = LargeCluster(folder, nodes=nodes, pods=pods)
        try:
            cluster.start("the first token")
            _register(product, cluster, folder)
            down = scaled(DOWN_SECONDS, scale, least=MIN_DOWN_SECONDS)
            rows = list(_measured(product, cluster, nodes=nodes, seconds=CHURN_SECONDS * scale, down=down))
        finally:
            cluster.close()
    return Result(
        name="Watch at size",
        command="make bench ARGS=watch-at-size",
        conditions=f"{nodes:,} nodes (20 kB of JSON each) and {pods:,} pods (6 kB; four of five in jobs) on the "
        "simulated API server, which has a process of its own on the same machine. Only the process `watch` runs. "
        "Memory is the peak of its resident set until then. The load average of the machine was "
        f"{os.getloadavg()[1]:.0f} on {os.cpu_count()} cores.",
        rows=rows,
    )


def _register(product: products.Product, cluster: LargeCluster, folder: Path) -> None:
    """Adds the cluster with a kubeconfig that names the file of the token."""
    path = folder / "kubeconfig"
    kubeconfig.write(path, server=cluster.url, token="")  # nosec B106
    config = json.loads(path.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"tokenFile": str(cluster.token_file)}
    path.write_text(json.dumps(config), encoding="utf-8")
    product.environment["KCOVER_KUBECONFIG_COMMANDS"] = str(cluster.token_file)
    product.manage_all([["migrate", "--verbosity", "0"], ["cluster", "add", "big", "--kubeconfig", str(path)]])


def _measured(product: products.Product, cluster: LargeCluster, *, nodes: int, seconds: float, down: float) -> Any:
    began = time.time()
    product.start("watch")
    pid = product.processes["watch"].pid
    until(lambda: scene.ask(product, LISTED)[0][0] >= nodes, "the nodes to be listed")
    listed = time.time()
    pods = until(lambda: cluster.asked("watch", POD_PATH, since=began), "the pods to be listed")
    asked = {path: cluster.asked("list", path, since=began) or began for path in (NODE_PATH, POD_PATH)}
    yield "start of the process to its first request", f"{min(asked.values()) - began:.1f} s", ""
    yield "first list: request to all nodes in the database", f"{listed - asked[NODE_PATH]:.1f} s", "≤ 10 s"
    yield "lists of pods: first request to their watch", f"{pods - asked[POD_PATH]:.1f} s", ""
    yield "CPU of the process until then, its start included", f"{cpu(pid):.1f} s", ""
    yield "memory after the first lists", memory(pid), "≤ 500 MB"

    before = cpu(pid)
    cluster.ask("POST", "/bench/churn", {**CHURN, "seconds": seconds})
    rates = " and ".join(f"{count} {kind.lower()}s" for kind, count in CHURN.items())
    yield f"CPU while {rates} change a second", f"{(cpu(pid) - before) / seconds:.0%} of a core", ""
    yield "memory after that", memory(pid), "≤ 500 MB"

    began = time.time()
    cluster.ask("POST", "/bench/compact")
    yield "410 Gone on all watches: until a change is seen", _seen(product, cluster, "gpu-00001", began), ""
    yield "the same, until pods are watched again", _watched(cluster, began), ""
    yield "memory after that", memory(pid), "≤ 500 MB"

    cluster.kill()
    time.sleep(down)
    cluster.start("the second token")
    began = time.time()
    yield (
        "API server killed, back with another token: until a change is seen",
        _seen(product, cluster, "gpu-00002", began),
        "",
    )
    yield "the same, until pods are watched again", _watched(cluster, began), ""
    yield "memory after that", memory(pid), "≤ 500 MB"


def _seen(product: products.Product, cluster: LargeCluster, node: str, began: float) -> str:
    cluster.cordon(node)
    until(lambda: scene.ask(product, CORDONED, node)[0][0], f"{node} to be seen as cordoned")
    return f"{time.time() - began:.1f} s"


def _watched(cluster: LargeCluster, began: float) -> str:
    again = until(lambda: cluster.asked("watch", POD_PATH, since=began), "the pods to be watched")
    return f"{again - began:.1f} s"


def memory(pid: int) -> str:
    """The peak of the resident set, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (peak,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return f"{peak * 1024 / 1e6:.0f} MB"


def until(look: Callable[[], Any], what: str) -> Any:
    """Looks until there is something. Raises RuntimeError after WAIT_SECONDS."""
    end = time.monotonic() + WAIT_SECONDS
    while not (found := look()):
        if time.monotonic() > end:
            raise RuntimeError(f"waited for {what}")
        time.sleep(0.1)
    return found
