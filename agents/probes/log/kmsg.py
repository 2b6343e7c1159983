"""Kernel log records to faults: pure, no I/O, no clock.

A record of ``/dev/kmsg`` is ``PRIORITY,SEQUENCE,USEC,FLAGS;TEXT``, optionally followed by lines `` KEY=value``. Bytes
outside printable ASCII are escaped as ``\\xNN``; the core's parser (``kcover.faults.xid``) reads them as they are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from kcover import sequence_ranges
from kcover.faults import machine_check, xid
from kcover.faults.fault import Fault
from kcover.wire.fields import MAX_COUNT, MAX_RECORDS

MAX_LINE_BYTES = 64 * 1024  # only so much of a line is read; no kernel line is longer than 8 KiB
MAX_MESSAGE_CHARS = 4096  # the most of a line that is reported
REPEAT_WINDOW = timedelta(seconds=5)  # a failing GPU repeats one line for seconds to minutes: several lines, one fault
MAX_WINDOWS = 1000  # distinct faults remembered at a time; in a larger flood each line is reported
SOURCE_NAME = "kmsg"

_HEADER = re.compile(r"([0-9]{1,10}),([0-9]{1,19}),([0-9]{1,19}),[^;]{0,200};")
_COMPANION = re.compile(r"Severity [0-9]|Data \{")

Key = tuple[str, int | str, str | None, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message of the kernel log. ``at``: when it was logged, or read if the log has no time.

    ``facility`` 0 is the kernel's own. The kernel lets no program use it, so any other value is a program's message.
    """

    text: str
    at: datetime
    facility: int = 0
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a record, before its text. ``usec``: microseconds since boot."""

    facility: int
    sequence: int
    usec: int


def split_header(line: str) -> tuple[Header | None, str]:
    """The kmsg header of a line, None if it has none (a plain log), and the text."""
    match = _HEADER.match(line)
    if match is None:
        return None, line
    priority, sequence, usec = (int(group) for group in match.groups())
    return Header(facility=priority >> 3, sequence=sequence, usec=usec), line[match.end() :]


def faults(records: Iterable[Record], *, now: datetime) -> list[Fault]:
    """The faults of these records. Several lines about the same fault are folded into one, with their number in
    ``count``."""
    windows = RepeatWindows()
    return windows.fold(faults_of(records), now=now) + windows.close()


def faults_of(records: Iterable[Record]) -> list[Fault]:
    """One fault for each line, in order. ``count`` is 0 for a line that only adds to a fault of another line: the
    second and third line of an SXid, the plain line after an Xid 79."""
    found = []
    kept = list(records)
    texts = [record.text for record in kept]
    for index, record in enumerate(kept):
        if "Xid" not in record.text and "fallen off" not in record.text:  # nearly every line of a kernel log ends here
            if machine_check.is_uncorrected(record.text):
                found.append(_fault(record, kind=machine_check.KIND, code=machine_check.CODE))
            continue
        # The two lines before tell which GPU a line without an address is about (lost GPUs with older drivers).
        for fault_line in xid.parse_lines(texts[max(0, index - 2) : index + 1]):
            if fault_line.line != record.text.rstrip("\r\n"):
                continue
            count = 0 if _is_companion(fault_line) else 1
            found.append(_fault(record, kind=fault_line.kind, code=fault_line.code, pci=fault_line.pci, count=count))
            break
    return found


def _fault(record: Record, *, kind: str, code: int | str, pci: str | None = None, count: int = 1) -> Fault:
    return Fault(
        kind=kind,
        code=code,
        pci=pci,
        message=record.text[:MAX_MESSAGE_CHARS],
        seen_at=record.at,
        source=SOURCE_NAME,
        sequence=record.sequence,
        drill=record.facility != 0,
        count=count,
    )


def _is_companion(fault_line: xid.FaultLine) -> bool:
    if fault_line.kind == "sxid":
        return _COMPANION.match(fault_line.text) is not None
    return fault_line.code == xid.OFF_THE_BUS and "Xid" not in fault_line.line


@dataclass(slots=True)
class _Repeats:
    """Equal lines that become one fault: ``fault_shown`` is the one shown, ``count`` how many there are, ``records``
    their sequence numbers."""

    fault_shown: Fault
    count: int
    records: list[list[int]]

    @classmethod
    def of(cls, fault: Fault) -> "_Repeats":
        alone = () if fault.sequence is None else ((fault.sequence, fault.sequence),)
        return cls(fault, max(fault.count, 1), [list(pair) for pair in fault.records or alone])

    def add(self, fault: Fault) -> None:
        """Add a line. One that only adds information (count 0) is not a record of its own."""
        self.count += fault.count
        if fault.sequence is None or not fault.count:
            return
        if self.records and fault.sequence == self.records[-1][1] + 1:
            self.records[-1][1] = fault.sequence
        else:
            self.records.append([fault.sequence, fault.sequence])
        if len(self.records) > 4 * MAX_RECORDS:
            self.records = [list(pair) for pair in self._ranges()]

    def fault(self) -> Fault:
        """The fault as it is reported."""
        ranges = self._ranges()
        return replace(self.fault_shown, count=self.count, records=ranges if sequence_ranges.total(ranges) > 1 else ())

    def _ranges(self) -> sequence_ranges.Ranges:
        return sequence_ranges.merge(self.records, max_ranges=MAX_RECORDS)


@dataclass(slots=True)
class _Window:
    """The time since the first of equal faults; ``repeats`` are the faults that followed."""

    opened: datetime
    repeats: _Repeats | None = None


class RepeatWindows:
    """Folds equal faults (kind, code, GPU, drill or not) that occur within 5 s of each other.

    The first is reported at once. Those that follow are held, and reported as one with their count when the window
    closes. Held faults are part of ``state``, so they survive a restart together with the position in the log.
    """

    def __init__(self, state: Iterable[Mapping[str, Any]] = ()) -> None:
        """``state``: from ``state()``. An entry that cannot be read is dropped; its line is only a repeat."""
        self._open: dict[Key, _Window] = {}
        for entry in state:
            try:
                fault = _load(entry["fault"])
                opened = datetime.fromisoformat(entry["opened"])
                self._open[_key(fault)] = _Window(opened, _Repeats.of(fault) if fault.count else None)
            except (KeyError, TypeError, ValueError):
                continue

    def fold(self, found: Iterable[Fault], *, now: datetime) -> list[Fault]:
        """The faults to report now: new ones, and held ones whose window is over."""
        out: list[_Repeats] = []
        fresh: dict[Key, _Repeats] = {}  # windows that this call opened
        for fault in found:
            key = _key(fault)
            at = fault.seen_at or now
            window = self._open.get(key)
            if window is None or not _within(window.opened, at):
                if window is not None and window.repeats is not None:
                    out.append(window.repeats)
                self._open[key] = _Window(at)
                fresh[key] = _Repeats.of(fault)
                out.append(fresh[key])
            elif key in fresh:
                fresh[key].add(fault)
            elif fault.count:
                if window.repeats is not None and window.repeats.count + fault.count > MAX_COUNT:
                    out.append(window.repeats)
                    window.repeats = None
                if window.repeats is None:
                    window.repeats = _Repeats.of(fault)
                else:
                    window.repeats.add(fault)
                    window.repeats.fault_shown = fault
        return [run.fault() for run in (*out, *self._expire(now))]

    def close(self) -> list[Fault]:
        """The held faults; all windows close."""
        repeats = [window.repeats.fault() for window in self._open.values() if window.repeats is not None]
        self._open.clear()
        return repeats

    @property
    def is_holding(self) -> bool:
        """True if a fault waits for its window to close."""
        return any(window.repeats for window in self._open.values())

    def state(self) -> list[dict[str, Any]]:
        """Plain data from which a later ``RepeatWindows`` can start."""
        return [
            {
                "opened": window.opened.isoformat(),
                "fault": _dump(key, window.repeats.fault() if window.repeats else None),
            }
            for key, window in self._open.items()
        ]

    def _expire(self, now: datetime) -> list[_Repeats]:
        out = []
        for key, window in list(self._open.items()):
            if _within(window.opened, now):
                continue
            if window.repeats is None:
                del self._open[key]
            else:  # the faults continue: report them once per window
                out.append(window.repeats)
                self._open[key] = _Window(now)
        for key in list(self._open)[: max(0, len(self._open) - MAX_WINDOWS)]:
            window = self._open.pop(key)
            if window.repeats is not None:
                out.append(window.repeats)
        return out


def _within(opened: datetime, at: datetime) -> bool:
    return abs(at - opened) < REPEAT_WINDOW  # if the clock was set back, the window must not stay open


def _key(fault: Fault) -> Key:
    return fault.kind, fault.code, xid.slot(fault.pci) or fault.pci, fault.drill


def _dump(key: Key, repeats: Fault | None) -> dict[str, Any]:
    kind, code, pci, drill = key
    data: dict[str, Any] = {
        "kind": kind,
        "code": code,
        "pci": repeats.pci if repeats else pci,
        "drill": drill,
        "count": 0,
    }
    if repeats is not None:
        seen_at = repeats.seen_at.isoformat() if repeats.seen_at else None
        data |= {"count": repeats.count, "message": repeats.message, "seen_at": seen_at, "sequence": repeats.sequence}
        data["records"] = [list(pair) for pair in repeats.records]
    return data


def _load(data: Mapping[str, Any]) -> Fault:
    seen_at = data.get("seen_at")
    return Fault(
        kind=data["kind"],
        code=data["code"],
        pci=data["pci"],
        drill=data["drill"],
        count=data["count"],
        message=data.get("message", ""),
        seen_at=datetime.fromisoformat(seen_at) if seen_at else None,
        sequence=data.get("sequence"),
        source=SOURCE_NAME,
        records=tuple((int(first), int(last)) for first, last in data.get("records", ())),
    )
