"""The node agents: real ``agents.loop.Agent`` objects over virtual machines, all in one event loop.

An agent lives as long as its machine's boot; what it keeps on disk (spool, command journal, token) survives. Per agent
there are two tasks, one telling and one waiting for commands, and nothing that ticks.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from agents import config, loop, spool, store
from agents.commands import Outcome
from agents.probes import kmsg
from agents.uplink import UplinkError
from kcover import fault, wire
from simulator.world import machine, uplink

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

# The checks that virtual agents can run: what a good and a bad device measure, and the unit.
CHECKS: Mapping[str, tuple[float, float, str]] = {
    "remapped": (0.0, 1.0, "rows"),
    "gpupower": (0.0, 1.0, ""),
    "pciebw": (24.6, 1.9, "GB/s"),
    "dcgm": (0.0, 1.0, ""),
    "gpumem": (1710.0, 310.0, "GB/s"),
}
PEERS: Mapping[str, tuple[float, str]] = {"ping": (0.0, "%"), "iperf": (94.2, "Gbit/s")}  # whoever is asked for answers

_LONG_POLL = 55.0  # seconds; the portal allows 60
_AGAIN = 5.0  # seconds between polls that come back at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_WINDOW = kmsg.WINDOW.total_seconds() + 0.2  # until repeats of a fault are told with their count


class Hands:
    """What an agent's commands do to its machine: an ``agents.commands.Executor``."""

    def __init__(self, host: machine.Machine) -> None:
        self._host = host

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """See ``Executor.reboot``."""
        self._host.reboot("agent command")
        return None

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """See ``Executor.reset_gpu``."""
        for gpu in self._host.inventory.gpus:
            if gpu.uuid == args.get("gpu_uuid") or gpu.pci == args.get("pci") or gpu.index == args.get("index"):
                if self._host.reset_gpu(gpu.index):
                    return Outcome(status="done", message=f"GPU {gpu.index} was successfully reset.")
                return Outcome(status="failed", message=f"GPU {gpu.index} is still faulty after its reset")
        return Outcome(status="refused", message="args must name one GPU: gpu_uuid, pci or index")

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        """See ``Executor.run_check``. A device with a fault that is still there fails every check of it."""
        asked = args.get("checks") or args.get("check") or args.get("name") or ()
        names = asked.split(",") if isinstance(asked, str) else list(asked)
        if not {*names} & {*CHECKS, *PEERS}:
            return Outcome(status="refused", message=f"this agent has no check {', '.join(map(str, names))!r}")
        checks = tuple(check for name in names for check in self._check(name, args))
        shown = sorted((asdict(check) for check in checks), key=lambda one: one["status"] == "pass")
        message = "fail" if any(check.status == "fail" for check in checks) else "ok"
        return Outcome(status="done", message=message, output={"checks": shown, "seconds": 0.0}, checks=checks)

    def _check(self, name: str, args: Mapping[str, Any]) -> list[fault.Check]:
        if name in PEERS:
            value, unit = PEERS[name]
            hosts = list(args.get("hosts") or ())
            return [fault.Check(name=name, device=str(host), status="pass", value=value, unit=unit) for host in hosts]
        faulty = {standing.gpu for standing in self._host.faults}
        good, bad, unit = CHECKS.get(name, (0.0, 0.0, ""))
        return [
            fault.Check(
                name=name,
                device=gpu.uuid,
                status="fail" if (hurt := bool(faulty & {gpu.index, None})) else "pass",
                value=bad if hurt else good,
                unit=unit,
                message="a fault is still there" if hurt else "",
            )
            for gpu in (self._host.inventory.gpus if name in CHECKS else ())
        ]


class _Elsewhere:
    """The uplink of an agent whose driver does the sending."""

    def post_report(self, body: bytes) -> wire.Answer:
        """See ``Uplink``."""
        raise UplinkError("reports are sent by the event loop")

    def poll_commands(self, *, wait: float) -> tuple[fault.Command, ...]:
        """See ``Uplink``."""
        raise UplinkError("commands are polled by the event loop")

    def close(self) -> None:
        """See ``Uplink``."""


