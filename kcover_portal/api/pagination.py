"""Cursor pagination: stable while rows are added, and equally fast on every page."""

from typing import Any

from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from kcover import reasons
from kcover.quote import short_repr
from kcover_portal.errors import FieldError


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
