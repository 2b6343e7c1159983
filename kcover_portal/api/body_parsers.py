"""Parsers of REST request bodies, with size limits and precise errors."""

from typing import Any

from rest_framework import parsers
from rest_framework.request import Request

from kcover import reasons
from kcover.values import strict_json
from kcover.values.quote import short_text
from kcover_portal.api import http_errors

MAX_BYTES = 1024 * 1024


class StrictJsonParser(parsers.JSONParser):
    """JSON in UTF-8 of at most MAX_BYTES. Rejects duplicate keys, NaN, 1e400, lone surrogates and deep nesting.

    ``leaves_surrogates``: lone ones stay in the value, because its reader rejects only the items that have them.
    """

    leaves_surrogates = False

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Returns the decoded value. Raises BadRequest or TooLarge."""
        body = whole(stream, parser_context, most=MAX_BYTES)
        try:
            return strict_json.loads(body.decode("utf-8-sig"), surrogates=self.leaves_surrogates)
        except reasons.ExplainedError as error:
            raise _parse_error(error.reason) from error
        except ValueError as error:
            raise _parse_error(str(error)) from error


def whole(stream: Any, parser_context: Any, *, most: int) -> bytes:
    """Returns the whole body. Raises TooLarge, with the size from Content-Length if present."""
    body: bytes = stream.read(most + 1)
    if len(body) <= most:
        return body
    declared = parser_context["request"].META.get("CONTENT_LENGTH", "")
    size = declared if declared.isdigit() else reasons.of("more_than", number=most)
    raise http_errors.TooLarge(reasons.of("too_large", bytes=size, limit=most))


def refuse_encoded(request: Request) -> None:
    """Raises UnsupportedMediaType for a compressed body, which no parser unpacks."""
    encoding = request.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise http_errors.UnsupportedMediaType(reasons.of("source_encoding", encoding=short_text(encoding)))


def _parse_error(problem: reasons.Value) -> http_errors.BadRequest:
    return http_errors.BadRequest(reasons.of("parse_error", problem=problem))


def taken(request: Request) -> list[str]:
    """Returns the media types that the request's view accepts."""
    view = request.parser_context.get("view") if request.parser_context else None
    return [str(parser.media_type) for parser in getattr(view, "parser_classes", ()) if parser.media_type]
