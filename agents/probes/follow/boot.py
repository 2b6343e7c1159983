"""Where a boot begins in a kernel log that is a file: at the kernel's first line, which says its version."""

import os
import re

FAR = 256 << 20  # bytes before the end that are searched
_NEEDLE = b"Linux version "
_BLOCK, _LINE = 1 << 20, 4096
# What may stand before it: nothing, the header of /dev/kmsg, or syslog's words; then the stamp, or none.
_BEFORE = re.compile(
    rb"(?:[0-9]{1,10},[0-9]{1,19},[0-9]{1,19},[^;\n]{0,200};|[^\n]* kernel: )?(?:\[ *0\.0+\](?:\[ *[TC][0-9]+\])? ?)?"
)


def last(handle: int, *, after: int = 0) -> int | None:
    """The offset of the last boot's first line, None where none is told of at ``after`` or later."""
    size = os.fstat(handle).st_size
    start, least = size, max(after, size - FAR)
    while start > least:
        start = max(least, start - _BLOCK)
        base = max(0, start - _LINE)
        data = os.pread(handle, _BLOCK + start - base, base)
        found = len(data)
        while (found := data.rfind(_NEEDLE, 0, found)) >= 0:
            line = data.rfind(b"\n", 0, found) + 1
            if base + line >= after and _BEFORE.fullmatch(data, line, found):
                return base + line
    return None
