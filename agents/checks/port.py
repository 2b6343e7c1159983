"""What a health check is."""

from collections.abc import Mapping
from typing import Any, Protocol

from kcover.fault import Check

Args = Mapping[str, Any]


class Skipped(Exception):
    """The check cannot be run here; the text says why, and what would help."""


class HealthCheck(Protocol):
    """One check by its name. It bounds its own time.

    ``about_node``: whether a failure is a fault of this node, and not of a peer or of one moment.
    """

    name: str
    about_node: bool

    def invasive(self, args: Args) -> bool:
        """Whether it needs GPUs that nobody uses, asked with the arguments that it is to run with."""

    def run(self, args: Args) -> list[Check]:
        """One result for each device. Raises Skipped, ValueError for arguments that make no sense, and anything else
        where the check itself breaks."""


def whole(args: Args, key: str, default: int, *, least: int, most: int) -> int:
    """A whole number from the arguments, as a number or as text. Raises ValueError with what is accepted."""
    value = args.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= most or isinstance(value, bool):
        raise ValueError(f"{key}={value!r}: accepted are whole numbers from {least} to {most}")
    return number


def number(args: Args, key: str, default: float) -> float:
    """A positive number from the arguments. Raises ValueError with what is accepted."""
    value = args.get(key, default)
    try:
        given = float(value)
    except (TypeError, ValueError):
        given = 0.0
    if not 0 < given < 1e12:
        raise ValueError(f"{key}={value!r}: accepted is a positive number")
    return given


def names(args: Args, key: str) -> tuple[str, ...]:
    """Host names or addresses: a list, or text with commas. Raises ValueError for one that could be an option."""
    value = args.get(key) or ()
    listed = value.split(",") if isinstance(value, str) else value
    found = tuple(str(one).strip() for one in listed)
    for one in found:
        if not one or one.startswith("-") or not all(c.isalnum() or c in ".:-_%" for c in one) or len(one) > 253:
            raise ValueError(f"{key}: {one!r} is no host name or address")
    return found
