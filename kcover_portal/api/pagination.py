"""Cursor pagination: stable while rows are added, and equally fast on every page."""

import base64
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

from kcover import reasons
from kcover.values.quote import short_repr
from kcover_portal.lib.errors import FieldError

Row = TypeVar("Row")
Key = tuple[float | str, ...]


class NewestFirst(CursorPagination):
    """Newest first by default; ``page_size`` up to 1000."""

    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        """Returns the page size. Raises FieldError if it is not a number within the limits."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= self.max_page_size:
            wrong = reasons.of("number_out_of_range", least=1, most=self.max_page_size, value=short_repr(text))
            raise FieldError(self.page_size_query_param, wrong)
        return int(text)

    def decode_cursor(self, request: Request) -> Any:
        """Decodes the cursor. Raises FieldError if it is invalid."""
        try:
            return super().decode_cursor(request)
        except exceptions.NotFound as error:
            raise FieldError(self.cursor_query_param, reasons.of("unknown_cursor")) from error


class ByName(NewestFirst):
    """For rows with a unique name."""

    ordering = "name"


class OldestFirst(NewestFirst):
    """Oldest first, for objects that are rarely added, such as nodes."""

    ordering = "id"


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """A page of rows that no query sorts. ``next``, ``previous``: addresses, None at the ends."""

    results: Sequence[Row]
    next: str | None
    previous: str | None


PAGE_PARAMETERS = (NewestFirst.page_size_query_param, NewestFirst.cursor_query_param)


def page_of(request: Request, rows: Sequence[Row], *, key: Callable[[Row], Key]) -> Page[Row]:
    """Returns the page that the request asks for. ``key``: by which the rows are sorted, another one for each row.

    A cursor is the key of the row before or after the page, so rows that come and go shift no page. Raises FieldError.
    """
    size = NewestFirst().get_page_size(request)
    keys = [key(row) for row in rows]
    start, end = _span(keys, size, request.query_params.get(NewestFirst.cursor_query_param))
    address = request.build_absolute_uri()

    def link(direction: str, place: int) -> str:
        cursor = base64.urlsafe_b64encode(json.dumps([direction, *keys[place]]).encode()).decode()
        return replace_query_param(address, NewestFirst.cursor_query_param, cursor)

    following = link("after", end - 1) if 0 < end < len(rows) else None
    return Page(rows[start:end], following, link("before", start) if 0 < start < len(rows) else None)


def _span(keys: Sequence[Key], size: int, cursor: str | None) -> tuple[int, int]:
    """The places of the page's first row, and of the row after its last one."""
    if cursor is None:
        return 0, min(size, len(keys))
    try:
        direction, *rest = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
        place = tuple(rest)
        if direction not in ("after", "before") or any(len(place) != len(each) for each in keys[:1]):
            raise ValueError(cursor)
        if direction == "after":
            start = bisect_right(keys, place)
            return start, min(start + size, len(keys))
        end = bisect_left(keys, place)
        return max(0, end - size), end
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldError(NewestFirst.cursor_query_param, reasons.of("unknown_cursor")) from error
