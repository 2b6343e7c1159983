"""Export of a list as CSV or JSON Lines, streamed row by row."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from itertools import islice
from typing import Any

from django.http import StreamingHttpResponse
from django.utils import timezone

from kcover_portal.console import lists
from kcover_portal.runtime.services import concurrency_limits

CHUNK_ROWS = 500  # rows per chunk
MAX_DURATION = timedelta(minutes=10)  # of one export
# Text that a spreadsheet reads as the beginning of a formula (OWASP); the wide forms count in East Asian settings.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Where the list separator is a semicolon, as in most of Europe, a spreadsheet takes the line apart there, and quotes do
# not hold, because they are inside of a cell then: a new one begins behind a semicolon, a tab or a line break.
BEGINS_CELL = frozenset(";\t\r\n")
# What may stand between the two. It begins at its first character only, so that long ones take linear time.
BEFORE_FORMULA = re.compile(r'(?<![\s";])[\s";]++(?=[=+\-@\uff1d\uff0b\uff0d\uff20])')


class TooSlow(Exception):
    """The client reads too slowly. The response ends early, and the client notices that it is incomplete."""


class Stream:
    """The chunks of an export, which holds a place until it ends. Raises TooSlow.

    A slow reader ends after ``MAX_DURATION``. One that stops reading occupies its place until the lease ends, and its
    thread until the web server's write times out (see docs/operations/install/install.md).
    """

    def __init__(
        self, chunks: Iterator[str], place: concurrency_limits.ConcurrencySlot, *, clock: Callable[[], datetime]
    ) -> None:
        self._chunks = chunks
        self._place = place
        self._clock = clock
        self._began_at = self._renewed_at = clock()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        now = self._clock()
        if now - self._began_at > MAX_DURATION:
            raise TooSlow
        if now - self._renewed_at > self._place.limit.lasts / 4:
            if not self._place.renew(now=now):
                raise TooSlow  # no chunk was read for so long that another export may have the place
            self._renewed_at = now
        return next(self._chunks)

    def close(self) -> None:
        """Gives the place back; called at the end of the response, whatever ends it."""
        self._place.give_back(now=self._clock())


def response(
    found: lists.ListResult, shape: str, *, today: date, place: concurrency_limits.ConcurrencySlot
) -> StreamingHttpResponse:
    """The export as a streamed response, which gives the place back; ``shape`` is ``csv`` or ``jsonl``."""
    columns = found.listing.columns
    rows = found.rows.order_by("-pk").values_list(*columns.values()).iterator(chunk_size=2000)
    converters = [found.listing.convert.get(name, _as_it_is) for name in columns]
    rows_out = (tuple(say(value) for say, value in zip(converters, row, strict=True)) for row in rows)
    return stream(found.listing.name, list(columns), rows_out, shape, today=today, place=place)


def stream(
    name: str,
    columns: list[str],
    rows: Iterable[tuple[Any, ...]],
    shape: str,
    *,
    today: date,
    place: concurrency_limits.ConcurrencySlot,
) -> StreamingHttpResponse:
    """These rows as a streamed file, which gives the place back; see ``response``."""
    content_type, write = SHAPES[shape]
    return StreamingHttpResponse(
        Stream(write(columns, rows), place, clock=timezone.now),
        content_type=content_type,
        headers={
            "Content-Disposition": f'attachment; filename="kcover-{name}-{today.isoformat()}.{shape}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def as_csv(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """A line of column names, then one line per row (RFC 4180)."""
    yield _lines([columns])
    for piece in _pieces(rows):
        yield _lines([[cell(value) for value in row] for row in piece])


def as_json_lines(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """One JSON object per row, with every column."""
    for piece in _pieces(rows):
        yield "".join(f"{_json(dict(zip(columns, map(plain, row), strict=True)))}\n" for row in piece)


def cell(value: Any) -> str | int | float:
    """A value as CSV. Text that a spreadsheet would run as a formula gets a leading apostrophe."""
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        value = _json(value)
    if isinstance(value, str):
        value = BEFORE_FORMULA.sub(_quoted, value)
        return f"'{value}" if value.startswith(FORMULA) else value
    return value if isinstance(value, int | float) else str(value)


def _quoted(found: re.Match[str]) -> str:
    return found[0] if BEGINS_CELL.isdisjoint(found[0]) else f"{found[0]}'"


def plain(value: Any) -> Any:
    """A value as JSON; datetimes as ISO 8601 in UTC."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _as_it_is(value: Any) -> Any:
    return value


def _pieces(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(rows)
    while piece := list(islice(left, CHUNK_ROWS)):
        yield piece


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    out = StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


SHAPES: dict[str, tuple[str, Callable[[list[str], Iterable[tuple[Any, ...]]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", as_csv),
    "jsonl": ("application/jsonl; charset=utf-8", as_json_lines),
}
