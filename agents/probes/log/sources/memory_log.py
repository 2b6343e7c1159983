"""A kernel log in memory, for simulated nodes."""

import threading
from collections import deque
from datetime import datetime

from agents.probes.log.kmsg import Record
from agents.probes.log.sources.source import Chunk, Position


class MemoryLog:
    """A kernel ring buffer in memory. It keeps ``size`` records, as a real one does."""

    name = "kmsg"

    def __init__(self, *, size: int = 10_000) -> None:
        self._ring: deque[Record] = deque(maxlen=size)
        self._next = 0
        self._boot_id: str | None = None
        self._sequence = -1
        self._written = threading.Event()

    def write(self, text: str, *, at: datetime, facility: int = 0) -> None:
        """Log one line; ``facility`` 1 is a program's."""
        self._ring.append(Record(text=text, at=at, facility=facility, sequence=self._next))
        self._next += 1
        self._written.set()

    def records(self) -> tuple[Record, ...]:
        """The records that the ring buffer holds."""
        return tuple(self._ring)

    def reboot(self) -> None:
        """Empty the ring buffer, as a boot does."""
        self._ring.clear()
        self._next = 0

    def resume(self, position: Position) -> None:
        if isinstance(position.get("boot_id"), str) and isinstance(position.get("sequence"), int):
            self._boot_id, self._sequence = position["boot_id"], position["sequence"]

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        self._written.clear()
        if boot_id != self._boot_id:
            self._boot_id, self._sequence = boot_id, -1
        if self._sequence == self._next - 1:  # the common case in a cluster of hundreds
            return Chunk(position=self._position())
        records = tuple(record for record in self._ring if (record.sequence or 0) > self._sequence)
        lost = (records[0].sequence or 0) - self._sequence - 1 if records else 0
        self._sequence = self._next - 1
        return Chunk(records=records, position=self._position(), lost=lost)

    def wait(self, timeout: float) -> bool:
        return self._written.wait(timeout)

    def close(self) -> None: ...

    def _position(self) -> Position:
        return {"boot_id": self._boot_id, "sequence": self._sequence}
