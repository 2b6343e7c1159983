"""The long poll for commands. Database queries are shared by all waiting agents.

The polls of a node are bounded, so that a stolen credential cannot take the connections of the other nodes.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from django.db import close_old_connections
from django.utils import timezone

from kcover import reasons
from kcover.faults.fault import Command
from kcover_portal.api.agent.group_commit import GroupCommit
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.agent.report_rates import NodeKey
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.lib.prepared import Prepared

POLL_SECONDS = 0.25  # between polls of the database while agents wait
MAX_OPEN_POLLS = 4  # of one node; two agents may run on it, and each may have lost a connection
STOP_SECONDS = 1.5  # in which the open polls end when the process stops: less than its graceful shutdown
POLLS_PER_SECOND, BURST_POLLS = 20, 200  # of one node; an agent polls again after each command


class Polls:
    """The waiting polls of one process, by node. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self._open: defaultdict[NodeKey, list[asyncio.Timeout]] = defaultdict(list)  # oldest first
        self.rates: LeakyBuckets[NodeKey] = LeakyBuckets(rate=POLLS_PER_SECOND, burst=BURST_POLLS, clock=clock)
        self._watcher: asyncio.Task[None] | None = None
        self._stops = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="offers")
        self._lookups: GroupCommit[tuple[int, str], tuple[int | None, list[Command]]] = GroupCommit(
            _commands_of, name="commands"
        )

    async def wait(self, cluster_id: int, name: str, *, seconds: float) -> list[Command]:
        """Returns the commands on offer for a node. Waits up to ``seconds`` for one; returns [] if none arrives.

        If the node has too many open polls, its oldest one ends. Raises Refusal (429) if it polls too often.
        """
        key = cluster_id, name
        if pause := self.rates.take(key):
            limit = reasons.of("poll_rate", node=name, rate=POLLS_PER_SECOND, burst=BURST_POLLS)
            raise Refusal(429, limit, retry_after=math.ceil(pause))
        node_id, offered = await self._lookups.ask(key, at_once=True)
        if offered or seconds <= 0 or self._stops:
            return offered
        try:
            async with self._place(key, seconds=seconds):
                if node_id is None:
                    await asyncio.sleep(min(seconds, 5.0))  # avoids a tight loop of a node that never reported
                    return []
                return await self._offered(node_id, key)
        except TimeoutError:
            return []

    def stop(self) -> None:
        """Ends the open polls one after the other within STOP_SECONDS, and later ones at once.

        Their agents connect to another process. If all did at the same moment, other requests would wait there.
        """
        if self._stops:
            return
        self._stops = True
        limits = [limit for polls in self._open.values() for limit in polls]
        now = asyncio.get_running_loop().time()
        for index, limit in enumerate(limits):
            limit.reschedule(now + STOP_SECONDS * index / len(limits))

    @asynccontextmanager
    async def _place(self, node: NodeKey, *, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError after ``seconds``, or once the node has too many newer polls."""
        async with asyncio.timeout(seconds) as limit:
            polls = self._open[node]
            polls.append(limit)
            if len(polls) > MAX_OPEN_POLLS:
                polls.pop(0).reschedule(asyncio.get_running_loop().time())
            try:
                yield
            finally:
                if limit in polls:
                    polls.remove(limit)
                if not polls:
                    self._open.pop(node, None)

    async def _offered(self, node_id: int, node: NodeKey) -> list[Command]:
        """Waits until a command is on offer."""
        wake_up = asyncio.Event()
        self._waiting[node_id].add(wake_up)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        offered: list[Command] = []
        try:
            while not offered:  # commands that are withheld in a pause wake it too
                await wake_up.wait()
                wake_up.clear()
                _, offered = await self._lookups.ask(node, at_once=True)
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
    if len(names) == 1:
        ((of, name),) = names
        rows: Iterable[tuple[int, int, str]] = _NODE.rows(cluster=of, name=name)
    else:
        among = Node.objects.filter(cluster__in={of for of, _ in names}, name__in={name for _, name in names})
        rows = among.order_by().values_list("pk", "cluster_id", "name")
    ids = {(cluster, name): pk for pk, cluster, name in rows}
    offered = fleet.commands_on_offer(list(ids.values()), now=timezone.now())
    return [(pk, offered.get(pk, []) if pk else []) for pk in (ids.get(key) for key in names)]


_NODE: Prepared[tuple[int, int, str]] = Prepared(
    lambda cluster, name: (
        Node.objects.order_by().filter(cluster=cluster, name=name).values_list("pk", "cluster_id", "name")
    ),
    cluster=int,
    name=str,
)


def _nodes_with_offers() -> set[int]:
    close_old_connections()
    return fleet.nodes_with_offers(now=timezone.now())
