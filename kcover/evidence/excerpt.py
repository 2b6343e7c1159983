"""The lines of a bundle around a fault, read piece by piece, so that no bundle fills the memory."""

import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

KERNEL_LOG: Final = "kernel log"  # the name of the section
AROUND: Final = 25  # lines before and after
MAX_LINE: Final = 4_200  # characters; the agent cuts lines before
MAX_TEXT: Final = 24 << 20  # bytes of text that are read of a bundle
MAX_LINES: Final = 400_000  # that are looked at; a hostile agent could send millions of short ones
_GZIP: Final = zlib.MAX_WBITS | 16


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log; ``hit``: it is what was looked for."""

    text: str
    hit: bool


def around(pieces: Iterable[bytes], wanted: str, *, section: str = KERNEL_LOG) -> list[Line]:
    """The lines around the last one of the section that contains ``wanted``; empty if none does.

    ``pieces``: of the gzip file in order. What cannot be unpacked ends the text.
    """
    if not wanted:  # every line contains it
        return []
    before: deque[Line] = deque(maxlen=AROUND)
    found: deque[Line] = deque(maxlen=4 * AROUND)
    left = 0
    for text in _of_section(islice(_lines(pieces), MAX_LINES), section):
        line = Line(text, wanted in text)
        if line.hit:
            found = found if left else deque(before, maxlen=4 * AROUND)
            found.append(line)
            left = AROUND
        elif left:
            found.append(line)
            left -= 1
        before.append(line)
    return list(found)


def _of_section(lines: Iterable[str], section: str) -> Iterator[str]:
    inside = False
    for line in lines:
        if line.startswith("===== ") and line.endswith(" ====="):
            inside = line.startswith(f"===== {section} (")
        elif inside:
            yield line


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for text in _unpacked(pieces):
        *whole, rest = (rest + text).split(b"\n")
        rest = rest[: 4 * MAX_LINE]
        for line in whole:
            yield line.decode(errors="replace")[:MAX_LINE]
    if rest:
        yield rest.decode(errors="replace")[:MAX_LINE]


def _unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP)
    read = 0
    for piece in pieces:
        waiting = piece
        while waiting and read < MAX_TEXT:
            try:
                text = stream.decompress(waiting, 1 << 18)
            except zlib.error:
                return
            read += len(text)
            yield text
            waiting = stream.unconsumed_tail
