"""Request bodies of the REST door: bounded before they are read, and what cannot be read is said plainly."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NoReturn

from rest_framework import exceptions, parsers
from rest_framework.request import Request

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64  # of JSON; the serializers read three levels


class TooLarge(exceptions.APIException):
    """The body has more bytes than its kind may have."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class StrictJsonParser(parsers.JSONParser):
    """JSON in UTF-8 of at most MAX_BYTES, without keys that stand twice, NaN, half characters, nesting without end."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """The value; raises ParseError or TooLarge."""
        body = whole(stream, parser_context, most=MAX_BYTES)
        try:
            value = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant)
        except RecursionError:
            raise exceptions.ParseError("Invalid JSON: nested too deeply") from None
        except ValueError as error:
            raise exceptions.ParseError(f"Invalid JSON: {error}") from error
        if any(depth > MAX_DEPTH for depth in _depths(value)):
            raise exceptions.ParseError(f"Invalid JSON: nested deeper than {MAX_DEPTH} levels")
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # it could be neither stored nor quoted in the answer
            raise exceptions.ParseError("Invalid JSON: contains a lone surrogate; remove it") from None
        return value


def whole(stream: Any, parser_context: Any, *, most: int) -> bytes:
    """The whole body; raises TooLarge, with its true size where the request tells it."""
    body: bytes = stream.read(most + 1)
    if len(body) <= most:
        return body
    announced = parser_context["request"].META.get("CONTENT_LENGTH", "")
    size = announced if announced.isdigit() else f"more than {most}"
    raise TooLarge(f"The body has {size} bytes. The limit is {most}.")


def taken(request: Request) -> list[str]:
    """The media types of bodies that the request's view reads."""
    view = request.parser_context.get("view") if request.parser_context else None
    return [str(parser.media_type) for parser in getattr(view, "parser_classes", ())]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {json.dumps(twice[:60])}")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON; use null or omit the key")


def _depths(value: Any) -> Iterator[int]:
    """How deep each of the containers lies."""
    below = [(value, 1)]
    while below:
        one, depth = below.pop()
        if isinstance(one, dict | list):
            yield depth
            below.extend((inner, depth + 1) for inner in (one.values() if isinstance(one, dict) else one))
