"""Values of a cluster's objects as the database can store them.

PostgreSQL accepts neither NUL nor lone surrogates, and no text beyond a column's width.
"""

from typing import Any

MAX_ERROR = 300  # characters
MAX_DEPTH = 16  # of nested objects and lists
MAX_INTEGER = 2**31 - 1  # of a PositiveIntegerField


def text(value: str, limit: int | None = None) -> str:
    """Returns the text without NUL and lone surrogates, at most ``limit`` characters of it."""
    if not value.isascii():
        value = value.encode(errors="ignore").decode()
    return value.replace("\0", "")[:limit]


def error_text(error: Exception) -> str:
    """Returns the message of an unexpected error, at most 300 characters; its class if it has none."""
    return text(str(error), MAX_ERROR) or type(error).__name__


def json_value(value: Any, *, depth: int = MAX_DEPTH) -> Any:
    """Returns the JSON value with every text in it cleaned. Raises ValueError if it is nested deeper than ``depth``."""
    if isinstance(value, str):
        return text(value)
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not depth:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {text(str(key)): json_value(item, depth=depth - 1) for key, item in value.items()}
    return [json_value(item, depth=depth - 1) for item in value]
