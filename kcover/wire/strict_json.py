"""Parse JSON strictly, so that no two parsers read it differently: UTF-8, no duplicate key, no NaN."""

import json
from typing import Any, NoReturn

from kcover.wire import fields
from kcover.wire.fields import EnvelopeError, JsonObject


def load(body: bytes) -> JsonObject:
    """The object in a body.

    Raises EnvelopeError: too long, nested too deeply, not UTF-8, not JSON, a duplicate key, not an object.
    """
    if len(body) > fields.MAX_BYTES:
        raise EnvelopeError("", "wire_too_large", bytes=len(body), limit=fields.MAX_BYTES)
    try:
        value = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except EnvelopeError:
        raise
    except RecursionError:
        raise EnvelopeError("", "wire_too_deep") from None
    except ValueError as error:  # invalid JSON, invalid UTF-8, or an integer with thousands of digits
        raise EnvelopeError("", "wire_not_json", error=str(error)) from None
    if type(value) is not dict:
        raise EnvelopeError("", "wire_not_object", value=fields.short_json(value))
    return value


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    item = dict(pairs)
    if len(item) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise EnvelopeError("", "wire_key_twice", key=fields.short_json(key))
            seen.add(key)
    return item


def _no_constant(name: str) -> NoReturn:
    raise EnvelopeError("", "wire_constant", name=name)
