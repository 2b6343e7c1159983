"""One cluster's chain: its digest, its timeline, and the proof that nobody rewrote it."""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC

from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce

from kcover_portal.ledger.models import Chain, Entry


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many entries of a chain hold, and what is wrong with the first that does not.

    ``broken_at`` is a place in the chain, ``row`` the id of the row that shows it; None where the row is gone.
    """

    cluster: str
    entries: int
    broken_at: int | None = None
    because: str = ""
    row: int | None = None

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
    """The clusters that have a chain; "" is the installation's own. One whose head was taken away is named too."""
    heads = Chain.objects.values_list("cluster", flat=True)
    return sorted({*heads, *Entry.objects.order_by().values_list("cluster", flat=True).distinct()})


def verify(cluster: str) -> Verdict:
    """Walks one chain from its first entry, however long: rows come through a cursor, a thousand at a time.

    What is appended meanwhile is left for the next walk: the head is read first.
    """
    head = Chain.objects.filter(cluster=cluster).first() or Chain(cluster=cluster)
    previous, expected = "", 1
    entries = Entry.objects.filter(cluster=cluster, sequence__lte=head.sequence).order_by("sequence")
    for entry in entries.iterator(chunk_size=1000):
        because = ""
        if entry.sequence != expected:
            because = f"entry {expected} is missing"
        elif entry.previous != previous:
            because = "it does not follow the entry before it: rows were swapped, or one was replaced"
        elif digest(entry) != entry.digest:
            because = "it was changed after it was written"
        if because:
            return Verdict(cluster, expected - 1, expected, because, entry.pk)
        previous, expected = entry.digest, expected + 1
    if (head.sequence, head.digest) != (expected - 1, previous):
        return Verdict(
            cluster, expected - 1, expected, "the newest entries are missing, or the chain's head was changed"
        )
    # One statement, so that an append in this very moment is seen whole or not at all.
    current = Chain.objects.filter(cluster=cluster).values("sequence")
    beyond = Entry.objects.filter(cluster=cluster, sequence__gt=Coalesce(Subquery(current), 0))
    stray = beyond.order_by("sequence").first()
    if stray is not None:
        because = "the chain's head does not know of it: it was put in, or the head was set back"
        return Verdict(cluster, expected - 1, stray.sequence, because, stray.pk)
    return Verdict(cluster, expected - 1)
