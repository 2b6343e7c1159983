"""Follows a plain file."""

import errno
import os
import pathlib
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from agents.probes.log.kmsg import MAX_LINE_BYTES, Record, split_header
from agents.probes.log.sources import boot, file_rotation
from agents.probes.log.sources.source import Chunk, Position
from kcover.faults.kernel_line import DRIFT

CHUNK_BYTES = 1 << 20  # read at once
POLL_SECONDS = 0.25
_HEAD_BYTES = 256  # at the start of a file; they tell it from another file with the same inode number


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LogFile:
    """A plain file, followed by name. Survives rotation, truncation, incomplete lines and lines without an end.

    The position is the inode, the offset of the first byte not yet returned, a checksum of the first bytes (inode
    numbers are reused) and the time of the last write. A file that was renamed meanwhile is found by its inode and read
    to its end, then the files written after it, and last the one at the path. A copy made before the file was truncated
    is found by its first bytes. If lines may be missing in between, the source says so.

    Lines of an earlier boot are about a machine that may have been repaired since, so none of them is read at the
    start. With a position from an earlier boot, reading continues at the first line of this boot, or at the end of the
    file if no line shows it. Without a position, it starts at the first line of the last boot, or at the start of
    the file. Whatever was found so, no line counts whose kernel had run for longer than the machine has, or that was
    printed before it started (RFC 3339, less ``kmsg.CLOCK_STEP``): a system log may add the last lines of a boot after
    the next one has begun.
    """

    name = "file"

    def __init__(self, path: pathlib.Path, *, uptime: Callable[[], float] = _uptime) -> None:
        """``uptime``: seconds since the machine booted."""
        self._path = path
        self._uptime = uptime
        self._handle: int | None = None
        self._inode = 0
        self._offset = 0
        self._head = (0, 0)  # length and CRC-32 of the first bytes
        self._boot_id = ""  # of the position
        self._written = 0  # ns, time of the last write that was read
        self._skipping = False  # inside an overlong line whose start was returned already
        self._resume_position: Position | None = None
        self._last_stat: tuple[int, int, int] | None = None  # of the path, at the last read

    def resume(self, position: Position) -> None:
        if isinstance(position.get("inode"), int) and isinstance(position.get("offset"), int):
            self._resume_position = position

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        """Every line carries the time ``now``."""
        self._last_stat = self._stat()  # before reading: later writes then end ``wait``
        gap = self._open(boot_id) if self._handle is None else ""
        self._boot_id = boot_id
        assert self._handle is not None
        status = os.fstat(self._handle)
        if status.st_size < self._offset or self._checksum(self._handle, self._head[0]) != self._head:
            gap = self._after_truncation()
            status = os.fstat(self._handle)
        self._written = status.st_mtime_ns
        rotated = self._last_stat is not None and self._last_stat[0] != self._inode
        before = self._offset
        lines = self._lines(self._handle)
        more = self._offset != before
        if not more and rotated:
            remainder = self._remainder(self._handle)
            if (unread := self._open_next(self._inode, self._written)) is not None:
                lines, gap, more = remainder, gap or unread, True
        ran = timedelta(seconds=self._uptime() * (1 + DRIFT) + 1)  # asked after reading: no line is newer
        return Chunk(records=tuple(_records(lines, now, ran)), position=self._position(), more=more, gap=gap)

    def wait(self, timeout: float) -> bool:
        """One ``stat`` every quarter of a second; the standard library has no inotify. Always True: after a rotation
        the old file may grow."""
        until = time.monotonic() + timeout
        while self._stat() == self._last_stat and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
        return True

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self, boot_id: str) -> str:
        """Open the log at the position. Return why lines may be missing, empty if none are."""
        position = self._resume_position
        if position is None or position.get("boot_id", boot_id) != boot_id:
            return self._open_in_boot(position)
        gap: str | None = ""
        if not any(self._continue(path, position) for path in (self._path, *self._renamed())):
            written = position.get("written")
            moment = written if isinstance(written, int) else time.time_ns()
            gap = "" if self._continue_in_copy({**position, "written": moment}) else self._open_next(None, moment)
        if gap is None:
            raise OSError(errno.EAGAIN, "the log is being rotated", str(self._path))
        self._resume_position = None
        return gap

    def _open_in_boot(self, position: Position | None) -> str:
        """Open the log where this boot begins. ``position``: where reading stopped in another boot."""
        handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._begin(handle)
        status, after = os.fstat(handle), 0
        if position is not None and position["inode"] == status.st_ino:
            length, checksum = position.get("head", (0, 0))
            unchanged = self._checksum(handle, length) == (length, checksum)
            after = position["offset"] if unchanged else 0
        start = boot.last_boot_offset(handle, after=after)
        known = start is not None or position is None
        self._advance(handle, (start or 0) if known else status.st_size)
        self._resume_position = None
        if known:
            return ""
        self._skipping = status.st_size > 0 and os.pread(handle, 1, status.st_size - 1) != b"\n"
        return "the machine has rebooted, and no line of the log shows where: its earlier content was skipped"

    def _begin(self, handle: int) -> None:
        self.close()
        self._handle, self._inode = handle, os.fstat(handle).st_ino
        self._rewind()

    def _open_next(self, inode: int | None, written: int) -> str | None:
        """Open the file written next (``rotation.files_after``). Return why lines may be missing in between.

        None: nothing was opened, because files are being renamed just now, or because the log is empty and its writer
        may still hold the old file.
        """
        files = file_rotation.rotated_files(self._path)
        newer, gap = file_rotation.files_after(files, inode=inode, written=written)
        handle = os.open(newer[0].path if newer else self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(handle)
        waits = not newer and inode is not None and not status.st_size
        if waits or file_rotation.rotated_files(self._path) != files or (newer and status.st_ino != newer[0].inode):
            os.close(handle)
            return None
        self._begin(handle)
        return gap

    def _after_truncation(self) -> str:
        """Continue after a truncation: in a copy of the old content, else at the start of the file, which may have been
        refilled.
        """
        if self._continue_in_copy({**self._position(), "written": self._written}):
            return ""
        self._rewind()
        return "the log was truncated, perhaps before it was read to its end"

    def _continue_in_copy(self, position: Position) -> bool:
        """Continue in a copy of the file (logrotate's copytruncate), made since the last read."""
        copies = [file for file in file_rotation.rotated_files(self._path) if file.written >= position["written"]]
        return any(self._continue(file.path, position, same=False) for file in copies if not file.packed)

    def _continue(self, path: pathlib.Path, position: Position, *, same: bool = True) -> bool:
        """Open ``path`` at a position, if it is the file of that position.

        ``same`` False: it is a copy of that file.
        """
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        status = os.fstat(handle)
        length, checksum = position.get("head", (0, 0))
        known = (status.st_ino == position["inode"] if same else length > 0) and status.st_size >= position["offset"]
        if not known or self._checksum(handle, length) != (length, checksum):
            os.close(handle)
            return False
        self.close()
        self._handle, self._inode, self._offset = handle, status.st_ino, position["offset"]
        self._head = (length, checksum)
        self._skipping = bool(position.get("skipping"))
        return True

    def _renamed(self) -> list[pathlib.Path]:
        try:
            return sorted(path for path in self._path.parent.glob(f"{self._path.name}?*") if path.is_file())
        except OSError:
            return []

    def _stat(self) -> tuple[int, int, int] | None:
        """Inode, size and time of the file at the path. None between two names, when the old file may still grow."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _rewind(self) -> None:
        self._offset, self._head, self._skipping = 0, (0, 0), False

    def _lines(self, handle: int) -> list[bytes]:
        data = os.pread(handle, CHUNK_BYTES, self._offset)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > MAX_LINE_BYTES:  # a line without an end: its start is sufficient
            self._advance(handle, len(data))
            skipping, self._skipping = self._skipping, True
            return [] if skipping else [data[:MAX_LINE_BYTES]]
        lines = data[:end].split(b"\n")[:-1]
        if end and self._skipping:
            lines, self._skipping = lines[1:], False
        self._advance(handle, end)
        return lines

    def _remainder(self, handle: int) -> list[bytes]:
        """The last line of a file that is no longer written."""
        data = os.pread(handle, MAX_LINE_BYTES, self._offset)
        return [data] if data and not self._skipping else []

    def _advance(self, handle: int, count: int) -> None:
        self._offset += count
        if self._head[0] < _HEAD_BYTES and count:
            self._head = self._checksum(handle, min(_HEAD_BYTES, self._offset))

    def _position(self) -> Position:
        if self._handle is None:
            return {}
        return {
            "inode": self._inode,
            "offset": self._offset,
            "boot_id": self._boot_id,
            "head": list(self._head),
            "skipping": self._skipping,
            "written": self._written,
        }

    @staticmethod
    def _checksum(handle: int, length: int) -> tuple[int, int]:
        data = os.pread(handle, length, 0) if length else b""
        return len(data), zlib.crc32(data) if data else 0


def _records(lines: list[bytes], now: datetime, ran: timedelta) -> Iterator[Record]:
    most = ran // timedelta(microseconds=1)
    for line in lines:
        text = line[:MAX_LINE_BYTES].decode(errors="backslashreplace")
        header, text = split_header(text)
        if header is None:
            yield Record(text=text, at=now, is_plain=True, most_uptime=ran)
        elif header.usec <= most:  # a saved /dev/kmsg
            yield Record(text=text, at=now, facility=header.facility, sequence=header.sequence)
