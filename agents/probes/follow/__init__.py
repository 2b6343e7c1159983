"""Following a kernel log: the device ``/dev/kmsg``, a plain file like ``tail -F``, or a ring in memory.

Belongs here: sources, which hand out records and the position after them. A source never skips what it has not handed
out, except where the log itself lost it, and then it says how many records are gone, or why some may be. Never here:
what a record means.
"""

import pathlib
import stat

from agents.probes.follow.device import Device
from agents.probes.follow.file import File
from agents.probes.follow.memory import Memory
from agents.probes.follow.port import Chunk, Position, Source

__all__ = ["Chunk", "Device", "File", "Memory", "Position", "Source", "source"]


def source(path: pathlib.Path) -> Source:
    """The source that fits what is at the path: a device or a pipe, else a file (which may not be there yet)."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return Device(path) if path.is_relative_to("/dev") else File(path)
    return Device(path) if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) else File(path)
