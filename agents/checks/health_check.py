"""The base of health checks, and the parsing of their arguments."""

from collections.abc import Mapping
from typing import Any, Protocol

from kcover.faults.fault import Check

Args = Mapping[str, Any]


class CheckSkipped(Exception):
    """The check cannot run on this node. The message says why, and what would help."""


class HealthCheck(Protocol):
    """One check.

    It limits its own running time. ``failure_is_node_fault``: a failure is a fault of this node, and not of a peer or
    of a single moment.
    """

    name: str
    failure_is_node_fault: bool

    def invasive(self, args: Args) -> bool:
        """Return whether the check needs idle GPUs when it runs with these arguments."""

    def run(self, args: Args) -> list[Check]:
        """One result for each device.

        Raises CheckSkipped, ValueError for invalid arguments, or anything else if the check itself breaks.
        """


def integer(args: Args, key: str, default: int, *, least: int, most: int) -> int:
    """An integer argument, given as a number or as text. Raises ValueError with the accepted range."""
    value = args.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= most or isinstance(value, bool):
        raise ValueError(f"{key}={value!r}: must be a whole number from {least} to {most}")
    return number


def positive_number(args: Args, key: str, default: float) -> float:
    """A positive number, given as a number or as text. Raises ValueError."""
    value = args.get(key, default)
    try:
        given = float(value)
    except (TypeError, ValueError):
        given = 0.0
    if not 0 < given < 1e12:
        raise ValueError(f"{key}={value!r}: must be a positive number")
    return given


def host_names(args: Args, key: str) -> tuple[str, ...]:
    """Host names or addresses: a list, or text with commas. Raises ValueError for a value that a tool could take for an
    option."""
    value = args.get(key) or ()
    listed = value.split(",") if isinstance(value, str) else value
    hosts = tuple(str(item).strip() for item in listed)
    for host in hosts:
        if not host or host.startswith("-") or not all(c.isalnum() or c in ".:-_%" for c in host) or len(host) > 253:
            raise ValueError(f"{key}: {host!r} is not a host name or address")
    return hosts
