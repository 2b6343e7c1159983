"""Kernel log records to faults: pure, no I/O, no clock.

A record of ``/dev/kmsg`` is ``PRIORITY,SEQUENCE,USEC,FLAGS;TEXT`` and may be followed by `` KEY=value`` lines; the text
escapes bytes outside printable ASCII as ``\\xNN``, which the kernel's parser (``kcover.xid``) reads as they are.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from kcover import machine_check, sequences, xid
from kcover.fault import Fault
from kcover.wire import MAX_RECORDS

MAX_LINE = 64 * 1024  # bytes of a line that are looked at; no kernel line is longer than 8 KiB
MAX_MESSAGE = 4096  # characters of a line that go over the wire
WINDOW = timedelta(seconds=5)  # a storm prints one line for seconds to minutes; semantics 0.3: several lines, one fault
MAX_WINDOWS = 1000  # distinct faults within one window that are remembered; more are a flood, told line by line
MAX_COUNT = 1_000_000  # the most the wire format takes in one fault
SOURCE = "kmsg"

_HEADER = re.compile(r"([0-9]{1,10}),([0-9]{1,19}),([0-9]{1,19}),[^;]{0,200};")
_COMPANION = re.compile(r"Severity [0-9]|Data \{")

Key = tuple[str, int | str, str | None, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message of the kernel log. ``at``: when it was logged, or read where the log does not say.

    ``facility`` 0 is the kernel's own; the kernel lets no program write with it, so anything else is a program's.
    """

    text: str
    at: datetime
    facility: int = 0
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before a record's text. ``usec``: microseconds since boot."""

    facility: int
    sequence: int
    usec: int


def split(line: str) -> tuple[Header | None, str]:
    """A line's kmsg header, None where it has none (a plain log), and its text."""
    match = _HEADER.match(line)
    if match is None:
        return None, line
    priority, sequence, usec = (int(group) for group in match.groups())
    return Header(facility=priority >> 3, sequence=sequence, usec=usec), line[match.end() :]


def faults(records: Iterable[Record], *, now: datetime) -> list[Fault]:
    """The faults of these records, several lines about one of them folded into one whose ``count`` says how many."""
    windows = Windows()
    return windows.fold(sightings(records), now=now) + windows.close()


def sightings(records: Iterable[Record]) -> list[Fault]:
    """One fault a line, in order. ``count`` is 0 for a line that only tells more about a fault that another line is
    about: the second and third line of an SXid, the plain line after an Xid 79."""
    found = []
    kept = list(records)
    texts = [record.text for record in kept]
    for index, record in enumerate(kept):
        if "Xid" not in record.text and "fallen off" not in record.text:  # nearly every line of a kernel log
            if machine_check.is_uncorrected(record.text):
                found.append(_fault(record, kind=machine_check.KIND, code=machine_check.CODE))
            continue
        # The two lines above tell which GPU a line without an address is about (older drivers' lost GPU).
        for sighting in xid.parse_lines(texts[max(0, index - 2) : index + 1]):
            if sighting.line != record.text.rstrip("\r\n"):
                continue
            count = 0 if _is_companion(sighting) else 1
            found.append(_fault(record, kind=sighting.kind, code=sighting.code, pci=sighting.pci, count=count))
            break
    return found


def _fault(record: Record, *, kind: str, code: int | str, pci: str | None = None, count: int = 1) -> Fault:
    return Fault(
        kind=kind,
        code=code,
        pci=pci,
        message=record.text[:MAX_MESSAGE],
        seen_at=record.at,
        source=SOURCE,
        sequence=record.sequence,
        drill=record.facility != 0,
        count=count,
    )


def _is_companion(sighting: xid.Sighting) -> bool:
    if sighting.kind == "sxid":
        return _COMPANION.match(sighting.text) is not None
    return sighting.code == xid.OFF_THE_BUS and "Xid" not in sighting.line


