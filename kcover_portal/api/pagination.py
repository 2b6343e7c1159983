"""Cursor pagination: stable while rows are added, and equally fast on every page."""

from typing import Any

from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class Pages(CursorPagination):
    """Newest first by default; ``page_size`` up to 1000."""

    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        """Returns the page size. Raises ValidationError if it is not a number within the limits."""
        text = request.query_params.get(self.page_size_query_param)
        if text is None:
            return self.page_size
        if not text.isascii() or not text.isdigit() or len(text) > 6 or not 1 <= int(text) <= self.max_page_size:
            raise exceptions.ValidationError(
                {"page_size": [f"Must be a number from 1 to {self.max_page_size}."]}, code="out_of_range"
            )
        return int(text)

    def decode_cursor(self, request: Request) -> Any:
        """Decodes the cursor. Raises ValidationError if it is invalid."""
        try:
            return super().decode_cursor(request)
        except exceptions.NotFound as error:
            raise exceptions.ValidationError(
                {"cursor": ["Unknown cursor. Use one from next or previous."]}, code="cursor"
            ) from error


class ByName(Pages):
    """For rows with a unique name."""

    ordering = "name"


class Oldest(Pages):
    """Oldest first, for objects that are rarely added, such as nodes."""

    ordering = "id"
