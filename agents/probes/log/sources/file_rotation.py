"""The files that log rotation left next to a log, in the order in which they were written."""

import os
import pathlib
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

# logrotate's names: kern.log.1, kern.log-20261121, kern.log.2026-11-21T08; compressed ones cannot be followed.
_SUFFIX = re.compile(r"[.-](?P<number>[0-9][0-9T:._-]{0,30}?)(?P<packed>\.(?:gz|bz2|xz|zst|lz4|Z))?")
_COUNTED = 4  # digits of a counter (.1 is newer than .2); longer suffixes are dates
_SECOND = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedFile:
    """``written``: time of the last write in ns, which compression keeps. ``order`` grows with time, judged by the
    name."""

    path: pathlib.Path
    inode: int
    packed: bool
    written: int = field(compare=False)
    order: int = field(compare=False)


def rotated_files(log: pathlib.Path) -> list[RotatedFile]:
    """The files that were once at ``log``, judged by their names, oldest first; without the current one."""
    found = []
    try:
        entries = list(os.scandir(log.parent))
    except OSError:
        return []
    for entry in entries:
        suffix = _SUFFIX.fullmatch(entry.name, len(log.name)) if entry.name.startswith(log.name) else None
        if suffix is None:
            continue
        try:
            status = os.stat(entry.path)
        except OSError:  # renamed meanwhile
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        digits = "".join(letter for letter in suffix["number"] if letter.isdigit())
        found.append(
            RotatedFile(
                path=log.parent / entry.name,
                inode=status.st_ino,
                packed=suffix["packed"] is not None,
                written=status.st_mtime_ns,
                order=-int(digits) if len(digits) <= _COUNTED else int(digits),
            )
        )
    return sorted(found, key=lambda file: (file.written, file.order))


def files_after(files: Sequence[RotatedFile], *, inode: int | None, written: int) -> tuple[list[RotatedFile], str]:
    """The readable ones of ``files`` that were written after a given file, and why lines may be missing in between
    (empty: none are missing).

    The file is known by its ``inode`` (None: no longer available), or, once compressed, by the time of its last write
    ``written`` (ns). If it is not found, its successor may be gone as well.
    """
    moments = (written, written // _SECOND * _SECOND)  # some compressors keep whole seconds only
    known = next((file for file in files if inode is not None and file.inode == inode), None)
    known = known or next((file for file in files if file.packed and file.written in moments), None)
    if known is not None:
        newer = [file for file in files if file.order > known.order and file.written >= known.written]
    else:
        newer = [file for file in files if file.written > written]
    packed = [file.path.name for file in newer if file.packed]
    if packed:
        gap = f"{', '.join(packed)}: compressed before it was read to its end"
    else:
        gap = "" if known else "the log was rotated, and the file that was read last is gone"
    return [file for file in newer if not file.packed], gap
