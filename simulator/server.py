"""A whole simulation: API server, world, agents and switches in one event loop, and how it is started and ended."""

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

from simulator import control
from simulator.kubeapi import access, kubeconfig, server, store
from simulator.world import agenda, live, virtual_agents, world
from simulator.world.pace import Pace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a simulation is made of. ``portal`` None starts no agents; ``faults_per_hour`` 0 leaves the fleet alone.

    ``token`` is the bearer token of the Kubernetes API, which also lets callers without one in: kubectl sends none over
    plain HTTP. The simulator is nothing to protect; it listens on this machine only, unless told otherwise.
    """

    host: str = "127.0.0.1"
    port: int = 8001
    size: world.Size = field(default_factory=world.Size)
    pace: Pace = field(default_factory=Pace)
    seed: int = 0
    kubeconfig_out: Path | None = None
    portal: str | None = None
    enrol_token_file: Path | None = None
    cluster: str | None = None
    heartbeat: float = 30.0
    faults_per_hour: float = 0.0
    preset: str = "mid"
    noise: str = "mixed"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class Simulation:
    """One simulated cluster. ``application`` serves it; the world moves while that runs."""

    def __init__(self, settings: Settings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.settings = settings
        rng = random.Random(settings.seed)
        self.store = store.Store(now=now)
        self.api = server.ApiServer(self.store, tokens={settings.token: access.ADMIN}, anonymous=True)
        self.agenda = agenda.Agenda(now=now)
        self.world = world.build(self.store, self.agenda, size=settings.size, pace=settings.pace, rng=rng)
        self.fleet = virtual_agents.Fleet(
            self.world.gpu_machines(), clock=now, heartbeat=timedelta(seconds=settings.heartbeat), rng=rng
        )
        self.weather: live.Weather | None = None
        if settings.faults_per_hour:
            self.weather = live.Weather(
                self.world,
                rng,
                faults_per_hour=settings.faults_per_hour,
                preset=settings.preset,
                noise=settings.noise,
            )

    def application(self) -> web.Application:
        """Kubernetes' paths and ``/sim``."""
        app = self.api.application()
        control.Control(self.world, self.api, fleet=self.fleet, weather=self.weather).add_routes(app)
        app.cleanup_ctx.append(self._moving)
        return app

    async def _moving(self, app: web.Application) -> AsyncIterator[None]:
        works: list[Coroutine[Any, Any, None]] = [self.agenda.run()]
        settings = self.settings
        if settings.portal and settings.enrol_token_file:
            works.append(
                self.fleet.begin(settings.portal, token_file=settings.enrol_token_file, cluster=settings.cluster)
            )
        if self.weather is not None:
            self.weather.start()
        tasks = [asyncio.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("the world stopped moving: %r", ended)
        await self.fleet.end()


@contextlib.asynccontextmanager
async def serving(simulation: Simulation) -> AsyncIterator[str]:
    """Serve a simulation; gives its URL. Raises OSError when the port cannot be had or the kubeconfig not written."""
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
    """Run until SIGINT or SIGTERM. Raises OSError as ``serving``."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    simulation = Simulation(settings)
    # A big world's objects live as long as the process: looking through them again at each collection costs 100 ms.
    gc.collect()
    gc.freeze()
    async with serving(simulation) as url:
        print(f"listening on {url}", flush=True)
        await stop.wait()
