"""Find the few relevant lines of a large saved log without splitting all of it into lines."""

import mmap
import re
from collections.abc import Iterator, Sequence

# A kernel record is at most 8 KiB; its prefix is far shorter.
_MAX_BYTES_BEFORE = 4096
_MAX_BYTES_AFTER = 8192


def find_lines(data: bytes | mmap.mmap, needles: Sequence[re.Pattern[bytes]]) -> Iterator[tuple[int, int]]:
    """The (start, end) offsets of the lines that contain one of ``needles``, in order; each is a literal of rare bytes.

    A line is cut at 4 KiB before and 8 KiB after the needle.
    """
    next_hits = [needle.search(data) for needle in needles]
    while hits := [hit.start() for hit in next_hits if hit]:
        hit = min(hits)
        start = data.rfind(b"\n", max(0, hit - _MAX_BYTES_BEFORE), hit) + 1 or max(0, hit - _MAX_BYTES_BEFORE)
        end = data.find(b"\n", hit, hit + _MAX_BYTES_AFTER)
        end = min(len(data), hit + _MAX_BYTES_AFTER) if end < 0 else end
        yield start, end
        for index, needle in enumerate(needles):
            next_hit = next_hits[index]
            if next_hit and next_hit.start() < end:
                next_hits[index] = needle.search(data, end)


def decode_line(line: bytes) -> str:
    """The line as text; bytes that are not UTF-8 become ``\\xNN``, as in the kernel's own escapes."""
    return line.decode(errors="backslashreplace")
