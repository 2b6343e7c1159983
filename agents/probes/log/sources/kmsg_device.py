"""Reads the kernel's own log device."""

import contextlib
import errno
import os
import pathlib
import select
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from agents.probes.log.kmsg import MAX_LINE_BYTES, Record, split_header
from agents.probes.log.sources.source import Chunk, Position

POLL_SECONDS = 0.25  # for a pipe without a writer
RECORD_BYTES = 16 * 1024  # kernel records are at most 8 KiB; a record that does not fit into the buffer is lost


class KmsgDevice:
    """``/dev/kmsg``, one record for each read. Also reads a pipe that carries such records.

    The position is boot ID and sequence number. After a restart of the agent the ring buffer is read again from its
    oldest record, and records read before are skipped. In another boot all records are new.
    """

    name = "kmsg"

    def __init__(self, path: pathlib.Path, *, uptime: Callable[[], float] = time.monotonic) -> None:
        """``uptime``: seconds on the clock of the kernel's records (approximately CLOCK_MONOTONIC)."""
        self._path = path
        self._uptime = uptime
        self._handle: int | None = None
        self._boot_id: str | None = None
        self._sequence: int | None = None
        self._tail = b""

    def resume(self, position: Position) -> None:
        boot_id, sequence = position.get("boot_id"), position.get("sequence")
        if isinstance(boot_id, str) and isinstance(sequence, int):
            self._boot_id, self._sequence = boot_id, sequence

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        if boot_id != self._boot_id:
            self._boot_id, self._sequence = boot_id, None
            self.close()
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with contextlib.suppress(OSError):  # a pipe cannot seek
                os.lseek(self._handle, 0, os.SEEK_SET)
        booted = now - timedelta(seconds=self._uptime())
        records: list[Record] = []
        lost = 0
        lines, more = self._lines(self._handle)
        for line in lines:
            if line.startswith(" "):
                continue  # KEY=value: names the device of the record above
            header, text = split_header(line)
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

    def wait(self, timeout: float) -> bool:
        if self._handle is None:
            time.sleep(min(timeout, 1.0))
            return True
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        started = time.monotonic()
        ready = poll.poll(timeout * 1000)
        if ready and not ready[0][1] & select.POLLIN:  # a pipe without a writer is always "ready"
            time.sleep(max(0.0, min(timeout, POLL_SECONDS) - (time.monotonic() - started)))
        return bool(ready)

    def close(self) -> None:
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
                data = os.read(handle, RECORD_BYTES)
            except BlockingIOError:
                return lines, False
            except OSError as error:
                # EPIPE: the ring buffer overran the reader; the next read continues with its oldest record. EINVAL: a
                # record larger than the buffer was skipped. The sequence numbers show what is lost.
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    continue
                self.close()
                raise
            if not data:
                return lines, False
            *whole, tail = (self._tail + data).split(b"\n")
            self._tail = tail[:MAX_LINE_BYTES]
            lines += [line.decode(errors="backslashreplace") for line in whole]
        return lines, True
