"""Digest, timeline and verification of a cluster's chain."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce

from kcover import reasons
from kcover.values import digests
from kcover_portal.ledger.models import Chain, Entry


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """The number of intact entries of a chain, and the first break, if any.

    ``broken_at`` is a sequence number. ``row`` is the id of the row that shows the break, None if the row is missing.
    """

    cluster: str
    entries: int
    broken_at: int | None = None
    because: reasons.Reason | None = None
    row: int | None = None

    @property
    def intact(self) -> bool:
        """True if the whole chain is intact."""
        return self.broken_at is None


@dataclass(frozen=True, slots=True)
class Position:
    """An entry of a chain up to which the chain is intact (0: its start), and the head that is verified."""

    cluster: str
    head: int
    head_digest: str
    sequence: int = 0
    digest: str = ""


def digest(entry: Entry) -> str:
    """Returns the SHA-256 over the previous digest, the entry's rescue and the digest of its content."""
    return link(entry.previous, digests.digest(named(entry)))


def named(entry: Entry) -> dict[str, Any]:
    """Returns what a proof shows of an entry of others: its rescue, so that none of its own can hide, and a digest."""
    return {"rescue": entry.rescue, "content": content_digest(entry)}


def link(previous: str, content: str) -> str:
    """Returns the digest of an entry by the digest of what it says."""
    return hashlib.sha256(f"{previous}:{content}".encode()).hexdigest()


def content_digest(entry: Entry) -> str:
    """Returns the SHA-256 over all fields of the entry but the digests, as canonical JSON."""
    return digests.digest(content(entry))


def content(entry: Entry) -> dict[str, Any]:
    """Returns all fields of the entry but the digests, as plain JSON."""
    return {
        "cluster": entry.cluster,
        "sequence": entry.sequence,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": entry.actor,
        "verb": entry.verb,
        "subject": entry.subject,
        "node": entry.node,
        "rescue": entry.rescue,
        "data": entry.data,
    }


def about(subjects: Collection[str], *, verbs: Collection[str], since: datetime, until: datetime) -> QuerySet[Entry]:
    """Returns the entries of all chains about the subjects, later than ``since`` and not later than ``until``.

    ``subjects``: as ``kcover.audit.subjects`` builds them.
    """
    return Entry.objects.filter(subject__in=subjects, verb__in=verbs, at__gt=since, at__lte=until)


def timeline(cluster: str, *, node: str = "", rescue: int | None = None) -> QuerySet[Entry]:
    """Returns the entries of a cluster, a node or a rescue, newest first."""
    entries = Entry.objects.filter(cluster=cluster)
    if node:
        entries = entries.filter(node=node)
    if rescue is not None:
        entries = entries.filter(rescue=rescue)
    return entries.order_by("-id")


def chains() -> list[str]:
    """Returns the clusters that have a chain, even without a head; "" is the installation."""
    heads = Chain.objects.values_list("cluster", flat=True)
    return sorted({*heads, *Entry.objects.order_by().values_list("cluster", flat=True).distinct()})


def heads() -> list[tuple[str, int, str]]:
    """Returns cluster, sequence number and digest of the head of every chain."""
    return list(Chain.objects.order_by("cluster").values_list("cluster", "sequence", "digest"))


def verify(cluster: str) -> ChainCheck:
    """Verifies one chain from its first entry."""
    found: Position | ChainCheck = start(cluster)
    while isinstance(found, Position):
        found = verify_part(found)
    return found


def start(cluster: str) -> Position:
    """Returns the start of a chain and its present head: entries that are appended later are not verified."""
    head = Chain.objects.filter(cluster=cluster).first() or Chain(cluster=cluster)
    return Position(cluster, head.sequence, head.digest)


def verify_part(position: Position, *, most: int = 1000) -> Position | ChainCheck:
    """Verifies the next ``most`` entries. Returns the position after them, or the verdict at a break or the end."""
    rows = Entry.objects.filter(cluster=position.cluster, sequence__lte=position.head)
    if position.sequence:
        rows = rows.filter(sequence__gt=position.sequence)
    number, previous = position.sequence, position.digest
    for entry in rows.order_by("sequence")[:most]:
        because = None
        if entry.sequence != number + 1:
            because = reasons.of("chain_entry_missing", number=str(number + 1))
        elif entry.previous != previous:
            because = reasons.of("chain_out_of_order")
        elif entry.digest not in (digest(entry), link(entry.previous, content_digest(entry))):
            because = reasons.of("chain_entry_changed")
        if because is not None:
            return ChainCheck(position.cluster, number, number + 1, because, entry.pk)
        previous, number = entry.digest, number + 1
    after = replace(position, sequence=number, digest=previous)
    return after if number - position.sequence == most else _end(after)


def _end(position: Position) -> ChainCheck:
    """The verdict on a chain whose entries are intact."""
    cluster, number = position.cluster, position.sequence
    if (position.head, position.head_digest) != (number, position.digest):
        return ChainCheck(cluster, number, number + 1, reasons.of("chain_head_differs"))
    # One statement, so that a concurrent append is seen completely or not at all.
    current = Chain.objects.filter(cluster=cluster).values("sequence")
    beyond = Entry.objects.filter(cluster=cluster, sequence__gt=Coalesce(Subquery(current), 0))
    stray = beyond.order_by("sequence").first()
    if stray is not None:
        return ChainCheck(cluster, number, stray.sequence, reasons.of("chain_beyond_head"), stray.pk)
    return ChainCheck(cluster, number)
