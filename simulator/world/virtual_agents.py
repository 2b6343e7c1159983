"""The node agents: real ``agents.agent.Agent`` objects over virtual machines, all in one event loop.

An agent lives as long as its machine's boot. Its files (spool, command journal, token) survive the boot. Each agent has
two tasks, one that reports and one that waits for commands, and nothing that ticks.
"""

import asyncio
import logging
import random
import uuid
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from agents import config
from agents.agent import Agent
from agents.commands.journal import Outcome
from agents.host import store
from agents.outbox import spool
from agents.probes.finding import Observation
from agents.probes.log import repeats
from agents.uplink.protocol import UplinkError
from kcover.faults import fault
from simulator.world import evidence, machine, uplink

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

# The checks that virtual agents can run: the measured value of a good and of a bad device, and the unit.
CHECKS: Mapping[str, tuple[float, float, str]] = {
    "remapped": (0.0, 1.0, "rows"),
    "gpupower": (0.0, 1.0, ""),
    "pciebw": (24.6, 1.9, "GB/s"),
    "dcgm": (0.0, 1.0, ""),
    "gpumem": (1710.0, 310.0, "GB/s"),
}
PEERS: Mapping[str, tuple[float, str]] = {"ping": (0.0, "%"), "iperf": (94.2, "Gbit/s")}  # every peer responds

_LONG_POLL_SECONDS = 55.0  # the portal allows 60
_RETRY_SECONDS = 5.0  # between polls that return at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_WINDOW = repeats.REPEAT_WINDOW.total_seconds() + 0.2  # until repeats of a fault are reported with their count


class VirtualExecutor:
    """Carries out an agent's commands on its machine: an ``agents.commands.journal.Executor``."""

    def __init__(self, host: machine.Machine) -> None:
        self._host = host
        self.bundles: list[evidence.VirtualBundle] = []  # collected, and not uploaded yet

    def collect_evidence(self, args: Mapping[str, Any]) -> Outcome:
        """See ``Executor.collect_evidence``."""
        collected = evidence.collect(self._host, name=uuid.UUID(args["bundle"]))
        self.bundles.append(collected)
        return Outcome(status="done", message=f"{len(collected.content)} bytes", output=collected.output())

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        self._host.reboot("agent command")
        return None

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        for gpu in self._host.inventory.gpus:
            if gpu.uuid == args.get("gpu_uuid") or gpu.pci == args.get("pci") or gpu.index == args.get("index"):
                if self._host.reset_gpu(gpu.index):
                    return Outcome(status="done", message=f"GPU {gpu.index} was successfully reset.")
                return Outcome(status="failed", message=f"GPU {gpu.index} still has a fault after its reset")
        return Outcome(status="refused", message="args must name one GPU: gpu_uuid, pci or index")

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        """See ``Executor.run_check``. A GPU with an active fault fails every check."""
        requested = args.get("checks") or args.get("check") or args.get("name") or ()
        names = requested.split(",") if isinstance(requested, str) else list(requested)
        if not {*names} & {*CHECKS, *PEERS}:
            return Outcome(status="refused", message=f"this agent has no check {', '.join(map(str, names))!r}")
        checks = tuple(check for name in names for check in self._check(name, args))
        shown = sorted((asdict(check) for check in checks), key=lambda result: result["status"] == "pass")
        message = "fail" if any(check.status == "fail" for check in checks) else "ok"
        return Outcome(status="done", message=message, output={"checks": shown, "seconds": 0.0}, checks=checks)

    def _check(self, name: str, args: Mapping[str, Any]) -> list[fault.Check]:
        if name == "iperf" and "addresses_without" in args:  # the agent tells its interfaces, and measures nothing
            return [
                fault.Check(name=name, device=interface, status="pass", unit="address", message=address)
                for interface, address in _data_addresses(self._host.name).items()
            ]
        if name in PEERS:
            value, unit = PEERS[name]
            hosts = list(args.get("hosts") or ())
            return [fault.Check(name=name, device=str(host), status="pass", value=value, unit=unit) for host in hosts]
        faulty = {active.gpu for active in self._host.faults}
        good, bad, unit = CHECKS.get(name, (0.0, 0.0, ""))
        return [
            fault.Check(
                name=name,
                device=gpu.uuid,
                status="fail" if (hurt := bool(faulty & {gpu.index, None})) else "pass",
                value=bad if hurt else good,
                unit=unit,
                message="a fault is present" if hurt else "",
            )
            for gpu in (self._host.inventory.gpus if name in CHECKS else ())
        ]


def _data_addresses(node: str) -> dict[str, str]:
    """The addresses of the two networks for data that each machine has, as Multus names them."""
    place = zlib.crc32(node.encode()) % (254 * 254)  # the same at each start; two nodes seldom share one
    return {f"net{net}": f"10.{200 + net}.{place // 254}.{place % 254 + 1}" for net in (1, 2)}


