"""Read single fields: each function returns the value of a key, or raises WireError that says what to write instead.

Every returned value can be stored: no NUL and no lone surrogate (PostgreSQL accepts neither), no NaN, no infinity,
integers within bounds.
"""

import json
import math
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kcover.values import moments, sequence_ranges
from kcover.values.sequence_ranges import Ranges

if TYPE_CHECKING:
    from kcover.reasons import Reason

VERSION = 1
MAX_BYTES = 1 << 20  # of a report, after decompression
MAX_MESSAGE = 4096  # characters, as for all lengths of text
MAX_LINES_BEFORE = 4096
MAX_FAULTS = 1000
MAX_CHECKS = 2000
MAX_RESULTS = 200
MAX_GPUS = 64
MAX_NICS = 32
MAX_FIGURES = 32  # of one GPU
MAX_OUTPUT = 64 << 10  # characters of a command's output or arguments as JSON
MAX_DEPTH = 32
MAX_COUNT = 1_000_000
MAX_SEQUENCE = 2**63 - 1
MAX_RECORDS = 64  # ranges of log records in one fault

NODE = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
UUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
BATCH = re.compile(r"[0-9A-Fa-f]{32}|" + UUID.pattern)  # some libraries print UUIDs without hyphens
WORD = re.compile(r"[a-z0-9_.-]{1,64}")
IDENTIFIER = re.compile(r"[!-~]+")  # printable ASCII without spaces: boot ids, GPU UUIDs, command ids
MAX_BOOT_ID = 64  # characters, as in the database columns; so are the limits of other texts
MAX_GPU_UUID = 96
MAX_IDENTIFIER = 128
MAX_SOURCE = 32
PCI = re.compile(r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{2,4}:[0-9a-f]{2}(?:\.[0-7])?")
RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)

_CONTAINERS: dict[type, str] = {dict: "an object", list: "a list"}

JsonObject = dict[str, Any]


class WireError(ValueError):
    """A message is invalid.

    ``path``: where (``faults/3/code``, "" for the whole). ``code`` and ``params``: those of ``reason``.
    """

    def __init__(self, path: str, code: str, **params: str | int) -> None:
        super().__init__(path, code)
        self.path = path
        self.code = code
        self.params = params

    @property
    def reason(self) -> "Reason":
        """The problem as a sentence with a code."""
        from kcover import reasons  # noqa: PLC0415 - 1.5 MiB of sentences, which few agents ever need

        return reasons.of(self.code, **self.params)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else str(self.reason)


class EnvelopeError(WireError):
    """The report cannot be decoded as a whole: sending it again does not help."""


def short_json(value: object) -> str:
    """A JSON value to quote in a reason: cut short; objects and lists are only named as such."""
    text = _CONTAINERS.get(type(value)) or json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def required(item: JsonObject, key: str) -> Any:
    """The value of a key that must be present and not null."""
    value = item.get(key)
    if value is None:
        raise WireError(key, "wire_missing")
    return value


def text(item: JsonObject, key: str, *, limit: int) -> str:
    """Free text, "" when absent."""
    value = item.get(key)
    if type(value) is str and value.isascii() and "\0" not in value and len(value) <= limit:
        return value  # the usual case: a report has dozens of them
    if value is None:
        return ""
    if type(value) is not str:
        raise WireError(key, "wire_not_text", value=short_json(value))
    if len(value) > limit:
        raise WireError(key, "wire_text_long", size=len(value), limit=limit)
    if not is_storable(value):
        raise WireError(key, "wire_text_not_storable")
    return value


def is_storable(value: str) -> bool:
    """Returns whether the database can store the string."""
    if "\0" in value:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def matching(
    item: JsonObject, key: str, pattern: re.Pattern[str], *, invalid: str, max_length: int = MAX_MESSAGE, **shown: int
) -> str | None:
    """A string of a fixed form, None when absent. ``invalid``: the code if it is invalid, ``shown``: its parameters."""
    value = item.get(key)
    if type(value) is str and len(value) <= max_length and pattern.fullmatch(value):
        return value
    if value is None:
        return None
    raise WireError(key, invalid, value=short_json(value), **shown)


def pci(item: JsonObject) -> str | None:
    """A PCI address as in the kernel log, in lower case, None when absent."""
    value = item.get("pci")
    if value is None:
        return None
    if type(value) is not str or not PCI.fullmatch(value.lower()):
        raise WireError("pci", "wire_pci_invalid", value=short_json(value))
    return value.lower()


