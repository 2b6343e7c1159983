"""Reads Loki: windows that overlap, page by page, each query from a position of its own.

Lines arrive late at a log store. Each window therefore begins ``lateness`` before the end of the last one, and a line
that was read before changes nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from kcover import reasons
from kcover.sources import log_lines, loki
from kcover.sources.observation import ObservationBatch, Rejected
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, pull_position, source_faults
from kcover_portal.sources.services.pull_position import Clock
from kcover_portal.sources.services.pull_request import TooLarge, ask, headers_of

PATH: Final = "/loki/api/v1/query_range"
WINDOW: Final = 600 * log_lines.SECOND  # nanoseconds, so that a long outage is caught up piece by piece
MAX_PAGES_PER_QUERY: Final = 8  # of each query in one turn
MAX_TURN: Final = timedelta(seconds=20)  # then each query reads the page that it has begun, and no further one
NARROWEST: Final = log_lines.SECOND // 1_000


@dataclass(slots=True, kw_only=True)
class Position:
    """Up to where a query was read, in nanoseconds.

    ``page``: where the next page of the window that ends at ``end`` begins; 0 between windows. ``floor``: lines before
    were too large to read.
    """

    until: int
    page: int = 0
    end: int = 0
    floor: int = 0

    def to_json(self) -> dict[str, int]:
        """The position as the source's row stores it."""
        return {"until": self.until, "page": self.page, "end": self.end, "floor": self.floor}


def read(source: Source, *, clock: Clock) -> bool:
    """Reads what is new of each query. Returns whether there is more to read at once."""
    headers, until = headers_of(source), clock() + MAX_TURN
    behind = [_read_query(source, query, headers, clock=clock, until=until) for query in loki.queries(source.settings)]
    return any(behind)


def _read_query(source: Source, query: loki.Query, headers: dict[str, str], *, clock: Clock, until: datetime) -> bool:
    for _ in range(MAX_PAGES_PER_QUERY if query.most > 1 else 1):
        now = clock()
        if not _turn(source, query, headers, now=now):
            return False
        if now >= until:
            break
    return query.most > 1


def _turn(source: Source, query: loki.Query, headers: dict[str, str], *, now: datetime) -> bool:
    """Reads one page and stores it with the position behind it. Returns whether there are more."""
    lateness = source.settings.get("lateness", loki.LATENESS_SECONDS) * log_lines.SECOND
    present = log_lines.nanoseconds(now)
    position = _position(
        source, query, first=present - lateness, oldest=log_lines.nanoseconds(now - source_faults.MAX_AGE)
    )
    if not position.page:
        position.page = max(position.until - lateness, position.floor)
        position.end = min(present, position.until + WINDOW)
    before = position.until
    page, covered, lost = _page(source, query, position, headers, now=now)
    if covered < position.end:
        position.page = covered
    else:
        position.until, position.page, position.end = max(position.end, before), 0, 0
    if lost:
        position.floor = covered
    with transaction.atomic():
        intake.take(source, page.batch, counted_until=log_lines.moment(before), now=now)
        pull_position.store(source, {**source.cursor, query.name: position.to_json()})
    return bool(position.page) or position.until < present


def _position(source: Source, query: loki.Query, *, first: int, oldest: int) -> Position:
    """The stored position; what is older than a day cannot open an incident and is not read."""
    stored = source.cursor.get(query.name) or {"until": first}
    position = Position(**stored)
    if position.until < oldest:
        return Position(until=oldest)
    return position


def _page(
    source: Source, query: loki.Query, position: Position, headers: dict[str, str], *, now: datetime
) -> tuple[loki.Page, int, bool]:
    """The next lines, up to where they were read, and whether there are lines that were too large to read."""
    begin, end = position.page, position.end
    labels = source.settings.get("node_label", loki.NODE_LABELS)
    while True:
        try:
            body = _ask(source, query, begin, end, headers)
        except TooLarge:
            if end - begin > NARROWEST:
                end = begin + (end - begin) // 8
                continue
            reason = reasons.of("loki_lines_too_large", **_span(begin, end))
            return _rejecting(reason), end, True
        page = loki.read(body, query, node_labels=labels, counted_until=position.until, now=now)
        if page.lines < loki.LIMIT:
            return page, end, False
        if page.last > begin:  # the last line is read again: others may have its time
            return page, page.last, False
        full = Rejected("", reasons.of("loki_page_full", most=loki.LIMIT, at=reasons.moment(log_lines.moment(begin))))
        batch = replace(page.batch, rejected=(*page.batch.rejected, full))
        return replace(page, batch=batch), begin + 1, False


def _rejecting(reason: reasons.Reason) -> loki.Page:
    return loki.Page(batch=ObservationBatch(rejected=(Rejected("", reason),)), lines=0, last=0)


def _span(begin: int, end: int) -> dict[str, reasons.Value]:
    return {"start": reasons.moment(log_lines.moment(begin)), "end": reasons.moment(log_lines.moment(end))}


def _ask(source: Source, query: loki.Query, begin: int, end: int, headers: dict[str, str]) -> Any:
    asked = {"query": query.logql, "start": str(begin), "end": str(end), "limit": str(query.most)}
    return ask(source.url, PATH, {**asked, "direction": "forward"}, headers=headers)


def seen(source: Source, *, since: timedelta, now: datetime) -> int:
    """The number of faults in the lines since then, of the first page of each query."""
    begin, end = log_lines.nanoseconds(now - since), log_lines.nanoseconds(now)
    position = Position(until=begin, page=begin, end=end)
    headers = headers_of(source)
    pages = (_page(source, query, position, headers, now=now)[0] for query in loki.queries(source.settings))
    return sum(len(page.batch.observations) for page in pages)
