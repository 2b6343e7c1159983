"""``python -m agents scan FILE``: the faults in a saved kernel log, one JSON object a line."""

import mmap
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from agents import output
from kcover import machine_check, saved_log, xid

NEEDLES = (*xid.NEEDLES, *machine_check.NEEDLES)
SHOWN = ("kind", "code", "pci", "pid", "process", "fatal", "link", "mig", "cause", "line")
BLOCK = 4 << 20  # bytes of standard input that are scanned at once


def main(name: str) -> int:
    """Returns the exit status: 0, or 1 where the file (``-``: standard input) cannot be read."""
    try:
        if name == "-":
            output.show(one for block in _blocks(sys.stdin.buffer) for one in _faults(block))
            return 0
        with open(name, "rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError):  # empty, or a pipe
                output.show(one for block in _blocks(file) for one in _faults(block))
            else:
                with mapped:
                    output.show(_faults(mapped))
    except OSError as error:
        print(f"scan: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _faults(data: bytes | mmap.mmap) -> Iterator[dict[str, Any]]:
    for start, end in saved_log.lines(data, NEEDLES):
        sighting = xid.read_at(data, start, end)
        if sighting is not None:
            yield _shown(sighting)
        elif machine_check.is_uncorrected(line := saved_log.text(data[start:end]).rstrip("\r\n")):
            nothing = dict.fromkeys(SHOWN)
            yield {**nothing, "kind": machine_check.KIND, "code": machine_check.CODE, "line": line}


def _shown(one: xid.Sighting) -> dict[str, Any]:
    return {name: getattr(one, name) for name in SHOWN}


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