def integer(item: JsonObject, key: str, *, maximum: int, minimum: int = 0) -> int | None:
    """An integer from ``minimum`` to ``maximum``, None when absent. Neither a boolean nor 1.0 is accepted."""
    value = item.get(key)
    if value is None:
        return None
    if type(value) is not int:
        if type(value) is str and re.fullmatch("[0-9]{1,10}", value):
            raise WireError(key, "wire_integer_quoted", value=short_json(value), number=value)
        raise WireError(key, "wire_not_integer", value=short_json(value))
    if not minimum <= value <= maximum:
        raise WireError(key, "wire_integer_range", least=minimum, most=maximum)
    return value


def ranges(item: JsonObject, key: str) -> Ranges:
    """Pairs of first and last number, () when absent; adjacent and overlapping pairs are merged."""
    value = item.get(key)
    if value is None:
        return ()
    if type(value) is not list or len(value) > MAX_RECORDS:
        raise WireError(key, "wire_ranges_invalid", limit=MAX_RECORDS, value=short_json(value))
    for pair in value:
        if type(pair) is not list or len(pair) != 2 or any(type(end) is not int for end in pair):
            raise WireError(key, "wire_range_pair", value=short_json(pair))
        if not 0 <= pair[0] <= pair[1] <= MAX_SEQUENCE:
            raise WireError(key, "wire_range_order", most=MAX_SEQUENCE)
    return sequence_ranges.merge(value, max_ranges=MAX_RECORDS)


def number(item: JsonObject, key: str) -> float | None:
    """A finite number, None when absent."""
    value = item.get(key)
    if value is None:
        return None
    if type(value) is not int and type(value) is not float:
        raise WireError(key, "wire_not_number", value=short_json(value))
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise WireError(key, "wire_number_large")
    return float(value)


def boolean(item: JsonObject, key: str) -> bool:
    """true or false, false when absent."""
    value = item.get(key)
    if value is None:
        return False
    if type(value) is not bool:
        raise WireError(key, "wire_not_boolean", value=short_json(value))
    return value


def choice(item: JsonObject, key: str, choices: Collection[str]) -> str:
    """One of ``choices``; it must be present."""
    value = required(item, key)
    if type(value) is not str or value not in choices:
        raise WireError(key, "wire_not_one_of", known=", ".join(choices), value=short_json(value))
    return value


def moment(item: JsonObject, key: str) -> datetime | None:
    """An RFC 3339 time with offset, converted to UTC; None when absent."""
    return None if item.get(key) is None else required_moment(item, key)


def required_moment(item: JsonObject, key: str) -> datetime:
    """An RFC 3339 time with offset, converted to UTC; it must be present."""
    value = required(item, key)
    if type(value) is not str or not RFC3339.fullmatch(value):
        raise WireError(key, "wire_time_form", value=short_json(value))
    try:
        at = datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WireError(key, "wire_time_invalid", value=short_json(value)) from None
    if not moments.EARLIEST <= at <= moments.LATEST:
        raise WireError(key, "wire_time_range", value=short_json(value))
    return at


def mapping(item: JsonObject, key: str) -> JsonObject:
    """A JSON object with any content that can be stored, {} when absent."""
    value = item.get(key)
    if value is None:
        return {}
    if type(value) is not dict:
        raise WireError(key, "wire_not_object", value=short_json(value))
    if not _is_storable_json(value):
        raise WireError(key, "wire_json_not_storable", depth=MAX_DEPTH)
    if len(json.dumps(value)) > MAX_OUTPUT:
        raise WireError(key, "wire_json_long", limit=MAX_OUTPUT)
    return value


def _is_storable_json(value: object) -> bool:
    """Returns whether a JSON value can be stored, including all keys, and is not nested too deeply."""
    stack: list[tuple[object, int]] = [(value, 1)]
    while stack:
        value, depth = stack.pop()
        if isinstance(value, dict):
            stack.extend((key, depth) for key in value)
            stack.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, list):
            stack.extend((item, depth + 1) for item in value)
        elif (
            (isinstance(value, str) and not is_storable(value))
            or (isinstance(value, float) and not math.isfinite(value))
            or (isinstance(value, int) and value.bit_length() > 64)
        ):
            return False
        if depth > MAX_DEPTH:
            return False
    return True
