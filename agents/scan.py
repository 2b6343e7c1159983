"""``python -m agents scan FILE``: the faults in a saved kernel log, one JSON object a line."""

import mmap
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from agents import output
from kcover import xid

BLOCK = 4 << 20  # bytes of standard input that are scanned at once


def main(name: str) -> int:
    """Returns the exit status: 0, or 1 where the file (``-``: standard input) cannot be read."""
    try:
        if name == "-":
            output.show(_shown(one) for block in _blocks(sys.stdin.buffer) for one in xid.scan(block))
            return 0
        with open(name, "rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError):  # empty, or a pipe
                output.show(_shown(one) for block in _blocks(file) for one in xid.scan(block))
            else:
                with mapped:
                    output.show(map(_shown, xid.scan(mapped)))
    except OSError as error:
        print(f"scan: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _shown(one: xid.Sighting) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "code": one.code,
        "pci": one.pci,
        "pid": one.pid,
        "process": one.process,
        "fatal": one.fatal,
        "link": one.link,
        "mig": one.mig,
        "cause": one.cause,
        "line": one.line,
    }


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The stream cut at line ends; a line longer than a block is cut in two."""
    tail = b""
    while data := file.read(BLOCK):
        end = data.rfind(b"\n") + 1
        if end == 0 and len(tail) < BLOCK:
            tail += data
            continue
        yield tail + data[:end]
        tail = data[end:]
    if tail:
        yield tail
