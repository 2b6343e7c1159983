"""Reads the logs of a node: their new faults, and the mark that says how far they were read."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from agents.probes.log import kmsg, lines_before, repeats
from agents.probes.log.health import LogHealth
from agents.probes.log.sources import Source
from kcover.faults import driver_line, xid
from kcover.faults.fault import Check, Fault

log = logging.getLogger(__name__)

KEPT_RECORDS = max(driver_line.UNSUPPORTED_LINES, lines_before.MAX_LINES)  # for the faults of the next read
XID_MEMORY = timedelta(minutes=5)  # long enough for the Xid events of the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUpdate:
    """The result of one read. ``moved``: something was read, with or without faults. ``more``: there is more to read
    now."""

    faults: tuple[Fault, ...]
    checks: tuple[Check, ...]
    moved: bool
    more: bool


class LogReader:
    """Every log source of one node, with its position, its windows of equal faults and its health."""

    def __init__(self, sources: Sequence[Source], mark: Mapping[str, Any]) -> None:
        """``mark``: from an earlier run; empty to read from the start."""
        self.sources = tuple(sources)
        self._mark: dict[str, Any] = dict(mark)
        self._health = {source.name: LogHealth() for source in self.sources}
        self._windows: dict[str, repeats.RepeatWindows] = {}
        self._before: dict[str, tuple[kmsg.Record, ...]] = {}  # the last records that were read
        self._recent_xids: dict[tuple[int | str, str | None], datetime] = {}
        for source in self.sources:
            known = self._mark.get(source.name, {})
            source.resume(known.get("position", {}))
            self._windows[source.name] = repeats.RepeatWindows(known.get("windows", ()))

    @property
    def mark(self) -> dict[str, Any]:
        """The positions up to which the sources were read, and the faults held back; plain data."""
        return dict(self._mark)

    def read(self, *, boot_id: str, now: datetime) -> LogUpdate:
        """Read what is new. A source that cannot be read gives a check result, not an error."""
        faults: list[Fault] = []
        checks: list[Check] = []
        more = moved = False
        for source in self.sources:
            health = self._health[source.name]
            self._reset_after_reboot(source.name, boot_id=boot_id)
            windows, before = self._windows[source.name], self._before.get(source.name, ())
            records: Sequence[kmsg.Record] = ()
            try:
                chunk = source.read(boot_id=boot_id, now=now)
            except OSError as error:
                found: list[Fault] = []
                check = health.update(now=now, error=f"{error.strerror or error}: {error.filename or source.name}")
                position = self._mark.get(source.name, {}).get("position", {})
            else:
                found = kmsg.faults_of(chunk.records, before=before)
                records = (*before, *chunk.records)
                self._before[source.name] = records[-KEPT_RECORDS:]
                check = health.update(now=now, lost=chunk.lost, gap=chunk.gap)
                more, moved, position = more or chunk.more, moved or bool(chunk.records), chunk.position
            if check is not None:
                level = logging.INFO if check.status == "pass" else logging.WARNING
                log.log(level, "kernel log %s: %s %s", source.name, check.status, check.message)
                checks.append(check)
            self._remember_xids(found, now=now)
            faults += lines_before.with_lines(windows.fold(found, now=now), records)
            self._mark[source.name] = {"position": position, "windows": windows.state()}
        return LogUpdate(faults=tuple(faults), checks=tuple(checks), moved=moved, more=more)

    def _reset_after_reboot(self, name: str, *, boot_id: str) -> None:
        """Drop held faults after a reboot: they repeat reported ones, and would look new in another boot."""
        known = self._mark.get(name, {}).get("position", {}).get("boot_id", boot_id)
        if known != boot_id:
            self._before.pop(name, None)
            self._windows[name] = repeats.RepeatWindows()

    def has_seen_xid(self, code: int, pci: str | None, *, since: datetime) -> bool:
        """Return whether a log showed this Xid on this GPU since then. ``pci`` None: on any GPU."""
        slot = xid.slot(pci)
        return any(
            at >= since and xid_code == code and (slot is None or slot == where)
            for (xid_code, where), at in self._recent_xids.items()
        )

    @property
    def is_holding(self) -> bool:
        """True if a repeated fault waits for its window to close: the next read may report it."""
        return any(windows.is_holding for windows in self._windows.values())

    def close(self) -> None:
        for source in self.sources:
            source.close()

    def _remember_xids(self, found: Iterable[Fault], *, now: datetime) -> None:
        fresh = {(fault.code, xid.slot(fault.pci)): now for fault in found if fault.kind == "xid"}
        if fresh:  # a new dictionary, because another thread may be reading the old one
            recent = {key: at for key, at in self._recent_xids.items() if timedelta() <= now - at < XID_MEMORY}
            self._recent_xids = recent | fresh
