"""What a log was renamed to: the files that rotation left beside it, in the order in which they were written."""

import os
import pathlib
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

# logrotate's names: kern.log.1, kern.log-20261121, kern.log.2026-11-21T08; packed ones cannot be followed.
_SUFFIX = re.compile(r"[.-](?P<number>[0-9][0-9T:._-]{0,30}?)(?P<packed>\.(?:gz|bz2|xz|zst|lz4|Z))?")
_COUNTED = 4  # digits of a suffix that counts (.1 is newer than .2); longer ones are dates
_SECOND = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """One of them. ``written``: ns, when it was written to last, which packing keeps; ``place`` grows with time, by the
    name."""

    path: pathlib.Path
    inode: int
    packed: bool
    written: int = field(compare=False)
    place: int = field(compare=False)


def rotated(log: pathlib.Path) -> list[Rotated]:
    """The files that were at ``log`` once, by their names, oldest first; not what is there now."""
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
            here = os.stat(entry.path)
        except OSError:  # renamed just now
            continue
        if not stat.S_ISREG(here.st_mode):
            continue
        digits = "".join(letter for letter in suffix["number"] if letter.isdigit())
        found.append(
            Rotated(
                path=log.parent / entry.name,
                inode=here.st_ino,
                packed=suffix["packed"] is not None,
                written=here.st_mtime_ns,
                place=-int(digits) if len(digits) <= _COUNTED else int(digits),
            )
        )
    return sorted(found, key=lambda one: (one.written, one.place))


def after(files: Sequence[Rotated], *, inode: int | None, written: int) -> tuple[list[Rotated], str]:
    """Those of ``files`` that were written after one file and can be read, and why lines may be missing between it and
    them, "" where none are.

    That file is known by its ``inode`` (None: it is no longer to be had), or packed by the moment ``written`` (ns) of
    its last line. Where it is not found the one that followed it may be gone as well.
    """
    moments = (written, written // _SECOND * _SECOND)  # some packers keep whole seconds
    known = next((one for one in files if inode is not None and one.inode == inode), None)
    known = known or next((one for one in files if one.packed and one.written in moments), None)
    if known is not None:
        newer = [one for one in files if one.place > known.place and one.written >= known.written]
    else:
        newer = [one for one in files if one.written > written]
    packed = [one.path.name for one in newer if one.packed]
    if packed:
        gap = f"{', '.join(packed)}: packed before it was read to its end"
    else:
        gap = "" if known else "the log was rotated, and the file that was read last is not beside it any more"
    return [one for one in newer if not one.packed], gap
