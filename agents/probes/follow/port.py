"""What a source is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from agents.probes.kmsg import Record

Position = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What one look gave. ``position``: after these records; ``lost``: records that the log dropped before they could
    be read; ``gap``: why before these nobody knows how many are missing; ``more``: look again at once."""

    records: tuple[Record, ...] = ()
    position: Position
    lost: int = 0
    gap: str = ""
    more: bool = False


class Source(Protocol):
    """A kernel log."""

    @property
    def name(self) -> str:
        """Where its position is kept under."""

    def resume(self, position: Position) -> None:
        """Go on after this position (another run's ``Chunk.position``); without it, from the start."""

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        """What is new, without waiting. Raises OSError where the log cannot be read; the next call tries again."""

    def wait(self, timeout: float) -> None:
        """Return when there may be something to read, at the latest after ``timeout`` seconds."""

    def close(self) -> None:
        """Give back what it holds open."""
