"""Finding the few lines of a large saved log that matter, without reading the others."""

import mmap
import re
from collections.abc import Iterator, Sequence

# A kernel record is at most 8 KiB, its prefix far less.
_BEFORE = 4096
_AFTER = 8192


def lines(data: bytes | mmap.mmap, needles: Sequence[re.Pattern[bytes]]) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end in which one of ``needles`` occurs, in order; each is a literal of rare bytes.

    A line is read up to 4 KiB before and 8 KiB after the needle.
    """
    following = [needle.search(data) for needle in needles]
    while hits := [hit.start() for hit in following if hit]:
        hit = min(hits)
        start = data.rfind(b"\n", max(0, hit - _BEFORE), hit) + 1 or max(0, hit - _BEFORE)
        end = data.find(b"\n", hit, hit + _AFTER)
        end = min(len(data), hit + _AFTER) if end < 0 else end
        yield start, end
        for index, needle in enumerate(needles):
            ahead = following[index]
            if ahead and ahead.start() < end:
                following[index] = needle.search(data, end)


def text(line: bytes) -> str:
    """A line as text; bytes that are not UTF-8 come out as ``\\xNN``, the kernel's way."""
    return line.decode(errors="backslashreplace")
