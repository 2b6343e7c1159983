"""Reading the ledger, and proving that nobody rewrote it."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC

from django.db.models import QuerySet

from kcover_portal.ledger.models import Chain, Entry


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many entries of a chain hold, and what is wrong with the first that does not."""

    cluster: str
    entries: int
    broken_at: int | None = None
    because: str = ""

    @property
    def intact(self) -> bool:
        """Whether every link holds."""
        return self.broken_at is None


def digest(entry: Entry) -> str:
    """SHA-256 over the entry before and every field of this one, in a canonical form."""
    content = [
        entry.previous,
        entry.cluster,
        entry.sequence,
        entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        entry.actor,
        entry.verb,
        entry.subject,
        entry.node,
        entry.rescue,
        entry.data,
    ]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def timeline(cluster: str, *, node: str = "", rescue: int | None = None) -> QuerySet[Entry]:
    """Entries, newest first, of a cluster, one of its nodes, or one rescue."""
    entries = Entry.objects.filter(cluster=cluster)
    if node:
        entries = entries.filter(node=node)
    if rescue is not None:
        entries = entries.filter(rescue=rescue)
    return entries.order_by("-id")


def chains() -> list[str]:
    """The clusters that have a chain; "" is the installation's own."""
    return list(Chain.objects.order_by("cluster").values_list("cluster", flat=True))


def verify(cluster: str) -> Verdict:
    """Walks one chain from its first entry; reads it in pieces, so that a long one fits in memory."""
    previous, expected = "", 1
    for entry in Entry.objects.filter(cluster=cluster).order_by("sequence").iterator(chunk_size=1000):
        if entry.sequence != expected:
            return Verdict(cluster, expected - 1, expected, f"entry {expected} is missing")
        if entry.previous != previous:
            return Verdict(cluster, expected - 1, expected, "it does not follow the entry before it")
        if digest(entry) != entry.digest:
            return Verdict(cluster, expected - 1, expected, "it was changed after it was written")
        previous, expected = entry.digest, expected + 1
    head = Chain.objects.filter(cluster=cluster).first()
    if head is not None and (head.sequence, head.digest) != (expected - 1, previous):
        return Verdict(cluster, expected - 1, expected, "the newest entries are missing")
    return Verdict(cluster, expected - 1)
