"""The agents of a new DaemonSet in one process: the requests and pauses of a real agent, without probes and spool.

``python -m bench.rollout.agents`` reads one line of JSON (``Plan``) and starts every agent at a random moment of
``seconds``. It prints ``enrolled`` once a first report of each is durable. Then it reads commands, one per line:
``restart`` (counts from now which polls are open again; prints ``open`` once all are) and ``stop``. It prints its
``Outcome`` as JSON at the end.
"""

import asyncio
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import uvloop

from agents.outbox import reports, retries
from agents.supervisor import LOG_POLL_SECONDS, POLL_PAUSE_SECONDS
from agents.uplink import http
from bench.agents.thousand import raise_file_limit
from simulator.world import machine

TIMEOUT_SECONDS = 10.0  # of an agent's requests
GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """``tokens``: of the pod of each node, which is used as it is; empty: ``token`` enrols each node.

    In seconds: ``seconds``, within which they start, ``heartbeat``, between reports, and ``poll``, which a poll waits.
    """

    url: str
    cluster: str
    token: str
    tokens: dict[str, str]
    boots: dict[str, str]
    seconds: float
    heartbeat: float
    poll: float


@dataclass(slots=True, kw_only=True)
class Outcome:
    """``enrolled``: seconds from the start of each agent to its first durable report. ``refused``: answers other than
    success by status, 0 for a connection that failed. ``began``, ``ended``: wall-clock times of the roll-out.
    ``reopened``: wall-clock times at which a poll of each agent was sent again after the restart."""

    enrolled: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    refused_later: Counter[int] = field(default_factory=Counter)
    began: float = 0.0
    ended: float = 0.0
    reopened: dict[str, float] = field(default_factory=dict)


class Refused(Exception):
    """An answer that is no success, or none. ``retry_after``: seconds that the portal asks for."""

    def __init__(self, status: int, retry_after: float | None) -> None:
        super().__init__(status)
        self.retry_after = retry_after


class DaemonSet:
    """All agents of the plan."""

    def __init__(self, plan: Plan, session: aiohttp.ClientSession) -> None:
        self._plan, self._session = plan, session
        self.outcome = Outcome()
        self._restarted_at: float | None = None
        self.all_enrolled, self.all_open = asyncio.Event(), asyncio.Event()
        self.running: list[asyncio.Task[None]] = []

    async def run(self, node: str) -> None:
        """One agent from its start until it is cancelled."""
        await asyncio.sleep(random.uniform(0, self._plan.seconds))
        started = time.monotonic()
        token = self._plan.tokens.get(node) or await self._retried(lambda: self._enrol(node))
        inventory = machine.inventory(gpus=GPUS, model="NVIDIA H100 80GB HBM3", seed=node)
        async with asyncio.TaskGroup() as threads:
            threads.create_task(self._poll(node, token))
            await self._retried(lambda: self._report(node, token, inventory))
            self.outcome.enrolled.append(time.monotonic() - started)
            if len(self.outcome.enrolled) == len(self._plan.boots):
                self.all_enrolled.set()
            interval = self._plan.heartbeat * random.uniform(0.3, 1.0)  # the first one, as the agent spreads it
            while True:
                await asyncio.sleep(interval)
                await self._retried(lambda: self._report(node, token, None))
                interval = self._plan.heartbeat

    def restart(self) -> None:
        """From now on, a poll that is sent counts as open again once it is answered."""
        self._restarted_at = time.time()

    async def _enrol(self, node: str) -> str:
        answer = await self._call("POST", http.ENROL_PATH, self._plan.token, {"node": node})
        return str(answer["token"])

    async def _report(self, node: str, token: str, inventory: Any) -> None:
        made = reports.heartbeat(
            node, boot_id=self._plan.boots[node], inventory=inventory, results=(), now=datetime.now(UTC)
        )
        await self._call("POST", http.REPORTS_PATH, token, made.body)

    async def _poll(self, node: str, token: str) -> None:
        """As ``agents.supervisor`` does."""
        pause = retries.FIRST_PAUSE_SECONDS
        path = f"{http.COMMANDS_PATH}?node={node}&wait={int(self._plan.poll)}"
        while True:
            began, sent = time.monotonic(), {"at": 0.0}
            try:
                await self._call("GET", path, token, sent=sent, seconds=self._plan.poll + TIMEOUT_SECONDS)
            except Refused as refused:
                await asyncio.sleep(retries.jittered_delay(refused.retry_after, pause))
                pause = min(2 * pause, retries.MAX_PAUSE_SECONDS)
                continue
            self._note_open(node, sent["at"])
            pause = retries.FIRST_PAUSE_SECONDS
            if time.monotonic() - began < LOG_POLL_SECONDS:
                await asyncio.sleep(POLL_PAUSE_SECONDS)

    def _note_open(self, node: str, sent_at: float) -> None:
        if self._restarted_at is not None and sent_at > self._restarted_at:
            self.outcome.reopened.setdefault(node, sent_at)
            if len(self.outcome.reopened) == len(self._plan.boots):
                self.all_open.set()

    async def _retried(self, act: Callable[[], Any]) -> Any:
        pause = retries.FIRST_PAUSE_SECONDS
        while True:
            try:
                return await act()
            except Refused as refused:
                await asyncio.sleep(retries.jittered_delay(refused.retry_after, pause))
                pause = min(2 * pause, retries.MAX_PAUSE_SECONDS)

    async def _call(
        self,
        method: str,
        path: str,
        token: str,
        body: Any = None,
        *,
        sent: dict[str, float] | None = None,
        seconds: float = TIMEOUT_SECONDS,
    ) -> Any:
        headers = {"Authorization": f"Bearer {token}", "X-Kcover-Cluster": self._plan.cluster}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            async with self._session.request(
                method,
                self._plan.url + path,
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                trace_request_ctx=sent,
            ) as answer:
                found = await answer.read()
                if answer.status < 300:
                    return json.loads(found)
                after = answer.headers.get("Retry-After")
                raise self._refusal(answer.status, float(after) if after else None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._refusal(0, None) from error

    def _refusal(self, status: int, after: float | None) -> Refused:
        counted = self.outcome.refused if self._restarted_at is None else self.outcome.refused_later
        counted[status] += 1
        return Refused(status, after)


async def _note_sent(_session: Any, context: Any, _params: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx["at"] = time.time()


async def run(plan: Plan, commands: asyncio.Queue[str]) -> None:
    """Runs all agents until ``stop``, prints the outcome and ends the process."""
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_note_sent)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=75)
    async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session:
        fleet = DaemonSet(plan, session)
        outcome = fleet.outcome
        outcome.began = time.time()
        fleet.running = [asyncio.create_task(fleet.run(node)) for node in plan.boots]
        await fleet.all_enrolled.wait()
        outcome.ended = time.time()
        print("enrolled", flush=True)
        while (command := await commands.get()) != "stop":
            if command == "restart":
                fleet.restart()
                await fleet.all_open.wait()
                print("open", flush=True)
        print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}), flush=True)
        os._exit(0)  # aiohttp may swallow a cancellation, so that a task would never end


def main() -> None:
    """Reads the plan, runs the agents and prints the outcome."""
    raise_file_limit()
    plan = Plan(**json.loads(sys.stdin.readline()))

    async def driven() -> None:
        commands: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(commands.put_nowait, line.strip())
            loop.call_soon_threadsafe(commands.put_nowait, "stop")

        threading.Thread(target=read, daemon=True).start()
        await run(plan, commands)

    uvloop.run(driven())


if __name__ == "__main__":
    main()
