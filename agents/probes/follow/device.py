"""Following the kernel's own device."""

import contextlib
import errno
import os
import pathlib
import select
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from agents.probes.follow.port import Chunk, Position
from agents.probes.kmsg import MAX_LINE, Record, split

POLL = 0.25  # seconds between looks at a pipe that nobody holds open
RECORD = 16 * 1024  # bytes; the kernel's records are at most 8 KiB, and a smaller buffer loses those that do not fit


class Device:
    """``/dev/kmsg``, one record a read; a pipe that carries such records does too.

    The position is boot id and sequence number: after a restart the ring is read again from its oldest record and what
    was read is skipped; in another boot all of it is new.
    """

    name = "kmsg"

    def __init__(self, path: pathlib.Path, *, uptime: Callable[[], float] = time.monotonic) -> None:
        """``uptime``: seconds on the clock that the kernel's records carry (CLOCK_MONOTONIC, near enough)."""
        self._path = path
        self._uptime = uptime
        self._handle: int | None = None
        self._boot_id: str | None = None
        self._sequence: int | None = None
        self._tail = b""

    def resume(self, position: Position) -> None:
        """See ``Source.resume``."""
        boot_id, sequence = position.get("boot_id"), position.get("sequence")
        if isinstance(boot_id, str) and isinstance(sequence, int):
            self._boot_id, self._sequence = boot_id, sequence

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        """See ``Source.read``."""
        if boot_id != self._boot_id:
            self._boot_id, self._sequence = boot_id, None
            self.close()
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a pipe has no start to go to
                os.lseek(self._handle, 0, os.SEEK_SET)
        booted = now - timedelta(seconds=self._uptime())
        records: list[Record] = []
        lost = 0
        lines, more = self._lines(self._handle)
        for line in lines:
            if line.startswith(" "):
                continue  # KEY=value: says which device printed the record above
            header, text = split(line)
            if header is None:
                records.append(Record(text=text, at=now))
                continue
            if self._sequence is not None:
                if header.sequence <= self._sequence:
                    continue
                lost += header.sequence - self._sequence - 1
            self._sequence = header.sequence
            at = booted + timedelta(microseconds=min(header.usec, 10**17))
            records.append(Record(text=text, at=min(at, now), facility=header.facility, sequence=header.sequence))
        return Chunk(records=tuple(records), position=self._position(), lost=lost, more=more)

    def wait(self, timeout: float) -> None:
        """See ``Source.wait``."""
        if self._handle is None:
            time.sleep(min(timeout, 1.0))
            return
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        started = time.monotonic()
        ready = poll.poll(timeout * 1000)
        if ready and not ready[0][1] & select.POLLIN:  # a pipe whose writer went away is "ready" for ever
            time.sleep(max(0.0, min(timeout, POLL) - (time.monotonic() - started)))

    def close(self) -> None:
        """See ``Source.close``."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
            self._tail = b""

    def _position(self) -> Position:
        return {} if self._sequence is None else {"boot_id": self._boot_id, "sequence": self._sequence}

    def _lines(self, handle: int) -> tuple[list[str], bool]:
        """The lines of up to 4,096 reads, and whether there may be more."""
        lines: list[str] = []
        for _ in range(4096):
            try:
                data = os.read(handle, RECORD)
            except BlockingIOError:
                return lines, False
            except OSError as error:
                # EPIPE: the ring overran us, the next read goes on with its oldest record. EINVAL: a record larger than
                # the buffer was skipped. The sequence numbers tell what is gone.
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    continue
                self.close()
                raise
            if not data:
                return lines, False
            *whole, tail = (self._tail + data).split(b"\n")
            self._tail = tail[:MAX_LINE]
            lines += [line.decode(errors="backslashreplace") for line in whole]
        return lines, True
