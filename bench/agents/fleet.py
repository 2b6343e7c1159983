"""Many agents in one process: each has its own loop, its spool on disk, its line to the portal and its kernel log.

A real agent has a thread for each thing that may hang; a thousand of them share a few here. Only the long polls, which
wait, keep one each. ``python -m bench.agents.fleet`` reads one line of JSON (``Plan``), prints ``ready`` once every
agent was heard, then obeys a line each: ``crash`` (a tenth of the agents loses its memory and comes back from its disk)
and ``stop`` (what is left is sent). It prints what came of it as JSON.
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

from agents import config, loop, portal, retries, spool, store
from agents.commands import Outcome
from agents.probes import follow, kmsg
from agents.uplink import UplinkError
from kcover import wire
from kcover.fault import Inventory
from simulator.world import machine

LOOK = 1.0  # seconds between looks at a log, as an agent that cannot be woken by it
LONG_POLL = 30.0
SENDERS = 32  # reports under way at one time
STACK = 512 << 10  # bytes of a thread's stack; a thousand with the usual 8 MiB would not fit everywhere
LEFT = 180.0  # seconds that the end waits for spools to empty
KMSG = "kmsg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. ``folder`` holds one folder a node, with its kernel log in it; ``heartbeat`` in seconds; ``boots``:
    each node's boot id, as its cluster shows it."""

    url: str
    token: str
    folder: str
    nodes: list[str]
    boots: dict[str, str]
    heartbeat: float
    gpus: int = 8


@dataclass(slots=True, kw_only=True)
class Told:
    """What came of it. ``latencies``: seconds of each POST that was acknowledged; ``failures``: those that were not;
    ``left``: reports still in a spool at the end; ``cpu``, ``wall``: seconds from ready to stop; ``rss``: bytes."""

    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    crashed: int = 0
    left: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    rss: int = 0


class Line(portal.Portal):
    """A real agent's line, with a clock beside it."""

    def __init__(self, told: Told, **given: Any) -> None:
        super().__init__(**given)
        self._told = told

    def post_report(self, body: bytes) -> wire.Answer:
        began = time.perf_counter()
        try:
            answer = super().post_report(body)
        except UplinkError:
            self._told.failures += 1
            raise
        self._told.latencies.append(time.perf_counter() - began)
        return answer


class Disk(store.Folder):
    """A folder that the threads of a crashed agent can no longer write to, as the threads of a dead process cannot."""

    dead = False

    def write(self, name: str, data: bytes) -> None:
        if self.dead:
            raise OSError("the agent is dead")
        super().write(name, data)

    def delete(self, name: str) -> None:
        if self.dead:
            raise OSError("the agent is dead")
        super().delete(name)


class Hands:
    """An executor that does nothing: this is about reports."""

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        return Outcome(status="refused", message="no node to reboot")

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        return Outcome(status="refused", message="no GPU to reset")

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        return Outcome(status="refused", message="no GPU to check")


@dataclass(slots=True, kw_only=True)
class Life:
    """One agent from its start to its crash."""

    agent: loop.Agent
    disk: Disk
    sending: bool = False


class Host:
    """One node: its name, boot, devices and log, and the agent that lives now."""

    def __init__(self, name: str, plan: Plan, told: Told) -> None:
        self.name = name
        self._plan, self._told = plan, told
        self._folder = Path(plan.folder) / name
        self._inventory = machine.inventory(gpus=plan.gpus, model="NVIDIA H100 80GB HBM3", seed=name)
        self.life = self._begin()

    def crash(self) -> None:
        """Everything in memory is gone, a request under way is cut; another agent starts from what is on disk."""
        before = self.life
        before.disk.dead = True
        before.agent.uplink.close()
        before.disk.close()
        before.agent.logs.close()
        self.life = self._begin()
        self._told.crashed += 1

    def _begin(self) -> Life:
        settings = config.Config(node=self.name, heartbeat=timedelta(seconds=self._plan.heartbeat))
        disk = Disk(self._folder / "spool")
        line = Line(
            self._told, url=self._plan.url, node=self.name, token=lambda: self._plan.token, store=disk, clock=clock
        )
        agent = loop.Agent(
            settings,
            sources=(follow.File(self._folder / KMSG),),
            clock=clock,
            boot_id=lambda: self._plan.boots[self.name],
            inventory=self._devices,
            uplink=line,
            spool=spool.Spool(disk),
            executor=Hands(),
        )
        agent.inspect(clock())
        return Life(agent=agent, disk=disk)

    def _devices(self) -> Inventory:
        return self._inventory


