"""The client: keep-alive connections of one process, as cheap as Python allows, because it shares the cores.

``python -m bench.ingest.load`` reads its plan as JSON from standard input and prints its results as JSON.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import uvloop

from bench.ingest import reports


@dataclass(slots=True)
class LoadResult:
    """The results: responses by status, latencies in seconds, and acknowledged (node, serial) pairs."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    cut: int = 0
    seconds: float = 0.0


class Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time; ``done`` is called with the status of each response."""

    def __init__(self, done: Callable[["Connection", int], None], lost: Callable[["Connection"], None]) -> None:
        self._done, self._lost = done, lost
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self.subject: Any = None  # of the request in flight

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's transport does not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)

    def send(self, request: bytes, subject: Any) -> None:
        assert self._transport is not None
        self.subject = subject
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(body) >= length:
            self._buffer = body[length:]
            self._done(self, int(head[9:12]))


class Load:
    """Sends the reports of ``nodes`` identities over ``connections`` connections for ``seconds``."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan
        options = {"path": plan["path"], "scheme": plan["scheme"]}
        self._reporters = [reports.Reporter(number, **options) for number in range(plan["nodes"])]
        self._serials = [plan.get("serial", 0)] * plan["nodes"]
        self._next = 0
        self._idle: list[Connection] = []
        self._found = LoadResult()
        self._end = 0.0
        self._sent_at = b""
        self._none_in_flight = asyncio.Event()
        self._over = False
        self._in_flight = 0

    async def run(self) -> LoadResult:
        """Runs the plan. By default a closed loop: every connection sends as soon as it has a response.

        ``rate``: open loop with so many reports per second; latencies count from when a report was due. ``each``: one
        report of every node, however long that takes. ``note``: record which reports were acknowledged. ``says``: the
        content of the reports, "all" by default (``reports.Reporter``).
        """
        for _ in range(self._plan["connections"]):
            await self._connect()
        print("connected", flush=True)
        start = time.perf_counter()
        self._end = start + (3600.0 if self._plan.get("each") else self._plan["seconds"])
        if self._plan.get("rate"):
            await self._pace(start)
        else:
            while self._idle and not self._all_reported():
                self._send(self._idle.pop(), time.perf_counter())
        self._over = True
        if self._in_flight:
            await self._none_in_flight.wait()
        self._found.seconds = time.perf_counter() - start
        return self._found

    async def _connect(self) -> None:
        def make() -> Connection:
            return Connection(self._answered, self._cut)

        _, connection = await asyncio.get_running_loop().create_connection(make, "127.0.0.1", self._plan["port"])
        self._idle.append(connection)

    async def _pace(self, start: float) -> None:
        sent = 0
        while (now := time.perf_counter()) < self._end:
            due = int((now - start) * self._plan["rate"])
            while sent < due and self._idle:
                self._send(self._idle.pop(), start + sent / self._plan["rate"])
                sent += 1
            await asyncio.sleep(0.001)

    def _send(self, connection: Connection, due: float) -> None:
        number = self._next % len(self._reporters)
        self._next += 1
        self._serials[number] += 1
        serial = self._serials[number]
        if self._in_flight % 16 == 0:
            self._sent_at = reports.moment(datetime.now(UTC))
        self._in_flight += 1
        sent_at = self._sent_at or reports.moment(datetime.now(UTC))
        says = self._plan.get("says", "all")
        connection.send(self._reporters[number].render(serial, sent_at=sent_at, says=says), (due, number, serial))

    def _answered(self, connection: Connection, status: int) -> None:
        due, number, serial = connection.subject
        connection.subject = None
        now = time.perf_counter()
        self._completed()
        self._found.statuses[status] += 1
        self._found.latencies.append(now - due)
        if self._plan.get("note") and status == 202:
            self._found.acknowledged.append((number, serial))
        if self._plan.get("rate"):
            self._idle.append(connection)
        elif now < self._end and not self._all_reported():
            self._send(connection, now)

    def _all_reported(self) -> bool:
        """Return whether every node has reported once, with ``each``."""
        return bool(self._plan.get("each")) and self._next >= len(self._reporters)

    def _completed(self) -> None:
        self._in_flight -= 1
        if self._over and not self._in_flight:
            self._none_in_flight.set()

    def _cut(self, connection: Connection) -> None:
        if connection.subject is not None:
            self._completed()
            self._found.cut += 1
        elif connection in self._idle:
            self._idle.remove(connection)


def start(**plan: Any) -> "subprocess.Popen[str]":
    """Starts the client as a separate process; returns when it is connected."""
    client = subprocess.Popen(
        [sys.executable, "-m", "bench.ingest.load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert client.stdin is not None
    client.stdin.write(json.dumps({"path": "/api/v1/agent/reports", "scheme": "Bearer", **plan}))
    client.stdin.close()
    assert client.stdout is not None
    if client.stdout.readline() != "connected\n":
        raise RuntimeError("the client could not connect")
    return client


def finish(client: "subprocess.Popen[str]") -> LoadResult:
    """Waits for the client to end; returns its results."""
    with client:
        assert client.stdout is not None
        printed = client.stdout.read()
    if client.returncode:
        raise RuntimeError("the client failed")
    found = json.loads(printed)
    found["statuses"] = Counter({int(status): count for status, count in found["statuses"].items()})
    return LoadResult(**found)


def main() -> None:
    """Reads the plan, runs it and prints the results."""
    plan = json.load(sys.stdin)

    async def run() -> LoadResult:
        return await Load(plan).run()

    found = uvloop.run(run())
    json.dump({name: getattr(found, name) for name in LoadResult.__slots__}, sys.stdout)


if __name__ == "__main__":
    main()
