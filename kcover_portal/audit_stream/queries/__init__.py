"""The records that sinks have not received yet."""

import heapq
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kcover import reasons
from kcover_portal.audit_stream.models import Issue, Refusal, Sink
from kcover_portal.audit_stream.queries import healing as healing, topics  # healing registers its topic
from kcover_portal.audit_stream.queries.topics import Record

MAX_RECORDS = 500  # in one batch
MAX_BYTES = 1024 * 1024  # of a batch's records as JSON, unless one record alone is larger
LAG_LATE = timedelta(minutes=5)  # age of the oldest record that a healthy sink has not received

JIRA = Sink.Kind.JIRA
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
    return [sink for sink in rows if any(heads.unread(sink)) or (sink.kind == JIRA and _to_close(sink, now=now))]


def _to_close(sink: Sink, *, now: datetime) -> bool:
    return Issue.objects.filter(sink=sink, closing=True, due_at__lte=now).exists()


def receiving(name: str, kind: str) -> Sink | None:
    """The enabled sink of this name and kind that takes signed messages; None without one."""
    return Sink.objects.filter(name=name, kind=kind, enabled=True).exclude(incoming_key="").first()


def issue_of(sink: Sink, key: str, *, number: str) -> Issue | None:
    """The issue that the sink has for a repair; None without one.

    ``number``: Jira's id. An issue that was moved to another project keeps it, and gets another key. Of an issue that
    was created before the portal kept ids, only the key is known.
    """
    rows = Issue.objects.filter(sink=sink)
    moved = rows.filter(number=number).first() if number else None
    return moved or (rows.filter(key=key, number="").first() if key else None)


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
    unread = list((heads or Heads()).unread(sink))
    first = itertools.chain.from_iterable(topics.TOPICS[topic].read(part, at, 1) for (topic, part), at, _ in unread)
    oldest = min((record.at for record in first), default=now)
    records = sum(topics.TOPICS[topic].between(part, at, newest) for (topic, part), at, newest in unread)
    return Lag(records=records, age=max(now - oldest, timedelta(0)))


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


def open_issue(sink: Sink) -> reasons.Reason | None:
    """Why the first issue of an ended repair is still open; None if there is none, or the sink has no issues."""
    if sink.kind != JIRA:
        return None
    row = Issue.objects.filter(sink=sink, closing=True, attempts__gt=0).order_by("pk").first()
    return reasons.both(reasons.of("jira_issue_open", issue=row.key), row.why) if row is not None else None


def set_aside(sink: Sink) -> reasons.Reason | None:
    """The records that the sink's receiver refused for good, with why the first was; None without any."""
    if sink.kind != Sink.Kind.MAIL:
        return None
    rows = Refusal.objects.filter(sink=sink).exclude(set_aside_at=None).order_by("pk")
    first, count = rows.first(), rows.count()
    if first is None:
        return None
    told = reasons.of("sink_set_aside", sink=sink.name, count=count, repair=str(first.repair))
    return reasons.both(told, first.why)


def count_set_aside(sink: Sink) -> int:
    """The number of records that the sink's receiver refused for good and that wait for a person."""
    return Refusal.objects.filter(sink=sink).exclude(set_aside_at=None).count()


def trouble(sink: Sink, found: Lag) -> reasons.Reason | None:
    """The problem of an enabled sink, for people; None if it keeps up."""
    if not sink.enabled:
        return None
    if not found.records:
        return open_issue(sink) or set_aside(sink)
    behind = reasons.of("sink_behind", sink=sink.name, count=found.records, span=reasons.span(found.age))
    if sink.why is not None:
        return reasons.both(behind, sink.why)
    return behind if found.late else None
