"""The long poll for commands: any number of agents wait, and whatever is asked of the database is asked for all."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from kcover.faults.fault import Command
from kcover_portal.api.agent.group_commit import Gathering
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node

BEAT = 0.25  # seconds between looks while anyone waits


class Polls:
    """The waiting polls of one process, by node."""

    def __init__(self) -> None:
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._watcher: asyncio.Task[None] | None = None
        self._looks: Gathering[tuple[int, str], tuple[int | None, list[Command]]] = Gathering(_look, name="commands")

    async def wait(self, cluster_id: int, name: str, *, seconds: float) -> list[Command]:
        """The commands on offer for a node: at once if there are any, else as soon as there are, else none."""
        node_id, offered = await self._looks.ask((cluster_id, name), at_once=True)
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
                while not offered:  # what is withheld in a pause rings too
                    await rung.wait()
                    rung.clear()
                    _, offered = await self._looks.ask((cluster_id, name), at_once=True)
        except (TimeoutError, asyncio.CancelledError):
            return []  # cancelled: the server is going down, and nothing to do is a fair answer
        finally:
            self._waiting[node_id].discard(rung)
            if not self._waiting[node_id]:
                del self._waiting[node_id]
        return offered

    async def _watch(self) -> None:
        while self._waiting:
            await asyncio.sleep(BEAT)
            for node_id in await _asked():
                for rung in self._waiting.get(node_id, ()):
                    rung.set()


def _look(asked: Sequence[tuple[int, str]]) -> list[tuple[int | None, list[Command]]]:
    """For each node its key, None if it never was heard of, and the commands on offer."""
    close_old_connections()
    rows = Node.objects.filter(cluster__in={of for of, _ in asked}, name__in={name for _, name in asked})
    ids = {(cluster, name): pk for pk, cluster, name in rows.values_list("pk", "cluster_id", "name")}
    offered = fleet.commands_on_offer(list(ids.values()), now=timezone.now())
    return [(pk, offered.get(pk, []) if pk else []) for pk in (ids.get(one) for one in asked)]


@sync_to_async(thread_sensitive=False)
def _asked() -> set[int]:
    close_old_connections()
    return fleet.nodes_asked(now=timezone.now())
