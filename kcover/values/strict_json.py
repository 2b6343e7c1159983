"""JSON from people and programs, without what Python accepts beyond the standard or a database cannot store."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from kcover import reasons

MAX_DEPTH = 64  # levels; no document of the portal has more than ten


def loads(text: str, *, surrogates: bool = False) -> Any:
    """Returns the decoded value. Raises ValueError if it is no JSON.

    Raises ExplainedError for duplicate keys, NaN, 1e400, lone surrogates and deep nesting. ``surrogates``: lone ones
    are left in; the caller rejects the items that have them.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise _too_deep() from None
    check_depth(value)
    if not surrogates and not is_encodable(value):  # it could neither be stored nor quoted in an answer
        raise reasons.ExplainedError(reasons.of("json_lone_surrogate"))
    return value


def check_depth(value: Any) -> None:
    """Raises ExplainedError if the JSON value has more than ``MAX_DEPTH`` levels."""
    if any(depth > MAX_DEPTH for depth in _depths(value)):
        raise _too_deep()


def is_encodable(value: Any) -> bool:
    """Returns whether no text and no key in the JSON value has a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep() -> reasons.ExplainedError:
    return reasons.ExplainedError(reasons.of("json_too_deep", levels=MAX_DEPTH))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        duplicate = next(key for key, count in counts.items() if count > 1)
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
