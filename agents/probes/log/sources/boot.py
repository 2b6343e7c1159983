"""Finds the start of a boot in a kernel log file: the kernel's first line, which contains its version."""

import os
import re

from kcover.faults import kernel_line

MAX_SEARCH_BYTES = 256 << 20  # before the end of the file
_NEEDLE = b"Linux version "
_BLOCK, _LINE = 1 << 20, 4096
# The text that may precede it: nothing, the header of /dev/kmsg, or that of syslog; then an optional timestamp.
_HEADED = re.compile(rb"[0-9]{1,10},[0-9]{1,19},[0-9]{1,19},[^;\n]{0,200};")
_BEFORE = re.compile(rb"(?:%b|[^\n]* kernel: )?(?:\[ *0\.0+\](?:\[ *[TC][0-9]+\])? ?)?" % _HEADED.pattern)


def last_boot_offset(handle: int, *, after: int = 0) -> int | None:
    """The offset of the first line of the last boot; None if there is none at ``after`` or later."""
    size = os.fstat(handle).st_size
    start, least = size, max(after, size - MAX_SEARCH_BYTES)
    while start > least:
        start = max(least, start - _BLOCK)
        base = max(0, start - _LINE)
        data = os.pread(handle, _BLOCK + start - base, base)
        found = len(data)
        while (found := data.rfind(_NEEDLE, 0, found)) >= 0:
            line = data.rfind(b"\n", 0, found) + 1
            begin = data[line : found + len(_NEEDLE)]
            if base + line >= after and _BEFORE.fullmatch(data, line, found) and _is_of_kernel(begin):
                return base + line
    return None


def _is_of_kernel(line: bytes) -> bool:
    """Return whether no program has written the line of this beginning. The header of ``/dev/kmsg`` names none."""
    return _HEADED.match(line) is not None or not kernel_line.is_of_program(line.decode(errors="replace"))
