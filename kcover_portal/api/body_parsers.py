"""Parsers of REST request bodies, with size limits and precise errors."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from rest_framework import parsers
from rest_framework.request import Request

from kcover import reasons
from kcover_portal.api import http_errors

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64  # of JSON; the serializers read three levels


class StrictJsonParser(parsers.JSONParser):
    """JSON in UTF-8 of at most MAX_BYTES. Rejects duplicate keys, NaN, 1e400, lone surrogates and deep nesting."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Returns the decoded value. Raises BadRequest or TooLarge."""
        body = whole(stream, parser_context, most=MAX_BYTES)
        try:
            value = json.loads(
                body.decode("utf-8-sig"),
                object_pairs_hook=_unique,
                parse_constant=_no_constant,
                parse_float=_finite,
            )
        except RecursionError:
            raise _parse_error(reasons.of("json_too_deep", levels=MAX_DEPTH)) from None
        except reasons.ExplainedError as error:
            raise _parse_error(error.reason) from error
        except ValueError as error:
            raise _parse_error(str(error)) from error
        if any(depth > MAX_DEPTH for depth in _depths(value)):
            raise _parse_error(reasons.of("json_too_deep", levels=MAX_DEPTH))
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # it could neither be stored nor quoted in the response
            raise _parse_error(reasons.of("json_lone_surrogate")) from None
        return value


def whole(stream: Any, parser_context: Any, *, most: int) -> bytes:
    """Returns the whole body. Raises TooLarge, with the size from Content-Length if present."""
    body: bytes = stream.read(most + 1)
    if len(body) <= most:
        return body
    declared = parser_context["request"].META.get("CONTENT_LENGTH", "")
    size = declared if declared.isdigit() else reasons.of("more_than", number=most)
    raise http_errors.TooLarge(reasons.of("too_large", bytes=size, limit=most))


def _parse_error(problem: reasons.Value) -> http_errors.BadRequest:
    return http_errors.BadRequest(reasons.of("parse_error", problem=problem))


def taken(request: Request) -> list[str]:
    """Returns the media types that the request's view accepts."""
    view = request.parser_context.get("view") if request.parser_context else None
    return [str(parser.media_type) for parser in getattr(view, "parser_classes", ())]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise reasons.ExplainedError(reasons.of("json_duplicate_key", key=json.dumps(duplicate[:60])))
    return found


def _no_constant(name: str) -> NoReturn:
    raise reasons.ExplainedError(reasons.of("json_constant", name=name))


def _finite(digits: str) -> float:
    """Python reads 1e400 as infinity, which PostgreSQL does not store in JSON."""
    value = float(digits)
    return value if math.isfinite(value) else _no_constant(digits[:60])


def _depths(value: Any) -> Iterator[int]:
    """Yields the depth of each container."""
    stack = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, dict | list):
            yield depth
            stack.extend((inner, depth + 1) for inner in (node.values() if isinstance(node, dict) else node))
