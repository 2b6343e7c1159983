"""``python -m agents scan FILE``: the faults in a saved kernel log, one JSON object a line."""

import json
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from kcover import xid

BLOCK = 4 << 20  # bytes of standard input that are scanned at once


def main(name: str) -> int:
    """Returns the exit status: 0, or 1 where the file (``-``: standard input) cannot be read."""
    try:
        if name == "-":
            _print(sighting for block in _blocks(sys.stdin.buffer) for sighting in xid.scan(block))
            return 0
        with open(name, "rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError):  # empty, or a pipe
                _print(sighting for block in _blocks(file) for sighting in xid.scan(block))
            else:
                with mapped:
                    _print(xid.scan(mapped))
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"scan: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _print(sightings: Iterable[xid.Sighting]) -> None:
    for one in sightings:
        shown = {
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
        sys.stdout.write(json.dumps(shown) + "\n")
    sys.stdout.flush()


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
