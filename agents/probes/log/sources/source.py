"""The interface of a source of log records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from agents.probes.log.kmsg import Record

Position = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The result of one read. ``position``: after these records. ``lost``: records that the log dropped before they
    could be read. ``gap``: why an unknown number of records before these may be missing. ``more``: read again at once.
    """

    records: tuple[Record, ...] = ()
    position: Position
    lost: int = 0
    gap: str = ""
    more: bool = False


class Source(Protocol):
    """A kernel log."""

    @property
    def name(self) -> str:
        """The key under which its position is stored."""

    def resume(self, position: Position) -> None:
        """Continue after this position (``Chunk.position`` of an earlier run). Otherwise start at the beginning."""

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        """The new records, without waiting. Raises OSError if the log cannot be read; the next call tries again."""

    def wait(self, timeout: float) -> bool:
        """Wait until there may be something to read, at most ``timeout`` seconds. Return False if there cannot be."""

    def close(self) -> None:
        """Close the files."""
