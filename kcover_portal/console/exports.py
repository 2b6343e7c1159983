"""A list as a file: CSV for spreadsheets, JSON Lines for programs; row by row, whatever the list's length."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from io import StringIO
from itertools import islice
from typing import Any

from django.http import StreamingHttpResponse

from kcover_portal.console import lists

ROWS = 500  # a piece
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet reads as the beginning of a formula (OWASP)


def response(found: lists.Found, shape: str, *, today: date) -> StreamingHttpResponse:
    """The file, named by list and date; ``shape`` is ``csv`` or ``jsonl``."""
    content_type, write = SHAPES[shape]
    columns = found.listing.columns
    rows = found.rows.order_by("-pk").values_list(*columns.values()).iterator(chunk_size=2000)
    says = [found.listing.said.get(name, _as_it_is) for name in columns]
    said = (tuple(say(value) for say, value in zip(says, row, strict=True)) for row in rows)
    return StreamingHttpResponse(
        write(list(columns), said),
        content_type=content_type,
        headers={
            "Content-Disposition": f'attachment; filename="kcover-{found.listing.name}-{today.isoformat()}.{shape}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def as_csv(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """A line of column names, then a line a row (RFC 4180)."""
    yield _lines([columns])
    for piece in _pieces(rows):
        yield _lines([[cell(value) for value in row] for row in piece])


def as_json_lines(columns: list[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """An object a row, with every column."""
    for piece in _pieces(rows):
        yield "".join(f"{_json(dict(zip(columns, map(plain, row), strict=True)))}\n" for row in piece)


def cell(value: Any) -> str | int | float:
    """A value as a spreadsheet may have it: text that it would run as a formula gets an apostrophe in front."""
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        value = _json(value)
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return value if isinstance(value, int | float) else str(value)


def plain(value: Any) -> Any:
    """A value as JSON has it: moments in ISO 8601, in UTC."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _as_it_is(value: Any) -> Any:
    return value


def _pieces(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    left = iter(rows)
    while piece := list(islice(left, ROWS)):
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
