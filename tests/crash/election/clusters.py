"""The API servers of the clusters in which portals compete, all in one thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from aiohttp import web

from simulator.kubeapi import access, server, store
from tests.crash.election.names import LEASE, NAMESPACE
from tests.crash.election.points import Case

T = TypeVar("T")
ADMIN = "admin-token"
MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Clusters:
    """One API server for each case."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, servers: Sequence[server.ApiServer], urls: Sequence[str]
    ) -> None:
        self._loop, self._servers = loop, servers
        self.urls = urls

    def prepare(self, number: int, *, expired: bool) -> None:
        """There is no Lease, or one of a portal that has died."""

        def act() -> None:
            objects = self._servers[number].store
            if objects.find("Lease", NAMESPACE, LEASE) is not None:
                objects.delete("Lease", NAMESPACE, LEASE)
            if expired:
                renewed = (datetime.now(UTC) - timedelta(hours=1)).strftime(MICRO_TIME)
                spec = {"holderIdentity": "died", "leaseDurationSeconds": 1, "renewTime": renewed}
                metadata = {"name": LEASE, "namespace": NAMESPACE}
                objects.create("Lease", {"metadata": metadata, "spec": spec})

        self._inside(act)

    def plan(self, number: int, case: Case) -> None:
        """Plans the failure of the next call that matches."""
        self._inside(lambda: self._servers[number].faults.add(case.fault()))

    def struck(self, number: int) -> bool:
        """Returns whether the planned failure has met its call, which may still be held."""
        return not self._inside(self._servers[number].faults.pending)

    def let_go(self) -> None:
        """Lets all held calls go on."""
        for one in self._servers:
            self._inside(one.faults.clear)

    def holder(self, number: int) -> str:
        """The holder of the Lease; "" if there is none."""

        def look() -> str:
            found = self._servers[number].store.find("Lease", NAMESPACE, LEASE)
            return str(found["spec"]["holderIdentity"]) if found else ""

        return self._inside(look)

    def _inside(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)


@contextlib.contextmanager
def running(count: int) -> Iterator[Clusters]:
    """So many API servers without nodes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="clusters", daemon=True)
    thread.start()
    servers = [_server() for _ in range(count)]

    async def start() -> list[web.AppRunner]:
        runners = [web.AppRunner(one.application(), shutdown_timeout=1, access_log=None) for one in servers]
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runners

    async def stop() -> None:
        await asyncio.gather(*(runner.cleanup() for runner in runners))

    runners = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield Clusters(loop, servers, [f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in runners])
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _server() -> server.ApiServer:
    made = server.ApiServer(store.Store(now=lambda: datetime.now(UTC)), tokens={ADMIN: access.ADMIN})
    made.store.create("Namespace", {"metadata": {"name": NAMESPACE}})
    return made
