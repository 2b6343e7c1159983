"""Folds faults of a kernel log that mean the same: a failing GPU repeats one line for seconds to minutes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agents.probes.log.kmsg import SOURCE_NAME, Record, faults_of
from kcover.faults import driver_line, nvlink5, xid
from kcover.faults.fault import Fault
from kcover.values import sequence_ranges
from kcover.wire.fields import MAX_COUNT, MAX_RECORDS

REPEAT_WINDOW = driver_line.TOLD_WITHIN  # several lines, one fault
SXID_MEANINGS = ("", "not fatal", "fatal")  # of the lines of one SXid
MAX_WINDOWS = 1000  # distinct faults remembered at a time; in a larger flood each line is reported

Key = tuple[str, int | str, str | None, bool, str]  # kind, code, GPU, drill, meaning


def faults(records: Iterable[Record], *, now: datetime) -> list[Fault]:
    """The faults of these records. Several lines about the same fault are folded into one, with their number in
    ``count``."""
    windows = RepeatWindows()
    return windows.fold(faults_of(records), now=now) + windows.close()


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
        ranges = self._ranges()
        return replace(self.fault_shown, count=self.count, records=ranges if sequence_ranges.total(ranges) > 1 else ())

    def _ranges(self) -> sequence_ranges.Ranges:
        return sequence_ranges.merge(self.records, max_ranges=MAX_RECORDS)


@dataclass(slots=True)
class _Window:
    """The time since the first of equal faults; ``repeats`` are the faults that followed.

    ``only_companions``: no line yet that says how grave the fault is.
    """

    opened: datetime
    repeats: _Repeats | None = None
    only_companions: bool = False


class RepeatWindows:
    """Folds equal faults (kind, code, GPU, drill or not, and what the line says) within 5 s of each other.

    Two lines of one code may mean different things: fatal and not fatal, a reset and a reboot that the driver asks for.

    The first is reported at once. Those that follow are held, and reported as one with their count when the window
    closes. Held faults are part of ``state``, so they survive a restart together with the position in the log.
    """

    def __init__(self, state: Iterable[Mapping[str, Any]] = ()) -> None:
        """``state``: from ``state()``. An entry that cannot be read is dropped; its line is only a repeat."""
        self._open: dict[Key, _Window] = {}
        self._told: dict[tuple[str, str | None, bool], datetime] = {}  # lines that an Xid tells, by code and GPU
        for entry in state:
            try:
                fault = _load(entry["fault"])
                opened = datetime.fromisoformat(entry["opened"])
                key = (*_key(fault)[:4], str(entry["fault"].get("meaning", "")))
                self._open[key] = _Window(opened, _Repeats.of(fault) if fault.count else None)
            except (KeyError, TypeError, ValueError):
                continue

    def fold(self, found: Iterable[Fault], *, now: datetime) -> list[Fault]:
        """The faults to report now: new ones, and held ones whose window is over."""
        out: list[_Repeats] = []
        fresh: dict[Key, _Repeats] = {}  # windows that this call opened
        kept = list(found)
        for fault in kept:
            if self._is_told(fault, kept, now=now):
                continue
            at = fault.seen_at or now
            key = self._joined(fault, fresh, at)
            window = self._open.get(key)
            if window is None or not _within(window.opened, at):
                if window is not None and window.repeats is not None:
                    out.append(window.repeats)
                self._open[key] = _Window(at, only_companions=not fault.count)
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

    def _is_told(self, fault: Fault, found: Sequence[Fault], *, now: datetime) -> bool:
        """Return whether an Xid of the GPU says what a line without an Xid says. Its GPU may be unknown.

        The driver prints such lines for as long as somebody uses the GPU: each one in time makes the next one old news.
        """
        if fault.kind != driver_line.KIND or fault.code not in driver_line.TOLD_BY:
            return False
        at, slot = fault.seen_at or now, _slot(fault)
        line = str(fault.code), slot, fault.drill
        if line in self._told and _within(self._told[line], at):
            self._told[line] = at
            return True
        xids = [
            (key[1], key[2], one.opened) for key, one in self._open.items() if key[0] == "xid" and key[3] == fault.drill
        ]
        xids += [(x.code, _slot(x), x.seen_at or now) for x in found if x.kind == "xid" and x.drill == fault.drill]
        told = driver_line.Told(fault.code, slot, at)
        is_told = any(driver_line.is_told(told, driver_line.Told(*one)) for one in xids)
        if is_told:
            if len(self._told) >= MAX_WINDOWS:
                self._told.clear()
            self._told[line] = at
        return is_told

    def _joined(self, fault: Fault, fresh: dict[Key, _Repeats], at: datetime) -> Key:
        """The key of the fault's window: a line that only adds to a fault adds to any window of its code and GPU.

        The first line that says how grave the fault is takes over the window that such lines have opened.
        """
        key = _key(fault)
        kin = [(*key[:4], meaning) for meaning in SXID_MEANINGS] if fault.kind == "sxid" else [key]
        open_now = [one for one in kin if one in self._open and _within(self._open[one].opened, at)]
        if not fault.count:
            return key if key in open_now else open_now[-1] if open_now else key
        added_to = next((one for one in open_now if self._open[one].only_companions and one in fresh), None)
        if added_to is not None and key not in self._open:
            self._open[key], fresh[key] = self._open.pop(added_to), fresh.pop(added_to)
            self._open[key].only_companions = False
            fresh[key].fault_shown, fresh[key].count = fault, 0  # this line is counted next
        return key

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
    return fault.kind, fault.code, _slot(fault), fault.drill, _meaning(fault.message)


def _slot(fault: Fault) -> str | None:
    return xid.slot(fault.pci) or fault.pci


def _meaning(message: str) -> str:
    """What a line says beside its code: the severity, the action that the driver asks for, another Xid as its cause."""
    line = xid.parse_line(message)
    if line is None:
        return ""
    fatal, action = nvlink5.is_fatal(line), xid.recovery_action(message)
    words = ("" if fatal is None else "fatal" if fatal else "not fatal", "" if action is None else f"action {action}")
    return " ".join(word for word in (*words, "" if line.cause is None else "caused") if word)


def _dump(key: Key, repeats: Fault | None) -> dict[str, Any]:
    kind, code, pci, drill, meaning = key
    data: dict[str, Any] = {
        "kind": kind,
        "code": code,
        "pci": repeats.pci if repeats else pci,
        "drill": drill,
        "count": 0,
        "meaning": meaning,
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
