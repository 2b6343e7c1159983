"""Real agents on nodes of the simulated cluster, for iperf's ring.

Each is a process of its own, with a tool that stands in for ``iperf3`` and really connects, over loopback addresses.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests import servers
from tests.story.product import ROOT, Product

# Told where it is and which loopback address stands for which node's. A server tells a client who it is, so that a rate
# says whose client reached whose server: 10 Gbit/s for the sender's number and 1 for the receiver's.
TOOL = """#!{python} -SE
import json, socket, sys

here, hosts = {here}, {hosts}
given = sys.argv[1:]
port = int(given[given.index("-p") + 1])
if "-s" in given:
    with socket.create_server((hosts[here], port)) as server:
        line, _ = server.accept()
        with line:
            line.sendall(bytes([list(hosts).index(here) + 1]))
            line.recv(1)
    rate = 1
else:
    try:
        with socket.create_connection((hosts[given[given.index("-c") + 1]], port), timeout=60) as line:
            rate = 10 * (list(hosts).index(here) + 1) + line.recv(1)[0]
    except OSError as error:
        print(json.dumps({{"error": f"unable to connect to server: {{error}}"}}))
        sys.exit(1)
print(json.dumps({{"end": {{"sum_received": {{"bits_per_second": rate * 1e9}}}}}}))
"""


@contextlib.contextmanager
def agents(product: Product, nodes: Sequence[str]) -> Iterator[None]:
    """The agents of these nodes, until the block is left; they enrol as users' agents do."""
    unique = servers.free_port()  # other tests run beside this one
    addresses = {one["name"]: one["address"] for one in product.get("/api/v1/nodes")["results"]}
    hosts = {addresses[name]: f"127.{unique >> 8}.{unique & 255}.{number}" for number, name in enumerate(nodes, 1)}
    running = [_agent(product, name, addresses[name], hosts) for name in nodes]
    try:
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _agent(product: Product, name: str, address: str, hosts: dict[str, str]) -> subprocess.Popen[bytes]:
    folder = product.folder / name
    tool = folder / "bin" / "iperf3"
    tool.parent.mkdir(parents=True)
    tool.write_text(TOOL.format(python=sys.executable, here=repr(address), hosts=json.dumps(hosts)))
    tool.chmod(0o755)
    (folder / "kern.log").touch()
    (folder / "boot_id").write_text(product.sim_node(name)["status"]["nodeInfo"]["bootID"])
    settings = {
        "NODE_NAME": name,
        "KCOVER_AGENT_URL": product.url,
        "KCOVER_AGENT_TOKEN_FILE": str(product.folder / "enrolment"),
        "KCOVER_AGENT_KMSG": str(folder / "kern.log"),
        "KCOVER_AGENT_BOOT_ID": str(folder / "boot_id"),
        "KCOVER_AGENT_SPOOL": str(folder / "spool"),
        "KCOVER_AGENT_CHECKS": "none",
        "KCOVER_AGENT_LISTEN": "none",
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
    }
    with (product.folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            (sys.executable, "-m", "agents"), cwd=ROOT, env=os.environ | settings, stdout=log, stderr=log
        )
