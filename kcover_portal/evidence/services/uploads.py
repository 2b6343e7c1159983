"""Store the chunks of a bundle.

The portal asked for each bundle, so a node stores at most one bundle of ``bundle.MAX_BYTES`` for each request. A chunk
that comes twice, or too early, stores nothing: the answer says how many bytes are stored, and the agent continues from
there. The bundle counts once its bytes have the hash that was announced with the first chunk.
"""

import hashlib
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from kcover import audit, reasons
from kcover.evidence import bundle as core
from kcover_portal.evidence import queries
from kcover_portal.evidence.models import Bundle, Chunk
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell

MIN_CHUNK_BYTES = 64 << 10  # except for the last one
MAX_RESTARTS = 3  # of one upload; then the bundle is given up


class UnknownBundle(reasons.ExplainedError):
    """The portal did not ask this node for the bundle, or does not wait for it any more."""


class AnotherBundle(reasons.ExplainedError):
    """The upload has begun with another size or hash."""


class WrongChunk(reasons.ExplainedError):
    """The chunk is larger than the rest of its bundle, or too small."""


def take(cluster: Cluster, node: str, upload: core.Upload, chunk: bytes, *, now: datetime) -> int:
    """Stores a chunk from a node; returns how many bytes of the bundle are stored. Durable when it returns.

    Raises UnknownBundle, AnotherBundle, WrongChunk.
    """
    with transaction.atomic(), ledger.last():
        row = (
            Bundle.objects.select_for_update(no_key=True, of=("self",))
            .filter(pk=upload.bundle, node__cluster=cluster, node__name=node)
            .select_related("node")
            .first()
        )
        if row is None or (row.state == Bundle.State.REQUESTED and _is_late(row, now=now)):
            raise UnknownBundle(reasons.of("evidence_not_wanted", bundle=str(upload.bundle)))
        if row.sha256 and (row.sha256, row.size) != (upload.sha256, upload.size):
            raise AnotherBundle(reasons.of("evidence_differs", bundle=str(upload.bundle)))
        if row.state == Bundle.State.MISSED:
            raise UnknownBundle(reasons.of("evidence_not_wanted", bundle=str(upload.bundle)))
        if row.state != Bundle.State.REQUESTED:  # stored, or stored and deleted since: the agent may delete its copy
            return row.size
        if upload.offset != row.received:
            return row.received
        _check_length(len(chunk), left=upload.size - upload.offset)
        Chunk.objects.create(bundle=row, offset=upload.offset, data=chunk)
        row.sha256, row.size, row.received = upload.sha256, upload.size, row.received + len(chunk)
        row.taken_at = row.taken_at or max(now - timedelta(seconds=upload.age), row.requested_at)
        if row.received == row.size:
            _complete(row, cluster, now=now)
        row.save(update_fields=["sha256", "size", "received", "restarts", "taken_at", "kept_at", "state"])
        return row.received


def _check_length(length: int, *, left: int) -> None:
    """Raises WrongChunk. Short chunks would make many rows."""
    if length > left:
        raise WrongChunk(reasons.of("evidence_chunk_too_long", bytes=length, limit=left))
    if length < min(left, MIN_CHUNK_BYTES):
        raise WrongChunk(reasons.of("evidence_chunk_too_short", bytes=length, least=MIN_CHUNK_BYTES))


def _is_late(row: Bundle, *, now: datetime) -> bool:
    return now - row.requested_at > queries.UPLOAD_TIME_LIMIT


def _complete(row: Bundle, cluster: Cluster, *, now: datetime) -> None:
    """Keeps the bundle if its bytes have the announced hash, else begins again or gives it up."""
    digest = hashlib.sha256()
    for data in queries.content(row):
        digest.update(data)
    if digest.hexdigest() != row.sha256:
        row.chunks.all().delete()
        row.received, row.restarts = 0, row.restarts + 1
        if row.restarts >= MAX_RESTARTS:
            row.state = Bundle.State.MISSED
            doorbell.ring("rescue.nudge", row.node_id)
        return
    row.state, row.kept_at = Bundle.State.KEPT, now
    kept = audit.EvidenceKept(
        rescue=row.rescue, node=row.node.name, number=row.number, sha256=row.sha256, size=row.size
    )
    ledger.record(cluster.name, kept, actor=f"agent:{row.node.name}"[: ledger.MAX_ACTOR_CHARACTERS], now=now)
    doorbell.publish("rescue", row.rescue, cluster=cluster.name)
    doorbell.ring("rescue.nudge", row.node_id)
    if queries.stored_bytes() + row.received > settings.KCOVER_EVIDENCE_MIB << 20:
        doorbell.ring("evidence.prune")
