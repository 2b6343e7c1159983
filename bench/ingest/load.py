"""The agents' side: keep-alive connections from one process, as cheap as Python allows, since it shares the cores.

``python -m bench.ingest.load`` reads what to do as JSON from standard input and prints what came of it as JSON.
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
class Found:
    """What the answers were: how many of each status, how long they took (s), which serials were acknowledged."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    cut: int = 0
    seconds: float = 0.0


class Connection(asyncio.Protocol):
    """One keep-alive connection: one request at a time; ``done`` is called with the status of each answer."""

    def __init__(self, done: Callable[["Connection", int], None], lost: Callable[["Connection"], None]) -> None:
        self._done, self._lost = done, lost
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = b""
        self.subject: Any = None  # what the request under way is about

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is none by inheritance

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
        self._found = Found()
        self._end = 0.0
        self._sent_at = b""
        self._all_back = asyncio.Event()
        self._over = False
        self._under_way = 0

    async def run(self) -> Found:
        """Closed loop: every connection sends as soon as it has its answer. With ``rate``: so many each second,
        evenly, whatever the answers take; the clock of each runs from the moment at which it was due. With ``each``:
        one report of every node, however long that takes. With ``note``: which reports were acknowledged is noted. With
        ``says``: what they say, "all" if nothing else (``reports.Reporter``)."""
        for _ in range(self._plan["connections"]):
            await self._connect()
        print("connected", flush=True)
        start = time.perf_counter()
        self._end = start + (3600.0 if self._plan.get("each") else self._plan["seconds"])
        if self._plan.get("rate"):
            await self._pace(start)
        else:
            while self._idle and not self._all_told():
                self._send(self._idle.pop(), time.perf_counter())
        self._over = True
        if self._under_way:
            await self._all_back.wait()
        self._found.seconds = time.perf_counter() - start
        return self._found

    async def _connect(self) -> None:
        def make() -> Connection:
            return Connection(self._answered, self._cut)

        _, made = await asyncio.get_running_loop().create_connection(make, "127.0.0.1", self._plan["port"])
        self._idle.append(made)

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
        if self._under_way % 16 == 0:
            self._sent_at = reports.moment(datetime.now(UTC))
        self._under_way += 1
        sent_at = self._sent_at or reports.moment(datetime.now(UTC))
        says = self._plan.get("says", "all")
        connection.send(self._reporters[number].render(serial, sent_at=sent_at, says=says), (due, number, serial))

    def _answered(self, connection: Connection, status: int) -> None:
        due, number, serial = connection.subject
        connection.subject = None
        now = time.perf_counter()
        self._back()
        self._found.statuses[status] += 1
        self._found.latencies.append(now - due)
        if self._plan.get("note") and status == 202:
            self._found.acknowledged.append((number, serial))
        if self._plan.get("rate"):
            self._idle.append(connection)
        elif now < self._end and not self._all_told():
            self._send(connection, now)

    def _all_told(self) -> bool:
        """With ``each``: whether every node has reported once."""
        return bool(self._plan.get("each")) and self._next >= len(self._reporters)

    def _back(self) -> None:
        self._under_way -= 1
        if self._over and not self._under_way:
            self._all_back.set()

    def _cut(self, connection: Connection) -> None:
        if connection.subject is not None:
            self._back()
            self._found.cut += 1
        elif connection in self._idle:
            self._idle.remove(connection)


def start(**plan: Any) -> "subprocess.Popen[str]":
    """Starts the client as a process of its own; returns when it is connected and begins."""
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


def finish(client: "subprocess.Popen[str]") -> Found:
    """What came of it, once it is over."""
    assert client.stdout is not None
    printed = client.stdout.read()
    if client.wait():
        raise RuntimeError("the client failed")
    found = json.loads(printed)
    found["statuses"] = Counter({int(status): count for status, count in found["statuses"].items()})
    return Found(**found)


def main() -> None:
    """The client's process."""
    plan = json.load(sys.stdin)

    async def run() -> Found:
        return await Load(plan).run()

    found = uvloop.run(run())
    json.dump({name: getattr(found, name) for name in Found.__slots__}, sys.stdout)


if __name__ == "__main__":
    main()