class Fleet:
    """All of them."""

    def __init__(self, plan: Plan) -> None:
        self.told = Told()
        self._hosts = [Host(name, plan, self.told) for name in plan.nodes]
        self._due: queue.SimpleQueue[Life] = queue.SimpleQueue()
        self._over = threading.Event()

    def run(self, orders: "queue.SimpleQueue[str]") -> Told:
        """Until the order ``stop``."""
        for _ in range(SENDERS):
            threading.Thread(target=self._send, daemon=True).start()
        while any(host.life.agent.reported_at is None for host in self._hosts):
            self._look()
        for host in self._hosts:
            threading.Thread(target=self._listen, args=(host,), daemon=True).start()
        self.told.latencies.clear()  # enrolling is another matter
        print("ready", flush=True)
        began, used = time.monotonic(), _cpu()
        while (order := _next(orders)) != "stop":
            if order == "crash":
                for host in random.sample(self._hosts, max(1, len(self._hosts) // 10)):
                    host.crash()
            self._look()
        self.told.cpu, self.told.wall = _cpu() - used, time.monotonic() - began
        self.told.rss = psutil.Process().memory_info().rss
        self._empty()
        self._over.set()
        return self.told

    def _look(self) -> None:
        """Once round, in which every agent reads its log and whoever has something to tell is sent to tell it."""
        began = time.monotonic()
        for host in self._hosts:
            life = host.life
            now = clock()
            while life.agent.observe(now):
                pass
            if not life.sending and (life.agent.to_report.is_set() or life.agent.due_in(now) <= 0):
                life.sending = True
                self._due.put(life)
        time.sleep(max(0.0, began + LOOK - time.monotonic()))

    def _send(self) -> None:
        while True:
            life = self._due.get()
            try:
                life.agent.work()
                life.agent.to_report.clear()
                while not life.disk.dead and life.agent.report_once(clock()):
                    pass
            except OSError:
                if not life.disk.dead:
                    raise
            life.sending = False

    def _listen(self, host: Host) -> None:
        pause = retries.FIRST_PAUSE
        while not self._over.is_set():
            agent = host.life.agent
            try:
                agent.offer(agent.uplink.poll_commands(wait=LONG_POLL))
            except UplinkError as error:
                self._over.wait(retries.spread(error.retry_after, pause))
                pause = min(2 * pause, retries.LONGEST_PAUSE)
            else:
                pause = retries.FIRST_PAUSE

    def _empty(self) -> None:
        """Goes on until nothing waits, and what was held back to be counted has gone out too."""
        began = time.monotonic()
        held = kmsg.WINDOW.total_seconds() + 2 * LOOK
        while (left := sum(host.life.agent.spool.waiting for host in self._hosts)) or time.monotonic() < began + held:
            if time.monotonic() > began + LEFT:
                break
            self._look()
        self.told.left = left


def clock() -> datetime:
    """The agents' clock."""
    return datetime.now(UTC)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _next(orders: "queue.SimpleQueue[str]") -> str:
    try:
        return orders.get_nowait()
    except queue.Empty:
        return ""


def main() -> None:
    """The process."""
    logging.basicConfig(level=logging.ERROR)
    threading.stack_size(STACK)
    plan = Plan(**json.loads(sys.stdin.readline()))
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            orders.put(line.strip())
        orders.put("stop")  # whoever gave the orders is gone

    threading.Thread(target=read, daemon=True).start()
    json.dump(asdict(Fleet(plan).run(orders)), sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
