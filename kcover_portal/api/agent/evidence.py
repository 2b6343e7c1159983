"""Uploads of evidence: chunks of a bundle that the portal asked this node for.

Uploads have their own room in memory, their own rate for each node, and few places at the database. So they delay no
report, and a node that uploads too fast delays itself only.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qs

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from kcover import reasons
from kcover.evidence import bundle
from kcover_portal.api.agent.body_room import BodyRoom
from kcover_portal.api.agent.credentials import Credential
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.evidence import services

WANTED = reasons.of("evidence_wanted")
PARAMETERS = f"bundle (UUID), offset, size (at most {bundle.MAX_BYTES}), sha256 (64 hex digits) and age (seconds)"
CHUNKS_PER_SECOND, BURST_CHUNKS = 4, 24  # of one node: a whole bundle in chunks of 256 KiB, and some attempts
MAX_BUFFERED_BYTES = 16 << 20
MAX_BUFFERED_BYTES_PER_CREDENTIAL = 2 << 20  # an agent sends one chunk after the other
MAX_WRITERS = 4  # chunks that are stored at the same time
RETRY_AFTER = 5

NodeKey = tuple[int, str]  # key of the cluster, name of the node


class UploadRates(LeakyBuckets[NodeKey]):
    """The chunks of each node in the last seconds. ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(rate=CHUNKS_PER_SECOND, burst=BURST_CHUNKS, clock=clock)

    def admit(self, node: NodeKey) -> None:
        """Counts a chunk of the node. Raises Refusal (429) with the seconds to wait if it sent too many."""
        if wait := self.take(node):
            limit = reasons.of("evidence_rate", node=node[1], rate=CHUNKS_PER_SECOND)
            raise Refusal(429, limit, retry_after=math.ceil(wait))


class Uploads:
    """The uploads that one process receives."""

    def __init__(self) -> None:
        self.rates = UploadRates()
        self._room = BodyRoom()
        self._writers = asyncio.Semaphore(MAX_WRITERS)

    def room(self, credential: Credential) -> AbstractContextManager[Callable[[int], None]]:
        """Room for a chunk, see ``BodyRoom.take``. Raises NoRoom."""
        return self._room.take(credential.digest, total=MAX_BUFFERED_BYTES, each=MAX_BUFFERED_BYTES_PER_CREDENTIAL)

    async def keep(self, credential: Credential, upload: bundle.Upload, chunk: bytes) -> dict[str, Any]:
        """Stores a chunk and returns the answer. Raises Refusal (400, 404)."""
        async with self._writers:
            return await sync_to_async(_take, thread_sensitive=False)(credential, upload, chunk)


def read(query: bytes) -> bundle.Upload:
    """The upload that a query string describes. Raises Refusal (400)."""
    given: Mapping[str, list[str]] = parse_qs(query.decode("ascii", "replace"), keep_blank_values=True)
    try:
        return bundle.read_upload({name: values[0] for name, values in given.items()})
    except ValueError as error:
        raise Refusal(400, reasons.of("evidence_parameter", wanted=PARAMETERS), field=str(error)) from error


def _take(credential: Credential, upload: bundle.Upload, chunk: bytes) -> dict[str, Any]:
    close_old_connections()
    try:
        received = services.take(credential.cluster, credential.node, upload, chunk, now=timezone.now())
    except services.UnknownBundle as error:
        raise Refusal(404, error.reason, field="bundle") from error
    except services.AnotherBundle as error:
        raise Refusal(404, error.reason, field="sha256") from error
    except services.WrongChunk as error:
        raise Refusal(400, error.reason, field="body") from error
    return {"received": received, "complete": received == upload.size}
