"""Following a plain file."""

import errno
import os
import pathlib
import time
import zlib
from collections.abc import Iterator
from datetime import datetime

from agents.probes.follow import boot, rotation
from agents.probes.follow.port import Chunk, Position
from agents.probes.kmsg import MAX_LINE, Record, split

CHUNK = 1 << 20  # bytes read at once
POLL = 0.25  # seconds between looks
_HEAD = 256  # bytes at a file's start that tell it from another one with the same inode number


class File:
    """A plain file, followed by name: survives rotation, truncation, half lines and lines without an end.

    The position is inode, offset of the first byte not handed out, a checksum of the file's first bytes (inode numbers
    are used again) and when the file was written to last. A file that was renamed away while nobody looked is found by
    its inode and read to its end, then those that were written after it, and what is at the path last. A copy that was
    made before the file was emptied is found by its first bytes. Where lines may be missing in between, it says so.

    Lines of an earlier boot are of a machine that may have been mended since: a start reads none of them. Where the
    position is of an earlier boot it goes on with this boot's first line, or with what is yet to come if no line tells
    where that is; without a position from the last boot's first line, or all that the file has.
    """

    name = "file"

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._handle: int | None = None
        self._inode = 0
        self._offset = 0
        self._head = (0, 0)  # length and CRC-32 of the first bytes
        self._boot_id = ""  # the position's
        self._written = 0  # ns, the file's last change that was looked at
        self._skipping = False  # inside a line whose start was handed out because it grew too long
        self._resume: Position | None = None
        self._seen: tuple[int, int, int] | None = None  # what was at the path at the last look

    def resume(self, position: Position) -> None:
        """See ``Source.resume``."""
        if isinstance(position.get("inode"), int) and isinstance(position.get("offset"), int):
            self._resume = position

    def read(self, *, boot_id: str, now: datetime) -> Chunk:
        """See ``Source.read``; every line carries ``now``."""
        self._seen = self._look()  # before the reading: what comes after it wakes who waits
        gap = self._open(boot_id) if self._handle is None else ""
        self._boot_id = boot_id
        assert self._handle is not None
        here = os.fstat(self._handle)
        if here.st_size < self._offset or self._checksum(self._handle, self._head[0]) != self._head:
            gap = self._emptied()
            here = os.fstat(self._handle)
        self._written = here.st_mtime_ns
        rotated = self._seen is not None and self._seen[0] != self._inode
        before = self._offset
        lines = self._lines(self._handle)
        more = self._offset != before
        if not more and rotated:
            rest = self._remainder(self._handle)
            if (unread := self._go_on(self._inode, self._written)) is not None:
                lines, gap, more = rest, gap or unread, True
        return Chunk(records=tuple(_records(lines, now)), position=self._position(), more=more, gap=gap)

    def wait(self, timeout: float) -> None:
        """See ``Source.wait``: one ``stat`` a quarter of a second, as the standard library has no inotify."""
        until = time.monotonic() + timeout
        while self._look() == self._seen and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL))

    def close(self) -> None:
        """See ``Source.close``."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self, boot_id: str) -> str:
        """Opens the log where it was left, and says why lines may be missing, "" where none are."""
        position = self._resume
        if position is None or position.get("boot_id", boot_id) != boot_id:
            return self._open_in_boot(position)
        gap: str | None = ""
        if not any(self._continue(path, position) for path in (self._path, *self._renamed())):
            written = position.get("written")
            moment = written if isinstance(written, int) else time.time_ns()
            gap = "" if self._copied({**position, "written": moment}) else self._go_on(None, moment)
        if gap is None:
            raise OSError(errno.EAGAIN, "is being rotated just now", str(self._path))
        self._resume = None
        return gap

    def _open_in_boot(self, position: Position | None) -> str:
        """Opens the log where this boot begins; ``position``: where it was left in another one."""
        handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._begin(handle)
        here, after = os.fstat(handle), 0
        if position is not None and position["inode"] == here.st_ino:
            length, checksum = position.get("head", (0, 0))
            same = self._checksum(handle, length) == (length, checksum)
            after = position["offset"] if same else 0
        start = boot.last(handle, after=after)
        known = start is not None or position is None
        self._advance(handle, (start or 0) if known else here.st_size)
        self._resume = None
        if known:
            return ""
        self._skipping = here.st_size > 0 and os.pread(handle, 1, here.st_size - 1) != b"\n"
        return "the machine was booted since, and no line of the log tells where: what it held is not read"

    def _begin(self, handle: int) -> None:
        self.close()
        self._handle, self._inode = handle, os.fstat(handle).st_ino
        self._start_over()

    def _go_on(self, inode: int | None, written: int) -> str | None:
        """Opens what was written after a file (``rotation.after``), and says why lines may be missing in between. None:
        nothing was opened, as names are changing just now, or the log is empty: its writer may still hold the file."""
        files = rotation.rotated(self._path)
        newer, gap = rotation.after(files, inode=inode, written=written)
        handle = os.open(newer[0].path if newer else self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        there = os.fstat(handle)
        waits = not newer and inode is not None and not there.st_size
        if waits or rotation.rotated(self._path) != files or (newer and there.st_ino != newer[0].inode):
            os.close(handle)
            return None
        self._begin(handle)
        return gap

    def _emptied(self) -> str:
        """The file was emptied, and perhaps filled again: goes on in a copy of what it held, else from its start."""
        if self._copied({**self._position(), "written": self._written}):
            return ""
        self._start_over()
        return "the log was emptied, perhaps before it was read to its end"

    def _copied(self, position: Position) -> bool:
        """Goes on in a copy of the file (logrotate's copytruncate), made since it was looked at last."""
        copies = [one for one in rotation.rotated(self._path) if one.written >= position["written"]]
        return any(self._continue(one.path, position, same=False) for one in copies if not one.packed)

    def _continue(self, path: pathlib.Path, position: Position, *, same: bool = True) -> bool:
        """Opens ``path`` at a position, if it is the file that this was a position in; not ``same``: a copy of it."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        here = os.fstat(handle)
        length, checksum = position.get("head", (0, 0))
        known = (here.st_ino == position["inode"] if same else length > 0) and here.st_size >= position["offset"]
        if not known or self._checksum(handle, length) != (length, checksum):
            os.close(handle)
            return False
        self.close()
        self._handle, self._inode, self._offset = handle, here.st_ino, position["offset"]
        self._head = (length, checksum)
        self._skipping = bool(position.get("skipping"))
        return True

    def _renamed(self) -> list[pathlib.Path]:
        try:
            return sorted(path for path in self._path.parent.glob(f"{self._path.name}?*") if path.is_file())
        except OSError:
            return []

    def _look(self) -> tuple[int, int, int] | None:
        """Inode, size and time of what is at the path; None between two names, when the old one may still grow."""
        try:
            here = self._path.stat()
        except OSError:
            return None
        return here.st_ino, here.st_size, here.st_mtime_ns

    def _start_over(self) -> None:
        self._offset, self._head, self._skipping = 0, (0, 0), False

    def _lines(self, handle: int) -> list[bytes]:
        data = os.pread(handle, CHUNK, self._offset)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) > MAX_LINE:  # a line without an end: what it begins with is enough
            self._advance(handle, len(data))
            skipping, self._skipping = self._skipping, True
            return [] if skipping else [data[:MAX_LINE]]
        lines = data[:end].split(b"\n")[:-1]
        if end and self._skipping:
            lines, self._skipping = lines[1:], False
        self._advance(handle, end)
        return lines

    def _remainder(self, handle: int) -> list[bytes]:
        """The last line of a file that nobody writes to any more."""
        data = os.pread(handle, MAX_LINE, self._offset)
        return [data] if data and not self._skipping else []

    def _advance(self, handle: int, count: int) -> None:
        self._offset += count
        if self._head[0] < _HEAD and count:
            self._head = self._checksum(handle, min(_HEAD, self._offset))

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


def _records(lines: list[bytes], now: datetime) -> Iterator[Record]:
    for line in lines:
        text = line[:MAX_LINE].decode(errors="backslashreplace")
        header, text = split(text)
        if header is None:
            yield Record(text=text, at=now)
        else:  # a saved /dev/kmsg
            yield Record(text=text, at=now, facility=header.facility, sequence=header.sequence)
