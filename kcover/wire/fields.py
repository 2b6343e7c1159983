"""One field at a time: each function takes a key out of a JSON object, or says what is wrong with it and what to write.

Everything that passes can be stored: no NUL and no lone surrogate (PostgreSQL takes neither), no NaN, no infinity,
integers within bounds.
"""

import json
import math
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from kcover import sequences
from kcover.sequences import Ranges

VERSION = 1
MAX_BYTES = 1 << 20  # of a report, after decompression
MAX_MESSAGE = 4096  # characters, as all lengths of text
MAX_FAULTS = 1000
MAX_CHECKS = 2000
MAX_RESULTS = 200
MAX_GPUS = 64
MAX_OUTPUT = 64 << 10  # characters of a command's output or arguments as JSON
MAX_DEPTH = 32
MAX_COUNT = 1_000_000
MAX_SEQUENCE = 2**63 - 1
MAX_RECORDS = 64  # ranges of log records in one fault

NODE = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
WORD = re.compile(r"[a-z0-9_.-]{1,64}")
IDENTIFIER = re.compile(r"[!-~]+")  # printable ASCII without spaces: boot ids, GPU UUIDs, command ids
MAX_BOOT_ID = 64  # characters, as the columns that keep them; so are the limits where they are used
MAX_GPU_UUID = 96
MAX_IDENTIFIER = 128
MAX_SOURCE = 32
PCI = re.compile(r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{2,4}:[0-9a-f]{2}(?:\.[0-7])?")
RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)

# A day from the ends of the calendar: a time that is taken can be shown in every zone.
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)

_CONTAINERS: dict[type, str] = {dict: "an object", list: "a list"}

Object = dict[str, Any]


