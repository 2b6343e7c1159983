"""Many agents in one process, each with its own loop, spool on disk, connection to the portal and kernel log.

A real agent has a thread for each operation that may hang; here, a thousand agents share a few threads. Only the long
polls have one thread each. ``python -m bench.agents.fleet`` reads one line of JSON (``Plan``) and prints ``ready`` once
every agent has reported. Then it reads commands, one per line: ``crash`` (a tenth of the agents lose their memory and
restart from disk) and ``stop`` (the remaining reports are sent). It prints its ``FleetResult`` as JSON.
"""

import json
import logging
import queue
import random
import resource
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from agents import config
from agents.agent import Agent
from agents.commands.journal import Outcome
from agents.host import store
from agents.outbox import retries, spool
from agents.probes.log import repeats, sources
from agents.uplink import http
from agents.uplink.protocol import UplinkError
from kcover import wire
from kcover.faults.fault import Inventory
from simulator.world import machine

POLL_SECONDS = 1.0  # between reads of a log
LONG_POLL_SECONDS = 30.0
SENDERS = 32  # threads that send reports
STACK_BYTES = 512 << 10  # of a thread; a thousand of the usual 8 MiB do not fit on every machine
DRAIN_SECONDS = 180.0  # at the end, to empty the spools
KMSG = "kmsg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of a run. ``folder`` has one folder per node with its kernel log. ``heartbeat``: seconds.
    ``boots``: the boot id of each node.
    """

    url: str
    token: str
    folder: str
    nodes: list[str]
    boots: dict[str, str]
    heartbeat: float
    gpus: int = 8


@dataclass(slots=True, kw_only=True)
class FleetResult:
    """The result.

    ``latencies``: seconds of each acknowledged POST. ``failures``: POSTs that failed. ``left``: reports still in a
    spool at the end. ``cpu``, ``wall``: seconds from ready to stop. ``rss``: bytes.
    """

    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    crashed: int = 0
    left: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    rss: int = 0


class TimedUplink(http.HttpUplink):
    """The connection of a real agent, with measured latencies."""

    def __init__(self, outcome: FleetResult, **given: Any) -> None:
        super().__init__(**given)
        self._outcome = outcome

    def post_report(self, body: bytes) -> wire.Answer:
        began = time.perf_counter()
        try:
            answer = super().post_report(body)
        except UplinkError:
            self._outcome.failures += 1
            raise
        self._outcome.latencies.append(time.perf_counter() - began)
        return answer


class Disk(store.FolderStore):
    """A folder that refuses writes by the threads of a crashed agent, as if its process were dead."""

    dead = False

    def write(self, name: str, data: bytes) -> None:
        if self.dead:
            raise OSError("the agent is dead")
        super().write(name, data)

    def delete(self, name: str) -> None:
        if self.dead:
            raise OSError("the agent is dead")
        super().delete(name)


class RefusingExecutor:
    """An executor that refuses every command: only reports are measured."""

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        return Outcome(status="refused", message="no node to reboot")

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        return Outcome(status="refused", message="no GPU to reset")

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        return Outcome(status="refused", message="no GPU to check")

    def collect_evidence(self, args: Mapping[str, Any]) -> Outcome:
        return Outcome(status="refused", message="no node to collect evidence on")


@dataclass(slots=True, kw_only=True)
class Life:
    """One agent from start to crash."""

    agent: Agent
    disk: Disk
    sending: bool = False


class Host:
    """One node: its name, boot, devices and log, and its current agent."""

    def __init__(self, name: str, plan: Plan, outcome: FleetResult) -> None:
        self.name = name
        self._plan, self._outcome = plan, outcome
        self._folder = Path(plan.folder) / name
        self._inventory = machine.inventory(gpus=plan.gpus, model="NVIDIA H100 80GB HBM3", seed=name)
        self.life = self._begin()

    def crash(self) -> None:
        """Drops everything in memory, cuts requests in flight, and starts another agent from the files on disk."""
        before = self.life
        before.disk.dead = True
        before.agent.uplink.close()
        before.disk.close()
        before.agent.logs.close()
        self.life = self._begin()
        self._outcome.crashed += 1

    def _begin(self) -> Life:
        settings = config.Config(node=self.name, heartbeat=timedelta(seconds=self._plan.heartbeat))
        disk = Disk(self._folder / "spool")
        uplink = TimedUplink(
            self._outcome, url=self._plan.url, node=self.name, token=lambda: self._plan.token, store=disk, clock=clock
        )
        agent = Agent(
            settings,
            sources=(sources.LogFile(self._folder / KMSG),),
            clock=clock,
            boot_id=lambda: self._plan.boots[self.name],
            inventory=self._devices,
            uplink=uplink,
            spool=spool.Spool(disk),
            executor=RefusingExecutor(),
        )
        agent.inspect(clock())
        return Life(agent=agent, disk=disk)

    def _devices(self) -> Inventory:
        return self._inventory


class Fleet:
    """All hosts, with the threads that they share."""

    def __init__(self, plan: Plan) -> None:
        self.outcome = FleetResult()
        self._hosts = [Host(name, plan, self.outcome) for name in plan.nodes]
        self._due: queue.SimpleQueue[Life] = queue.SimpleQueue()
        self._over = threading.Event()

    def run(self, commands: "queue.SimpleQueue[str]") -> FleetResult:
        """Runs until the command ``stop``."""
        for _ in range(SENDERS):
            threading.Thread(target=self._send, daemon=True).start()
        while any(host.life.agent.reported_at is None for host in self._hosts):
            self._poll()
        for host in self._hosts:
            threading.Thread(target=self._listen, args=(host,), daemon=True).start()
        self.outcome.latencies.clear()  # enrolment is not measured
        print("ready", flush=True)
        began, used = time.monotonic(), _cpu()
        while (command := _next(commands)) != "stop":
            if command == "crash":
                for host in random.sample(self._hosts, max(1, len(self._hosts) // 10)):
                    host.crash()
            self._poll()
        self.outcome.cpu, self.outcome.wall = _cpu() - used, time.monotonic() - began
        self.outcome.rss = psutil.Process().memory_info().rss
        self._drain()
        self._over.set()
        return self.outcome

    def _poll(self) -> None:
        """One round: every agent reads its log, and agents with something to report are queued for the senders."""
        began = time.monotonic()
        for host in self._hosts:
            life = host.life
            now = clock()
            while life.agent.observe(now):
                pass
            if not life.sending and (life.agent.report_due.is_set() or life.agent.seconds_until_due(now) <= 0):
                life.sending = True
                self._due.put(life)
        time.sleep(max(0.0, began + POLL_SECONDS - time.monotonic()))

    def _send(self) -> None:
        while True:
            life = self._due.get()
            try:
                life.agent.execute_commands()
                life.agent.report_due.clear()
                while not life.disk.dead and life.agent.report_once(clock()):
                    pass
            except OSError:
                if not life.disk.dead:
                    raise
            life.sending = False

    def _listen(self, host: Host) -> None:
        pause = retries.FIRST_PAUSE_SECONDS
        while not self._over.is_set():
            agent = host.life.agent
            try:
                agent.offer(agent.uplink.poll_commands(wait=LONG_POLL_SECONDS))
            except UplinkError as error:
                self._over.wait(retries.jittered_delay(error.retry_after, pause))
                pause = min(2 * pause, retries.MAX_PAUSE_SECONDS)
            else:
                pause = retries.FIRST_PAUSE_SECONDS

    def _drain(self) -> None:
        """Continues until the spools are empty and repeated faults that were held back are sent too."""
        began = time.monotonic()
        held = repeats.REPEAT_WINDOW.total_seconds() + 2 * POLL_SECONDS
        while (left := sum(host.life.agent.spool.waiting for host in self._hosts)) or time.monotonic() < began + held:
            if time.monotonic() > began + DRAIN_SECONDS:
                break
            self._poll()
        self.outcome.left = left


def clock() -> datetime:
    """The clock of the agents."""
    return datetime.now(UTC)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _next(commands: "queue.SimpleQueue[str]") -> str:
    try:
        return commands.get_nowait()
    except queue.Empty:
        return ""


def main() -> None:
    """Reads the plan, runs the agents and prints the outcome."""
    logging.basicConfig(level=logging.ERROR)
    threading.stack_size(STACK_BYTES)
    plan = Plan(**json.loads(sys.stdin.readline()))
    commands: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put("stop")  # the controlling process has ended

    threading.Thread(target=read, daemon=True).start()
    json.dump(asdict(Fleet(plan).run(commands)), sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
