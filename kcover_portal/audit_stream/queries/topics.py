"""Topics: ordered sources of records.

A topic has parts. Within a part, records have rising numbers and become visible in that order, so that a position is
one number and no record is ever skipped. To add a topic, register it in ``AppConfig.ready`` of its app.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kcover.values import masked_addresses
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry

AUDIT: Final = "audit"
TICKETS: Final = "tickets"  # of the repairs, which register it


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record; ``document`` is plain JSON."""

    topic: str
    part: str
    number: int
    at: datetime
    document: dict[str, Any]

    def line(self) -> dict[str, Any]:
        """The record as sinks receive it. ``id`` is unique, so that a receiver can drop repeats."""
        return {"topic": self.topic, "id": f"{self.topic}/{self.part}/{self.number}", **self.document}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """``heads``: the newest number of each part. ``read``: at most ``most`` records of a part after a number.

    ``count``: the number of records of a part between two numbers, without the first; None: numbers have no gaps.
    """

    name: str
    heads: Callable[[], dict[str, int]]
    read: Callable[[str, int, int], Sequence[Record]]
    count: Callable[[str, int, int], int] | None = None

    def between(self, part: str, after: int, newest: int) -> int:
        """The number of records of a part after ``after``, up to ``newest``."""
        return newest - after if self.count is None else self.count(part, after, newest)


TOPICS: dict[str, Topic] = {}


def register(topic: Topic) -> None:
    """Adds a topic that sinks can name."""
    TOPICS[topic.name] = topic


def _heads() -> dict[str, int]:
    return {cluster: sequence for cluster, sequence, _ in ledger.heads()}


def _read(cluster: str, after: int, most: int) -> list[Record]:
    rows = Entry.objects.filter(cluster=cluster, sequence__gt=after).order_by("sequence")
    return [_record(row) for row in rows[:most]]


def _record(row: Entry) -> Record:
    content = ledger.content(row)
    document = {**content, "data": masked_addresses.mask(content["data"]), "digest": row.digest}
    return Record(topic=AUDIT, part=row.cluster, number=row.sequence, at=row.at, document=document)


# The chain's lock is held until commit, so its numbers have no gaps and become visible in order.
register(Topic(name=AUDIT, heads=_heads, read=_read))
