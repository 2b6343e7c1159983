"""Shared by measurements: act as agents, watch the API server, query the database."""

import asyncio
import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psycopg

from tests.story import product as products
from tests.story.product import Product

MAX_CONNECTIONS = 64  # of the clients
CORDON = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: cordon}
spec: {rules: [{priority: 10, errorCode: ["62"], actions: [{name: cordon}]}]}
"""

Json = dict[str, Any]
Key = Any  # identifies what a measurement observes; hashable


def working_nodes(product: Product) -> list[str]:
    """The schedulable nodes with GPUs, sorted. Spares are already cordoned."""
    return sorted(row["name"] for row in _nodes(product) if row["gpus"] and not row["cordoned"])


def boots(product: Product) -> dict[str, str]:
    """The boot id of each node for its reports; the portal cannot tell whether an unknown boot is over."""
    return {row["name"]: row["boot_id"] for row in _nodes(product)}


def _nodes(product: Product) -> Iterator[Json]:
    url = product.url + "/api/v1/nodes?page_size=500"
    while url:
        _, page = products.call("GET", url, token=product.token)
        yield from page["results"]
        url = page.get("next")


def tokens(product: Product, nodes: Collection[str]) -> dict[str, str]:
    """An agent token for each node, created by the ``token`` command."""
    listing = Path(product.folder) / "nodes"
    listing.write_text("\n".join(nodes))
    printed = product.manage("token", "create", "--kind", "agent", "--cluster", "sim", "--nodes", str(listing))
    return dict(line.split("\t") for line in printed.splitlines() if "\t" in line)


def fill(product: Product, nodes: int) -> None:
    """Creates the rows of a fleet with ``nodes`` nodes, in the cluster "big" (``bench.fleet_rows``)."""
    run_inside(product, "bench.fleet_rows", str(nodes))


def run_inside(product: Product, module: str, argument: str) -> str:
    """Runs a module with the environment of the product; returns its output.

    Raises RuntimeError with its error output if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, argument],
        cwd=products.ROOT,
        env=product.environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def report(node: str, faults: Sequence[Json], *, boot_id: str) -> bytes:
    """A report as an agent sends it."""
    body = {
        "version": 1,
        "node": node,
        "boot_id": boot_id,
        "batch_id": str(uuid.uuid4()),
        "agent": "bench",
        "sent_at": datetime.now(UTC).isoformat(),
        "faults": faults,
        "checks": [],
    }
    return json.dumps(body).encode()


def xid(code: int, **more: Any) -> Json:
    """A fault."""
    line = f"NVRM: Xid (PCI:0000:4e:00): {code}, pid='<unknown>', name=<unknown>, bench"
    return {"kind": "xid", "code": code, "pci": "0000:4e:00", "message": line, "source": "kmsg", **more}


def send(product: Product, reports: Sequence[tuple[str, bytes]], *, connections: int = MAX_CONNECTIONS) -> list[float]:
    """Sends reports (token, body) over ``connections`` connections; returns the wall-clock times of the answers."""
    return asyncio.run(_send(product.url + "/api/v1/agent/reports", reports, connections=connections))


async def _send(url: str, reports: Sequence[tuple[str, bytes]], *, connections: int) -> list[float]:
    answered: list[float] = []
    waiting = iter(reports)

    async def client(session: aiohttp.ClientSession) -> None:
        for token, body in waiting:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            while True:
                async with session.post(url, data=body, headers=headers) as answer:
                    text = await answer.text()
                if answer.status != 429 and answer.status < 500:  # an agent keeps the report and retries after these
                    break
                await asyncio.sleep(0.5)
            if answer.status != 202:
                raise RuntimeError(f"{answer.status} {text}")
            answered.append(time.time())

    limits = aiohttp.ClientTimeout(total=900)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limits) as session,
        asyncio.TaskGroup() as clients,
    ):
        for _ in range(min(connections, len(reports))):
            clients.create_task(client(session))
    return answered


class Watch:
    """Records when the API server first showed something. ``note`` returns a key for an event, or None."""

    def __init__(self, product: Product, path: str, note: Callable[[Json], Key | None]) -> None:
        self._note = note
        self._at: dict[Key, float] = {}
        self._new = threading.Condition()
        address = urlsplit(product.sim)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)
        token = product.sim_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection.request("GET", f"{path}?watch=true", headers=headers)
        self._stream = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, keys: Collection[Key], *, seconds: float) -> dict[Key, float]:
        """The wall-clock time at which each key was first seen. Raises RuntimeError if one was not seen in time."""
        with self._new:
            if not self._new.wait_for(lambda: all(key in self._at for key in keys), timeout=seconds):
                missing = [key for key in keys if key not in self._at]
                raise RuntimeError(f"{len(missing)} of {len(keys)} not seen within {seconds:.0f} s: {missing[:5]}")
            return {key: self._at[key] for key in keys}

    def noted(self) -> dict[Key, float]:
        """The times of all keys seen so far."""
        with self._new:
            return dict(self._at)

    def _read(self) -> None:
        """Reads until the API server ends."""
        with contextlib.closing(self._connection), self._stream, contextlib.suppress(ConnectionError):
            for line in self._stream:
                at = time.time()
                key = self._note(json.loads(line))
                if key is not None:
                    with self._new:
                        self._at.setdefault(key, at)
                        self._new.notify_all()


def cordoned(event: Json) -> str | None:
    """For ``Watch``: the name of an unschedulable node."""
    node = event["object"]
    return str(node["metadata"]["name"]) if node.get("spec", {}).get("unschedulable") else None


def ask(product: Product, query: str, *values: object) -> list[tuple[Any, ...]]:
    """The rows of a query on the database of the product."""
    with psycopg.connect(product.environment["KCOVER_DATABASE_URL"], autocommit=True) as connection:
        return connection.execute(query, values or None).fetchall()


def settled(product: Product, *, seconds: float) -> float:
    """Waits until no decision is due and no rescue is in progress; returns the wall-clock time."""
    left = """SELECT 'incident', id, code, decide_at::text FROM incidents_incident
            WHERE decide_at <= now() AND state = 'open'
        UNION ALL SELECT 'rescue', id, state, because::text FROM rescue_rescue WHERE state IN ('waiting', 'running')"""
    deadline = time.time() + seconds
    while rows := ask(product, left):
        if time.time() > deadline:
            raise RuntimeError(f"{len(rows)} were not finished after {seconds:.0f} s: {rows[:3]}\n{product.logs()}")
        time.sleep(0.1)
    return time.time()