@dataclass(slots=True)
class _Run:
    """Equal lines on their way to being one fault: that of ``shown``, with how many they are and which records."""

    shown: Fault
    count: int
    records: list[list[int]]

    @classmethod
    def of(cls, fault: Fault) -> "_Run":
        alone = () if fault.sequence is None else ((fault.sequence, fault.sequence),)
        return cls(fault, max(fault.count, 1), [list(pair) for pair in fault.records or alone])

    def add(self, fault: Fault) -> None:
        """One more line; one that only tells more (count 0) is no record of its own."""
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
        """As it is told."""
        ranges = self._ranges()
        return replace(self.shown, count=self.count, records=ranges if sequences.size(ranges) > 1 else ())

    def _ranges(self) -> sequences.Ranges:
        return sequences.joined(self.records, most=MAX_RECORDS)


@dataclass(slots=True)
class _Window:
    opened: datetime
    held: _Run | None = None


class Windows:
    """Folds equal faults (kind, code, GPU, drill or not) that lie within 5 s of each other.

    The first goes at once; what follows is held and goes as one, with its count, when the window closes. What is held
    is part of ``state``, so that it survives a restart together with the position in the log.
    """

    def __init__(self, state: Iterable[Mapping[str, Any]] = ()) -> None:
        """``state`` as ``state()`` gave it; an entry that is not understood is forgotten, its line is only a repeat."""
        self._open: dict[Key, _Window] = {}
        for entry in state:
            try:
                fault = _load(entry["fault"])
                opened = datetime.fromisoformat(entry["opened"])
                self._open[_key(fault)] = _Window(opened, _Run.of(fault) if fault.count else None)
            except (KeyError, TypeError, ValueError):
                continue

    def fold(self, found: Iterable[Fault], *, now: datetime) -> list[Fault]:
        """The faults to send now: new ones, and those held until now whose window is over."""
        out: list[_Run] = []
        fresh: dict[Key, _Run] = {}  # windows that opened in this look
        for fault in found:
            key = _key(fault)
            at = fault.seen_at or now
            window = self._open.get(key)
            if window is None or not _within(window.opened, at):
                if window is not None and window.held is not None:
                    out.append(window.held)
                self._open[key] = _Window(at)
                fresh[key] = _Run.of(fault)
                out.append(fresh[key])
            elif key in fresh:
                fresh[key].add(fault)
            elif fault.count:
                if window.held is not None and window.held.count + fault.count > MAX_COUNT:
                    out.append(window.held)
                    window.held = None
                if window.held is None:
                    window.held = _Run.of(fault)
                else:
                    window.held.add(fault)
                    window.held.shown = fault
        return [run.fault() for run in (*out, *self._expire(now))]

    def close(self) -> list[Fault]:
        """What is held, at once; all windows are over."""
        held = [window.held.fault() for window in self._open.values() if window.held is not None]
        self._open.clear()
        return held

    @property
    def holding(self) -> bool:
        """Whether something waits for its window to close."""
        return any(window.held for window in self._open.values())

    def state(self) -> list[dict[str, Any]]:
        """Plain data that a later ``Windows`` can start from."""
        return [
            {"opened": window.opened.isoformat(), "fault": _dump(key, window.held.fault() if window.held else None)}
            for key, window in self._open.items()
        ]

    def _expire(self, now: datetime) -> list[_Run]:
        out = []
        for key, window in list(self._open.items()):
            if _within(window.opened, now):
                continue
            if window.held is None:
                del self._open[key]
            else:  # the storm goes on: tell of it once a window
                out.append(window.held)
                self._open[key] = _Window(now)
        for key in list(self._open)[: max(0, len(self._open) - MAX_WINDOWS)]:
            window = self._open.pop(key)
            if window.held is not None:
                out.append(window.held)
        return out


def _within(opened: datetime, at: datetime) -> bool:
    return abs(at - opened) < WINDOW  # a clock that was set back must not hold a window open


def _key(fault: Fault) -> Key:
    return fault.kind, fault.code, xid.slot(fault.pci) or fault.pci, fault.drill


def _dump(key: Key, held: Fault | None) -> dict[str, Any]:
    kind, code, pci, drill = key
    data: dict[str, Any] = {"kind": kind, "code": code, "pci": held.pci if held else pci, "drill": drill, "count": 0}
    if held is not None:
        seen_at = held.seen_at.isoformat() if held.seen_at else None
        data |= {"count": held.count, "message": held.message, "seen_at": seen_at, "sequence": held.sequence}
        data["records"] = [list(pair) for pair in held.records]
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
        source=SOURCE,
        records=tuple((int(first), int(last)) for first, last in data.get("records", ())),
    )
