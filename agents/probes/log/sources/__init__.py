"""Where kernel log records come from: ``/dev/kmsg``, a plain file (like ``tail -F``), or memory.

Belongs here: sources. A source returns records and the position after them. It never skips a record that it has not
returned, unless the log itself lost it; then it reports how many records are lost, or why some may be. Never here: what
a record means.
"""

import pathlib
import stat

from agents.probes.log.sources.kmsg_device import KmsgDevice as KmsgDevice
from agents.probes.log.sources.log_file import LogFile as LogFile
from agents.probes.log.sources.memory_log import MemoryLog as MemoryLog
from agents.probes.log.sources.source import Chunk as Chunk, Position as Position, Source as Source


def source_for(path: pathlib.Path) -> Source:
    """The source for this path: a device or pipe, else a file (which may not exist yet)."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return KmsgDevice(path) if path.is_relative_to("/dev") else LogFile(path)
    return KmsgDevice(path) if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) else LogFile(path)