class WireError(ValueError):
    """Something in a message is wrong: ``path`` says where (``faults/3/code``, "" for the whole), ``reason`` what."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class EnvelopeError(WireError):
    """The report as a whole cannot be read: sending it again will not help."""


def shown(value: object) -> str:
    """A JSON value as it may be quoted in a reason: cut short, and of objects and lists only what they are."""
    text = _CONTAINERS.get(type(value)) or json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def required(item: Object, key: str) -> Any:
    """The value of a key that must be there and not null."""
    value = item.get(key)
    if value is None:
        raise WireError(key, "is missing")
    return value


def text(item: Object, key: str, *, limit: int) -> str:
    """Free text, "" when absent."""
    value = item.get(key)
    if type(value) is str and value.isascii() and "\0" not in value and len(value) <= limit:
        return value  # nearly always: a report holds dozens
    if value is None:
        return ""
    if type(value) is not str:
        raise WireError(key, f"must be a string, not {shown(value)}")
    if len(value) > limit:
        raise WireError(key, f"has {len(value)} characters, at most {limit} are taken: shorten it")
    if not storable(value):
        raise WireError(key, "holds a NUL or half a surrogate pair: leave it out")
    return value


def storable(value: str) -> bool:
    """Whether a database takes the string."""
    if "\0" in value:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def matching(item: Object, key: str, pattern: re.Pattern[str], *, wanted: str, limit: int = MAX_MESSAGE) -> str | None:
    """A string of a fixed form, None when absent; ``wanted`` ends the sentence "must be ..."."""
    value = item.get(key)
    if type(value) is str and len(value) <= limit and pattern.fullmatch(value):
        return value
    if value is None:
        return None
    raise WireError(key, f"must be {wanted}, not {shown(value)}")


def pci(item: Object) -> str | None:
    """An address as the kernel log prints it, in lower case, None when absent."""
    value = item.get("pci")
    if value is None:
        return None
    if type(value) is not str or not PCI.fullmatch(value.lower()):
        raise WireError(
            "pci", f'must be an address such as "0000:4e:00", without "PCI:" and MIG part, not {shown(value)}'
        )
    return value.lower()


def integer(item: Object, key: str, *, most: int, least: int = 0) -> int | None:
    """A whole number between least and most, None when absent. A boolean is no number, nor is 1.0 a whole one."""
    value = item.get(key)
    if value is None:
        return None
    if type(value) is not int:
        hint = f": write {value} without quotes" if type(value) is str and re.fullmatch("[0-9]{1,10}", value) else ""
        raise WireError(key, f"must be a whole number, not {shown(value)}{hint}")
    if not least <= value <= most:
        raise WireError(key, f"must be from {least} to {most}")
    return value


def ranges(item: Object, key: str) -> Ranges:
    """Pairs of first and last number, () when absent; joined where they touch or overlap."""
    value = item.get(key)
    if value is None:
        return ()
    if type(value) is not list or len(value) > MAX_RECORDS:
        raise WireError(key, f"must be a list of at most {MAX_RECORDS} pairs, not {shown(value)}")
    for pair in value:
        if type(pair) is not list or len(pair) != 2 or any(type(end) is not int for end in pair):
            raise WireError(key, f"must hold pairs such as [12, 14], first and last, not {shown(pair)}")
        if not 0 <= pair[0] <= pair[1] <= MAX_SEQUENCE:
            raise WireError(key, f"must hold pairs of a first and a last number, from 0 to {MAX_SEQUENCE}")
    return sequences.joined(value, most=MAX_RECORDS)


def number(item: Object, key: str) -> float | None:
    """A finite number, None when absent."""
    value = item.get(key)
    if value is None:
        return None
    if type(value) is not int and type(value) is not float:
        raise WireError(key, f"must be a number, not {shown(value)}")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise WireError(key, "is too large for a number")
    return float(value)


def boolean(item: Object, key: str) -> bool:
    """true or false, false when absent."""
    value = item.get(key)
    if value is None:
        return False
    if type(value) is not bool:
        raise WireError(key, f"must be true or false, not {shown(value)}")
    return value


def choice(item: Object, key: str, among: Collection[str]) -> str:
    """One word of a few; it must be there."""
    value = required(item, key)
    if type(value) is not str or value not in among:
        raise WireError(key, f"must be one of {', '.join(among)}, not {shown(value)}")
    return value


def moment(item: Object, key: str) -> datetime | None:
    """A time with its offset (RFC 3339) as UTC, None when absent."""
    return None if item.get(key) is None else required_moment(item, key)


def required_moment(item: Object, key: str) -> datetime:
    """A time with its offset (RFC 3339) as UTC; it must be there."""
    value = required(item, key)
    if type(value) is not str or not RFC3339.fullmatch(value):
        raise WireError(key, f'must be a time such as "2026-11-21T08:00:00Z", not {shown(value)}')
    try:
        at = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WireError(key, f"is no time that exists: {shown(value)}") from None
    if not EARLIEST <= at <= LATEST:
        raise WireError(key, f"is no time that exists everywhere on earth: {shown(value)}")
    return at


def mapping(item: Object, key: str) -> Object:
    """A JSON object of any content that can be stored, {} when absent."""
    value = item.get(key)
    if value is None:
        return {}
    if type(value) is not dict:
        raise WireError(key, f"must be an object, not {shown(value)}")
    if not _tame(value):
        limits = f"must not be nested deeper than {MAX_DEPTH} and hold no NUL, NaN, infinity or number of more than"
        raise WireError(key, f"{limits} 64 bits")
    if len(json.dumps(value)) > MAX_OUTPUT:
        raise WireError(key, f"is longer than {MAX_OUTPUT} characters of JSON: shorten it")
    return value


def _tame(value: object) -> bool:
    """Whether a JSON value is not nested too deep and can be stored, down to its last key."""
    below: list[tuple[object, int]] = [(value, 1)]
    while below:
        value, depth = below.pop()
        if isinstance(value, dict):
            below.extend((key, depth) for key in value)
            below.extend((one, depth + 1) for one in value.values())
        elif isinstance(value, list):
            below.extend((one, depth + 1) for one in value)
        elif (
            (isinstance(value, str) and not storable(value))
            or (isinstance(value, float) and not math.isfinite(value))
            or (isinstance(value, int) and value.bit_length() > 64)
        ):
            return False
        if depth > MAX_DEPTH:
            return False
    return True