class VirtualAgent:
    """One node's agent: starts with every boot, is gone while the machine is down or somebody has stopped it."""

    def __init__(
        self,
        host: machine.Machine,
        trunk: uplink.Trunk,
        *,
        heartbeat: timedelta,
        clock: Callable[[], datetime],
        rng: random.Random,
    ) -> None:
        self.wanted = True
        self.reported_at: datetime | None = None
        self.reports = 0
        self._host, self._clock, self._rng = host, clock, rng
        self._config = config.Config(node=host.name, heartbeat=heartbeat)
        self._disk = store.Memory()
        self._line = uplink.Line(trunk, node=host.name, store=self._disk)
        self._life: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        host.listeners.append(self)
        host.printed = self._printed

    @property
    def running(self) -> bool:
        """Whether it is at work."""
        return self._life is not None

    def start(self) -> None:
        """Begin, if it is to run and the machine is up."""
        if self.wanted and self._life is None and self._host.power == machine.UP:
            self._life = asyncio.create_task(self._live(), name=f"agent {self._host.name}")

    def stop(self) -> asyncio.Task[None] | None:
        """End it as a machine that goes down does; returns the task that is ending."""
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
        return life

    def went_down(self) -> None:
        """See ``machine.Listener``."""
        self.stop()

    def came_up(self) -> None:
        """See ``machine.Listener``."""
        self.start()

    def _printed(self) -> None:
        if self._life is not None:
            self._wake.set()
            asyncio.get_running_loop().call_later(_WINDOW, self._wake.set)

    async def _live(self) -> None:
        agent = loop.Agent(
            self._config,
            sources=(self._host.log,),
            clock=self._clock,
            boot_id=lambda: self._host.boot_id,
            inventory=lambda: self._host.inventory,
            uplink=_Elsewhere(),
            spool=spool.Spool(self._disk),
            executor=Hands(self._host),
            rng=self._rng,
        )
        try:
            agent.inspect(self._clock())
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell(agent))
                group.create_task(self._listen(agent))
        except* Exception:
            log.exception("agent of %s failed", self._host.name)

    async def _tell(self, agent: loop.Agent) -> None:
        while True:
            self._wake.clear()
            while agent.observe(self._clock()):
                pass
            if agent.to_do.is_set():
                agent.to_do.clear()
                agent.work()
            now = self._clock()
            outgoing = agent.pending(now)
            if outgoing is None:
                await self._sleep(max(agent.due_in(now), 0.05))
                continue
            try:
                answer = await self._line.post_report(outgoing.body)
            except UplinkError as error:
                agent.postpone(outgoing, error, now=self._clock())
            else:
                self.reported_at = self._clock()
                self.reports += 1
                agent.settle(outgoing, answer, now=self.reported_at)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _listen(self, agent: loop.Agent) -> None:
        pause = _FIRST_PAUSE
        running = asyncio.get_running_loop()
        while True:
            started = running.time()
            try:
                commands = await self._line.poll_commands(wait=_LONG_POLL)
            except UplinkError as error:
                await asyncio.sleep((error.retry_after or pause) * self._rng.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            fresh = agent.offer(commands)
            if commands:
                self._wake.set()  # to do what is new, to tell again what the portal lacks
            if not fresh and running.time() - started < 1.0:
                await asyncio.sleep(_AGAIN)  # what is under way is offered again, or a portal that does not wait


class Fleet:
    """All agents of a cluster."""

    def __init__(
        self,
        machines: Mapping[str, machine.Machine],
        *,
        clock: Callable[[], datetime],
        heartbeat: timedelta,
        rng: random.Random,
    ) -> None:
        self._machines, self._clock, self._heartbeat, self._rng = machines, clock, heartbeat, rng
        self._trunk: uplink.Trunk | None = None
        self.agents: dict[str, VirtualAgent] = {}

    async def begin(self, url: str, *, token_file: Path, cluster: str | None = None, poll: float = 0.5) -> None:
        """Wait for the token and the portal, then start an agent on every machine that has GPUs."""
        token = await _first(lambda: asyncio.to_thread(_read, token_file), poll=poll)
        self._trunk = uplink.Trunk(url, token=token, clock=self._clock, cluster=cluster)
        await _first(self._trunk.answers, poll=poll)
        log.info("agents begin to report to %s", url)
        for name, host in self._machines.items():
            self.agents[name] = VirtualAgent(
                host, self._trunk, heartbeat=self._heartbeat, clock=self._clock, rng=self._rng
            )
            self.agents[name].start()

    async def end(self) -> None:
        """Stop all of them."""
        ending = [life for agent in self.agents.values() if (life := agent.stop()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)
        if self._trunk is not None:
            await self._trunk.close()


async def _first(ask: Callable[[], Awaitable[_Answer]], *, poll: float) -> _Answer:
    """Ask until the answer is something."""
    while True:
        answer = await ask()
        if answer:
            return answer
        await asyncio.sleep(poll)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        return ""
