"""A portal for agents to talk to: takes reports in the real wire format, hands out tokens and commands."""

import asyncio
import contextlib
import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from kcover import wire
from kcover.faults import fault


class StubPortal:
    def __init__(self) -> None:
        self.reports: list[wire.Report] = []
        self.bodies: list[bytes] = []
        self.enrolments: list[str] = []
        self.tokens: dict[str, str] = {}
        self.commands: dict[str, list[fault.Command]] = {}
        self.down = False
        self.url = ""
        self._news = asyncio.Event()
        self._closing = False

    async def __aenter__(self) -> "StubPortal":
        app = web.Application()
        app.router.add_get("/healthz", self._health)
        app.router.add_post("/api/v1/agent/enrol", self._enrol)
        app.router.add_post("/api/v1/agent/reports", self._report)
        app.router.add_get("/api/v1/agent/commands", self._poll)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._closing = True
        self._announce()
        await self._runner.cleanup()

    def order(self, node: str, kind: str, **args: object) -> fault.Command:
        """Queue a command; it is offered until its result is in."""
        now = datetime.now(UTC)
        command = fault.Command(
            id=f"{kind}-{len(self.commands)}", kind=kind, args=args, created_at=now, expires_at=now + timedelta(hours=1)
        )
        self.commands.setdefault(node, []).append(command)
        self._announce()
        return command

    async def until(self, holds: Callable[[], object], *, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.01)

    async def heard_from(self, count: int) -> None:
        """Until so many nodes have sent a heartbeat, which is what follows when nothing is left to tell."""
        await self.until(lambda: len({one.node for one in self.reports if one.inventory}) == count)

    def faults(self, node: str) -> list[fault.Fault]:
        return [one for report in self.reports if report.node == node for one in report.faults]

    def results(self, node: str) -> list[fault.CommandResult]:
        return [one for report in self.reports if report.node == node for one in report.command_results]

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _who(self, request: web.Request) -> str:
        node = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if node is None:
            raise web.HTTPUnauthorized
        return node

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok", status=503 if self.down else 200)

    async def _enrol(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != "Bearer kce_fleet":
            raise web.HTTPUnauthorized
        node = (await request.json())["node"]
        self.enrolments.append(node)
        token = f"kca_{node}_{len(self.enrolments)}"
        self.tokens[token] = node
        return web.json_response({"token": token, "expires_at": "2027-11-21T00:00:00Z"}, status=201)

    async def _report(self, request: web.Request) -> web.Response:
        node = self._who(request)
        if self.down:
            raise web.HTTPServiceUnavailable
        body = await request.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        decoded = wire.decode(body)
        assert decoded.rejected == ()
        assert decoded.report.node == node
        known = decoded.report.batch_id in {report.batch_id for report in self.reports}
        if not known:
            self.bodies.append(body)
            self.reports.append(decoded.report)
        reported = {result.id for result in decoded.report.command_results}
        self.commands[node] = [command for command in self.commands.get(node, []) if command.id not in reported]
        offered = tuple(self.commands[node])
        items = len(decoded.report.faults)
        counts = {"accepted": 0, "duplicates": items} if known else {"accepted": items, "duplicates": 0}
        answer = wire.Answer(**counts, rejected=(), commands=offered)
        return web.json_response(wire.encode_answer(answer), status=202)

    async def _poll(self, request: web.Request) -> web.Response:
        node = self._who(request)
        assert request.query["node"] == node
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(float(request.query["wait"])):
                while not self.commands.get(node) and not self._closing:
                    await self._news.wait()
        commands = [wire.encode_command(command) for command in self.commands.get(node, [])]
        return web.json_response({"commands": commands})
