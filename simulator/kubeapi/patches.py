"""JSON merge patch and JSON patch. The original is not changed; unchanged parts are shared with the result."""

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.kubeapi import errors


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: mappings merge, null removes, everything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """RFC 6902. Raises ``ApiError`` 400 for a malformed patch, 422 for one that does not apply (a failed ``test``)."""
    if not isinstance(operations, Sequence) or isinstance(operations, str | bytes):
        raise errors.bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    for operation in operations:
        try:
            target = _apply(target, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            # The API server does not name the reason either.
            text = "the server rejected our request due to an error in our request"
            raise errors.ApiError(422, "Invalid", text) from error
    return target


def _apply(target: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation["op"], _tokens(operation["path"])
    if kind == "test":
        if _read(target, path) != operation["value"]:
            raise ValueError("testing value failed")
        return target
    if kind == "remove":
        return _without(target, path)
    if kind in ("add", "replace"):
        return _with(target, path, operation["value"], insert=kind == "add")
    if kind in ("move", "copy"):
        source = _tokens(operation["from"])
        value = _read(target, source)
        return _with(_without(target, source) if kind == "move" else target, path, value, insert=True)
    raise ValueError(f"unexpected kind: {kind}")


def _tokens(pointer: str) -> list[str]:
    """RFC 6901: ``/a/b~1c`` is a, then b/c."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError("missing leading slash")
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/")]


def _position(token: str, size: int) -> int:
    if not token.isascii() or not token.isdigit() or (token != "0" and token[0] == "0") or int(token) >= size:
        raise IndexError(f"invalid index {token}")
    return int(token)


def _read(target: Any, path: list[str]) -> Any:
    for token in path:
        target = target[_position(token, len(target))] if isinstance(target, list) else target[token]
    return target


def _with(target: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    token, remainder = path[0], path[1:]
    if isinstance(target, list):
        copy = list(target)
        if not remainder and insert:
            copy.insert(len(copy) if token == "-" else _position(token, len(copy) + 1), value)
        else:
            at = _position(token, len(copy))
            copy[at] = _with(copy[at], remainder, value, insert=insert)
        return copy
    if not remainder and not insert and token not in target:
        raise KeyError(f"missing key {token}")
    return {**target, token: _with(target[token], remainder, value, insert=insert) if remainder else value}


def _without(target: Any, path: list[str]) -> Any:
    token, remainder = path[0], path[1:]
    if isinstance(target, list):
        copy = list(target)
        at = _position(token, len(copy))
        if remainder:
            copy[at] = _without(copy[at], remainder)
        else:
            del copy[at]
        return copy
    copy_ = dict(target)
    if remainder:
        copy_[token] = _without(target[token], remainder)
    else:
        del copy_[token]
    return copy_
