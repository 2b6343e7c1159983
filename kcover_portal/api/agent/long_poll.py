"""The long poll for commands. Database queries are shared by all waiting agents."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from django.db import close_old_connections
from django.utils import timezone

from kcover.faults.fault import Command
from kcover_portal.api.agent.group_commit import GroupCommit
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node

POLL_SECONDS = 0.25  # between polls of the database while agents wait


class Polls:
    """The waiting polls of one process, by node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._watcher: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offers")
        self._lookups: GroupCommit[tuple[int, str], tuple[int | None, list[Command]]] = GroupCommit(
            _commands_of, name="commands"
        )

    async def wait(self, cluster_id: int, name: str, *, seconds: float) -> list[Command]:
        """Returns the commands on offer for a node. Waits up to ``seconds`` for one; returns [] if none arrives."""
        node_id, offered = await self._lookups.ask((cluster_id, name), at_once=True)
        if offered or seconds <= 0 or node_id is None:
            if not offered and seconds > 0:
                await asyncio.sleep(min(seconds, 5.0))  # avoids a tight loop of a node that never reported
            return offered
        wake_up = asyncio.Event()
        self._waiting[node_id].add(wake_up)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(seconds):
                while not offered:  # commands that are withheld in a pause wake it too
                    await wake_up.wait()
                    wake_up.clear()
                    _, offered = await self._lookups.ask((cluster_id, name), at_once=True)
        except (TimeoutError, asyncio.CancelledError):
            return []  # cancelled: the server is shutting down
        finally:
            self._waiting[node_id].discard(wake_up)
            if not self._waiting[node_id]:
                del self._waiting[node_id]
        return offered

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            for node_id in await asyncio.get_running_loop().run_in_executor(self._thread, _nodes_with_offers):
                for wake_up in self._waiting.get(node_id, ()):
                    wake_up.set()


def _commands_of(names: Sequence[tuple[int, str]]) -> list[tuple[int | None, list[Command]]]:
    """Returns for each (cluster, name) the node's id, None if unknown, and its commands on offer."""
    close_old_connections()
    rows = Node.objects.filter(cluster__in={of for of, _ in names}, name__in={name for _, name in names})
    ids = {(cluster, name): pk for pk, cluster, name in rows.values_list("pk", "cluster_id", "name")}
    offered = fleet.commands_on_offer(list(ids.values()), now=timezone.now())
    return [(pk, offered.get(pk, []) if pk else []) for pk in (ids.get(key) for key in names)]


def _nodes_with_offers() -> set[int]:
    close_old_connections()
    return fleet.nodes_with_offers(now=timezone.now())
