"""``python -m agents scan FILE``: print the faults in a saved kernel log, one JSON object per line."""

import mmap
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from agents import output
from kcover.faults import driver_line, log_scan, machine_check, xid

NEEDLES = (*xid.NEEDLES, *machine_check.NEEDLES, *driver_line.NEEDLES)
FIELDS = ("kind", "code", "pci", "pid", "process", "fatal", "link", "mig", "cause", "line")
BLOCK_BYTES = 4 << 20  # of standard input, scanned at once


def main(name: str) -> int:
    """Return the exit status: 0, or 1 if the file cannot be read. ``-`` is standard input."""
    try:
        if name == "-":
            output.show(fault for block in _blocks(sys.stdin.buffer) for fault in _faults(block))
            return 0
        with open(name, "rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (ValueError, OSError):  # an empty file, or a pipe
                output.show(fault for block in _blocks(file) for fault in _faults(block))
            else:
                with mapped:
                    output.show(_faults(mapped))
    except OSError as error:
        print(f"scan: {name}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _faults(data: bytes | mmap.mmap) -> Iterator[dict[str, Any]]:
    for start, end in log_scan.find_lines(data, NEEDLES):
        fault_line = xid.parse_at(data, start, end)
        if fault_line is not None:
            if not xid.is_all_clear(fault_line.code, fault_line.text):
                yield _row(fault_line)
            continue
        line = log_scan.decode_line(data[start:end]).rstrip("\r\n")
        if machine_check.is_uncorrected(line):
            yield {**dict.fromkeys(FIELDS), "kind": machine_check.KIND, "code": machine_check.CODE, "line": line}
        elif (told := driver_line.parse(line)) is not None:
            yield {
                **dict.fromkeys(FIELDS),
                "kind": driver_line.KIND,
                "code": told.code,
                "pci": told.pci,
                "line": line,
            }


def _row(fault_line: xid.FaultLine) -> dict[str, Any]:
    return {name: getattr(fault_line, name) for name in FIELDS}


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The stream in blocks that end at line ends. A line longer than a block is cut in two."""
    tail = b""
    while data := file.read(BLOCK_BYTES):
        end = data.rfind(b"\n") + 1
        if end == 0 and len(tail) < BLOCK_BYTES:
            tail += data
            continue
        yield tail + data[:end]
        tail = data[end:]
    if tail:
        yield tail
