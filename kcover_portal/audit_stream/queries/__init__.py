"""The records that sinks have not received yet."""

import heapq
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kcover import reasons
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.queries.topics import Record

MAX_RECORDS = 500  # in one batch
MAX_BYTES = 1024 * 1024  # of a batch's records as JSON, unless one record alone is larger
LAG_LATE = timedelta(minutes=5)  # age of the oldest record that a healthy sink has not received

Part = tuple[str, str]  # topic, part


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The number of records that a sink has not received, and the age of the oldest."""

    records: int
    age: timedelta

    @property
    def late(self) -> bool:
        """Returns whether the sink is so far behind that a person should look."""
        return self.age > LAG_LATE


def sinks() -> list[Sink]:
    """Every sink, by name."""
    return list(Sink.objects.order_by("name").prefetch_related("positions"))


def due(*, now: datetime) -> list[Sink]:
    """The sinks that may be tried now and have records to receive."""
    rows: QuerySet[Sink] = Sink.objects.filter(enabled=True, due_at__lte=now).prefetch_related("positions")
    heads = Heads()
    return [sink for sink in rows if any(heads.unread(sink))]


class Heads:
    """The newest record of each part, read once for several sinks."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, int]] = {}

    def unread(self, sink: Sink) -> Iterator[tuple[Part, int, int]]:
        """Yields (part, last received, newest) of each part with records for the sink."""
        received = {(row.topic, row.part): row.number for row in sink.positions.all()}
        for name in sink.topics:
            if name not in topics.TOPICS:
                continue
            if name not in self._of:
                self._of[name] = topics.TOPICS[name].heads()
            for part, newest in sorted(self._of[name].items()):
                before = received.get((name, part), 0)
                if before < newest:
                    yield (name, part), before, newest


def lag(sink: Sink, *, now: datetime, heads: Heads | None = None) -> Lag:
    """The lag of the sink."""
    unread = list((heads or Heads()).unread(sink))
    first = itertools.chain.from_iterable(topics.TOPICS[topic].read(part, at, 1) for (topic, part), at, _ in unread)
    oldest = min((record.at for record in first), default=now)
    return Lag(records=sum(newest - at for _, at, newest in unread), age=max(now - oldest, timedelta(0)))


def batch(sink: Sink, *, most: int = MAX_RECORDS) -> list[Record]:
    """The next records for the sink: each part in its order, the oldest first; at least one if there are any."""
    unread = list(Heads().unread(sink))
    share = max(1, most // max(len(unread), 1))
    parts: Iterable[Iterable[Record]] = [
        topics.TOPICS[topic].read(part, before, share) for (topic, part), before, _ in unread
    ]
    merged = itertools.islice(heapq.merge(*parts, key=lambda record: record.at), most)
    found: list[Record] = []
    size = 0
    for record in merged:
        size += len(json.dumps(record.line()))
        if found and size > MAX_BYTES:
            break
        found.append(record)
    return found


def trouble(sink: Sink, found: Lag) -> reasons.Reason | None:
    """The problem of an enabled sink, for people; None if it keeps up."""
    if not sink.enabled or not found.records:
        return None
    behind = reasons.of("sink_behind", sink=sink.name, count=found.records, span=reasons.span(found.age))
    if sink.why is not None:
        return reasons.both(behind, sink.why)
    return behind if found.late else None
