"""Pages by cursor: stable while rows are added, and as cheap on the last page as on the first."""

from typing import Any

from rest_framework import exceptions
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class Pages(CursorPagination):
    """Newest first unless the view says otherwise; ``page_size`` up to 1000."""

    page_size = 100
    max_page_size = 1000
    page_size_query_param = "page_size"
    ordering = "-id"

    def get_page_size(self, request: Request) -> int:
        """Raises ValidationError for a size that is no number within the bounds."""
        asked = request.query_params.get(self.page_size_query_param)
        if asked is None:
            return self.page_size
        if not asked.isascii() or not asked.isdigit() or len(asked) > 6 or not 1 <= int(asked) <= self.max_page_size:
            raise exceptions.ValidationError(
                {"page_size": [f"Must be a number from 1 to {self.max_page_size}."]}, code="out_of_range"
            )
        return int(asked)

    def decode_cursor(self, request: Request) -> Any:
        """Raises ValidationError for a cursor that no page gave out."""
        try:
            return super().decode_cursor(request)
        except exceptions.NotFound as error:
            raise exceptions.ValidationError(
                {"cursor": ["Unknown cursor. Use one from next or previous."]}, code="cursor"
            ) from error


class ByName(Pages):
    """For rows that have a unique name."""

    ordering = "name"


class Oldest(Pages):
    """For things rather than events: in the order in which they became known, which never changes."""

    ordering = "id"
