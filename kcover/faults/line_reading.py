"""What a message says as a line of the kernel. It is read once, and kept as plain JSON beside the message."""

import functools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcover.faults import nvlink5, xid

RULES = 1  # raise it when ``read`` finds something else in a message, for a reason other than nvlink5's table


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """The reading of one message. ``fault``: the fault that it names, as ``xid 79``; "" if it is no such line.

    ``fatal``: see ``nvlink5.is_fatal``. ``cause``: see ``xid.FaultLine``. ``span``: where in the message its text is,
    which follows the code.
    """

    fault: str = ""
    fatal: bool | None = None
    cause: int | None = None
    span: tuple[int, int] = (0, 0)

    @property
    def name(self) -> tuple[str, str]:
        """The kind and the code of the fault; empty if the message is no such line."""
        kind, _, code = self.fault.partition(" ")
        return kind, code

    def text(self, message: str) -> str:
        """The text after the code, of the message that was read."""
        return message[slice(*self.span)]

    def to_json(self, message: str) -> dict[str, Any]:
        """The reading of this message as plain JSON, without what it does not say."""
        found: dict[str, Any] = {"of": _digest(message), "by": _current()}
        if self.fault:
            found |= {"fault": self.fault, "span": list(self.span)}
        if self.fatal is not None:
            found["fatal"] = self.fatal
        if self.cause is not None:
            found["cause"] = self.cause
        return found


def read(message: str) -> LineReading:
    """Parses a message. Never raises."""
    line = xid.parse_line(message)
    if line is None:
        return LineReading()
    begin = message.find(line.text)  # an equal text elsewhere in the message is as good
    return LineReading(
        fault=f"{line.kind} {line.code}",
        fatal=nvlink5.is_fatal(line),
        cause=line.cause,
        span=(begin, begin + len(line.text)),
    )


def kept(stored: Mapping[str, Any], message: str) -> LineReading:
    """The reading that ``to_json`` made of this message.

    A message without one is read anew. So is one that another message has replaced: an older portal changes the
    message, and not the reading. So is one that another revision of the parser made, which may have judged otherwise.
    """
    if stored.get("of") != _digest(message) or stored.get("by") != _current():
        return read(message)
    begin, end = stored.get("span", (0, 0))
    return LineReading(
        fault=stored.get("fault", ""), fatal=stored.get("fatal"), cause=stored.get("cause"), span=(begin, end)
    )


def revision(rules: int, table: bytes) -> int:
    """What tells readings of parsers apart that may judge differently. ``table``: as of ``nvlink5.table``."""
    return zlib.crc32(table, rules)


@functools.cache
def _current() -> int:
    return revision(RULES, nvlink5.table())


def _digest(message: str) -> int:
    return zlib.crc32(message.encode(errors="replace"))
