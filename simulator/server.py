"""A whole simulation in one event loop: API server, world, agents and ``/sim``; how it starts and stops."""

import asyncio
import contextlib
import gc
import logging
import random
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from simulator import control, dra, redfish
from simulator.kubeapi import access, kubeconfig, server, store
from simulator.witnesses.all_witnesses import Witnesses
from simulator.world import agenda, random_faults, virtual_agents, world
from simulator.world.pace import Timings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a simulation. ``portal`` None starts no agents; ``faults_per_hour`` 0 means no random faults;
    there is none of the hardware in the first ``quiet_seconds``.

    ``token`` is the bearer token of the Kubernetes API. Callers without a token are admitted too, because kubectl sends
    none over plain HTTP. The simulator needs no protection: by default it listens on this machine only.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    size: world.Size = field(default_factory=world.Size)
    pace: Timings = field(default_factory=Timings)
    seed: int = 0
    kubeconfig_out: Path | None = None
    portal: str | None = None
    enrol_token_file: Path | None = None
    cluster: str | None = None
    heartbeat: float = 30.0
    faults_per_hour: float = 0.0
    preset: str = "mid"
    noise: str = "mixed"
    quiet_seconds: float = 0.0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class Simulation:
    """One simulated cluster. ``application`` serves it; the world advances while the application runs."""

    def __init__(self, settings: Settings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.settings = settings
        rng = random.Random(settings.seed)  # nosec B311
        self.store = store.Store(now=now)
        self.api = server.ApiServer(self.store, tokens={settings.token: access.ADMIN}, anonymous=True)
        self.agenda = agenda.Agenda(now=now)
        self.world = world.build(self.store, self.agenda, size=settings.size, pace=settings.pace, rng=rng)
        self.fleet = virtual_agents.AgentFleet(
            self.world.gpu_machines(), clock=now, heartbeat=timedelta(seconds=settings.heartbeat), rng=rng
        )
        self.witnesses = Witnesses(self.world, cluster=settings.cluster or "simulated")
        self.random_faults: random_faults.RandomFaults | None = None
        if settings.faults_per_hour:
            self.random_faults = random_faults.RandomFaults(
                self.world,
                rng,
                faults_per_hour=settings.faults_per_hour,
                preset=settings.preset,
                noise=settings.noise,
                quiet_seconds=settings.quiet_seconds,
            )

    def application(self) -> web.Application:
        app = self.api.application()
        control.Control(
            self.world, self.api, fleet=self.fleet, random=self.random_faults, witnesses=self.witnesses
        ).add_routes(app)
        dra.Driver(self.world).add_routes(app)
        self.witnesses.add_routes(app)
        redfish.Redfish(self.world, self.api.faults).add_routes(app)
        app.cleanup_ctx.append(self._moving)
        return app

    async def _moving(self, app: web.Application) -> AsyncIterator[None]:
        works: list[Coroutine[Any, Any, None]] = [self.agenda.run(), self.witnesses.exporter.run()]
        settings = self.settings
        if settings.portal and settings.enrol_token_file:
            works.append(
                self.fleet.begin(settings.portal, token_file=settings.enrol_token_file, cluster=settings.cluster)
            )
        if self.random_faults is not None:
            self.random_faults.start()
        tasks = [asyncio.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("the world has stopped: %r", ended)
        await self.fleet.end()


@contextlib.asynccontextmanager
async def serving(simulation: Simulation) -> AsyncIterator[str]:
    """Serve a simulation and yield its URL. Raises OSError if the port is taken or the kubeconfig cannot be written."""
    settings = simulation.settings
    runner = web.AppRunner(simulation.application(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port)
        await site.start()
        port = runner.addresses[0][1]
        url = f"http://{settings.host}:{port}"
        if settings.kubeconfig_out:
            kubeconfig.write(settings.kubeconfig_out, server=url, token=settings.token)
        yield url
    finally:
        await runner.cleanup()


async def serve(settings: Settings) -> None:
    """Run until SIGINT or SIGTERM. Raises OSError as ``serving`` does."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    simulation = Simulation(settings)
    # The objects of a big world live as long as the process: scanning them in each garbage collection takes 100 ms.
    gc.collect()
    gc.freeze()
    async with serving(simulation) as url:
        print(f"listening on {url}", flush=True)
        await stop.wait()