class VirtualAgent:
    """The agent of one node. It starts with every boot, and stops when the machine goes down or somebody stops it."""

    def __init__(
        self,
        host: machine.Machine,
        session: uplink.PortalSession,
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
        self._disk = store.MemoryStore()
        self._line = uplink.NodeUplink(session, node=host.name, store=self._disk)
        self._life: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        host.listeners.append(self)
        host.printed = self._printed

    @property
    def running(self) -> bool:
        return self._life is not None

    def start(self) -> None:
        """Start, if the agent is enabled and the machine is up."""
        if self.wanted and self._life is None and self._host.power == machine.UP:
            self._life = asyncio.create_task(self._live(), name=f"agent {self._host.name}")

    def stop(self) -> asyncio.Task[None] | None:
        """Stop, as when the machine goes down. Return the task that is ending."""
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
        return life

    def went_down(self) -> None:
        self.stop()

    def came_up(self) -> None:
        self.start()

    def _printed(self) -> None:
        if self._life is not None:
            self._wake.set()
            asyncio.get_running_loop().call_later(_WINDOW, self._wake.set)

    async def _live(self) -> None:
        executor = VirtualExecutor(self._host)
        agent = Agent(
            self._config,
            sources=(self._host.log,),
            clock=self._clock,
            boot_id=lambda: self._host.boot_id,
            inventory=lambda: self._host.inventory,
            uplink=uplink.NoUplink(),
            spool=spool.Spool(self._disk),
            executor=executor,
            rng=self._rng,
        )
        try:
            agent.inspect(self._clock())
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell(agent, executor))
                group.create_task(self._listen(agent))
        except* Exception:
            log.exception("agent of %s failed", self._host.name)

    async def _tell(self, agent: Agent, executor: VirtualExecutor) -> None:
        while True:
            self._wake.clear()
            while agent.observe(self._clock()):
                pass
            if agent.commands_due["acts"].is_set():  # set for every new command, whatever its lane
                agent.commands_due["acts"].clear()
                agent.execute_commands()
            while executor.bundles:
                await self._upload(executor.bundles.pop(0))
            now = self._clock()
            if agent.figures.are_due(now):
                agent.figures.note(Observation(figures=self._figures(now)), now)
            outgoing = agent.next_report(now)
            if outgoing is None:
                await self._sleep(max(agent.seconds_until_due(now), 0.05))
                continue
            try:
                answer = await self._line.post_report(outgoing.body)
            except UplinkError as error:
                agent.postpone(outgoing, error, now=self._clock())
            else:
                self.reported_at = self._clock()
                self.reports += 1
                agent.settle(outgoing, answer, now=self.reported_at)

    def _figures(self, now: datetime) -> Mapping[tuple[str, str], float]:
        """Figures like those of a busy node; none of a GPU with a fault."""
        chance = random.Random(f"{self._host.name} {now:%H}")  # nosec B311
        faulty = {active.gpu for active in self._host.faults}
        well = [gpu.uuid for gpu in self._host.inventory.gpus if not faulty & {gpu.index, None}]
        return {
            (uuid, name): value
            for uuid in well
            for name, value in {
                "temperature": float(chance.randint(24, 38)),
                "power": float(chance.randint(380, 690)),
                "ecc": 0.0,
                "remapped": 0.0,
                "nvlink": 18.0,
            }.items()
        }

    async def _upload(self, collected: evidence.VirtualBundle) -> None:
        """Upload a bundle of evidence; the portal may refuse it, or not answer."""
        try:
            for upload, chunk in collected.uploads():
                await self._line.post_evidence(upload, chunk)
        except UplinkError as error:
            log.warning("the evidence of %s was not uploaded: %s", self._host.name, error)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _listen(self, agent: Agent) -> None:
        pause = _FIRST_PAUSE
        running = asyncio.get_running_loop()
        while True:
            started = running.time()
            try:
                commands = await self._line.poll_commands(wait=_LONG_POLL_SECONDS)
            except UplinkError as error:
                await asyncio.sleep((error.retry_after or pause) * self._rng.uniform(0.7, 1.3))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            fresh = agent.offer(commands)
            if commands:
                self._wake.set()  # run new commands, and resend results that the portal lacks
            if not fresh and running.time() - started < 1.0:
                await asyncio.sleep(_RETRY_SECONDS)  # a running command is offered again, or the poll is not held open


class AgentFleet:
    def __init__(
        self,
        machines: Mapping[str, machine.Machine],
        *,
        clock: Callable[[], datetime],
        heartbeat: timedelta,
        rng: random.Random,
    ) -> None:
        self._machines, self._clock, self._heartbeat, self._rng = machines, clock, heartbeat, rng
        self._session: uplink.PortalSession | None = None
        self.agents: dict[str, VirtualAgent] = {}

    async def begin(self, url: str, *, token_file: Path, cluster: str | None = None, poll: float = 0.5) -> None:
        """Wait for the token and the portal, then start an agent on every machine that has GPUs."""
        token = await _first(lambda: asyncio.to_thread(_read, token_file), poll=poll)
        self._session = uplink.PortalSession(url, token=token, clock=self._clock, cluster=cluster)
        await _first(self._session.responds, poll=poll)
        log.info("agents start reporting to %s", url)
        for name, host in self._machines.items():
            self.agents[name] = VirtualAgent(
                host, self._session, heartbeat=self._heartbeat, clock=self._clock, rng=self._rng
            )
            self.agents[name].start()

    async def end(self) -> None:
        ending = [life for agent in self.agents.values() if (life := agent.stop()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)
        if self._session is not None:
            await self._session.close()


async def _first(ask: Callable[[], Awaitable[_Answer]], *, poll: float) -> _Answer:
    """Poll until the result is true."""
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
