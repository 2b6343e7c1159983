"""The long poll for commands: any number of agents wait, one query a beat looks for all of them."""

import asyncio
from collections import defaultdict

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from kcover.fault import Command
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node

BEAT = 0.25  # seconds between looks while anyone waits


class Polls:
    """The waiting polls of one process, by node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._watcher: asyncio.Task[None] | None = None

    async def wait(self, cluster_id: int, name: str, *, seconds: float) -> list[Command]:
        """The commands on offer for a node: at once if there are any, else as soon as there are, else none."""
        node_id, offered = await _look(cluster_id, name)
        if offered or seconds <= 0 or node_id is None:
            if not offered and seconds > 0:
                await asyncio.sleep(min(seconds, 5.0))  # a node that never reported: no tight loop
            return offered
        rung = asyncio.Event()
        self._waiting[node_id].add(rung)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(seconds):
                await rung.wait()
        except (TimeoutError, asyncio.CancelledError):
            return []  # cancelled: the server is going down, and nothing to do is a fair answer
        finally:
            self._waiting[node_id].discard(rung)
            if not self._waiting[node_id]:
                del self._waiting[node_id]
        return (await _look(cluster_id, name))[1]

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(BEAT)
            for node_id in await _asked(list(self._waiting)):
                for rung in self._waiting.get(node_id, ()):
                    rung.set()


@sync_to_async(thread_sensitive=False)
def _look(cluster_id: int, name: str) -> tuple[int | None, list[Command]]:
    close_old_connections()
    node = Node.objects.filter(cluster_id=cluster_id, name=name).first()
    if node is None:
        return None, []
    return node.pk, fleet.commands_on_offer(node, now=timezone.now())


@sync_to_async(thread_sensitive=False)
def _asked(node_ids: list[int]) -> set[int]:
    close_old_connections()
    return fleet.nodes_asked(node_ids, now=timezone.now())
