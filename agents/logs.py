"""Reading a node's logs: what they newly tell, and the mark that says how far they were read."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from agents.probes import follow, kmsg
from agents.probes.health import LogHealth
from kcover import xid
from kcover.fault import Check, Fault

log = logging.getLogger(__name__)

REMEMBER_XIDS = timedelta(minutes=5)  # long enough for a second source to ask


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one look told. ``moved``: something was read, worth telling or not; ``more``: there is more to read now."""

    faults: tuple[Fault, ...]
    checks: tuple[Check, ...]
    moved: bool
    more: bool


class Logs:
    """Every source of one node, each with its place, its windows of equal faults and its health."""

    def __init__(self, sources: Sequence[follow.Source], mark: Mapping[str, Any]) -> None:
        """``mark`` as it was after some earlier look; empty: from the start."""
        self.sources = tuple(sources)
        self._mark: dict[str, Any] = dict(mark)
        self._health = {source.name: LogHealth() for source in self.sources}
        self._windows: dict[str, kmsg.Windows] = {}
        self._xids: dict[tuple[int | str, str | None], datetime] = {}
        for source in self.sources:
            known = self._mark.get(source.name, {})
            source.resume(known.get("position", {}))
            self._windows[source.name] = kmsg.Windows(known.get("windows", ()))

    @property
    def mark(self) -> dict[str, Any]:
        """How far was read, and what is held back; plain data."""
        return dict(self._mark)

    def look(self, *, boot_id: str, now: datetime) -> News:
        """Read what is new. A source that cannot be read is a check result, not an error."""
        faults: list[Fault] = []
        checks: list[Check] = []
        more = moved = False
        for source in self.sources:
            health = self._health[source.name]
            self._forget(source.name, boot_id=boot_id)
            windows = self._windows[source.name]
            try:
                chunk = source.read(boot_id=boot_id, now=now)
            except OSError as error:
                found: list[Fault] = []
                check = health.judge(now=now, error=f"{error.strerror or error}: {error.filename or source.name}")
                position = self._mark.get(source.name, {}).get("position", {})
            else:
                found = kmsg.sightings(chunk.records)
                check = health.judge(now=now, lost=chunk.lost, gap=chunk.gap)
                more, moved, position = more or chunk.more, moved or bool(chunk.records), chunk.position
            if check is not None:
                level = logging.INFO if check.status == "pass" else logging.WARNING
                log.log(level, "kernel log %s: %s %s", source.name, check.status, check.message)
                checks.append(check)
            self._remember_xids(found, now=now)
            faults += windows.fold(found, now=now)
            self._mark[source.name] = {"position": position, "windows": windows.state()}
        return News(faults=tuple(faults), checks=tuple(checks), moved=moved, more=more)

    def _forget(self, name: str, *, boot_id: str) -> None:
        """What is held are repeats of what was told: in another boot they would be taken for new."""
        known = self._mark.get(name, {}).get("position", {}).get("boot_id", boot_id)
        if known != boot_id:
            self._windows[name] = kmsg.Windows()

    def told(self, code: int, pci: str | None, *, since: datetime) -> bool:
        """Whether a log told of this Xid on this GPU since then; None as ``pci``: on any."""
        slot = xid.slot(pci)
        return any(
            at >= since and one == code and (slot is None or slot == where) for (one, where), at in self._xids.items()
        )

    def close(self) -> None:
        """Let go of the sources."""
        for source in self.sources:
            source.close()

    def _remember_xids(self, found: Iterable[Fault], *, now: datetime) -> None:
        fresh = {(one.code, xid.slot(one.pci)): now for one in found if one.kind == "xid"}
        if fresh:  # a new dictionary, as another thread may be asking
            recent = {key: at for key, at in self._xids.items() if timedelta() <= now - at < REMEMBER_XIDS}
            self._xids = recent | fresh
