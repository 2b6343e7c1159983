"""What the machine's own controller wrote down (IPMI's event log): bus errors that come with a GPU off the bus."""

import pathlib
from collections.abc import Sequence
from datetime import datetime

from agents import programs
from agents.probes.finding import Reading, finding

TIMEOUT = 60.0  # a controller answers slowly
LAST = 100  # entries
DEVICES = tuple(pathlib.Path(name) for name in ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"))
CRITICAL, ASSERTED = "critical interrupt", "asserted"
SHOWN = 3


class SelProbe:
    """An ``agents.probes.finding.Probe``. What was written before the first look is history: only what is new warns."""

    name = "sel"
    deadline = 120.0
    hung_is_fault = False

    def __init__(self, *, every: float = 900.0, devices: Sequence[pathlib.Path] = DEVICES) -> None:
        self.every = every
        self._devices = tuple(devices)
        self._seen: frozenset[str] | None = None

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The value is the number of new critical interrupts."""
        if not any(device.exists() for device in self._devices):
            return Reading()
        try:
            tool = programs.find("ipmitool", install="ipmitool")
        except programs.Missing as missing:
            return Reading(findings=(finding("sel", "skipped", message=str(missing)),))
        ended = programs.run((tool, "sel", "list", "last", str(LAST)), timeout=TIMEOUT)
        if ended.status:
            return Reading(findings=(finding("sel", "error", message=ended.said[-300:]),))
        entries = critical(ended.out)
        new = [entry for entry in entries if self._seen is not None and entry not in self._seen]
        self._seen = frozenset(entries)
        words = "; ".join(new[-SHOWN:])
        return Reading(findings=(finding("sel", "warn" if new else False, value=len(new), message=words),))


def critical(text: str) -> list[str]:
    """The critical interrupts among ``ipmitool``'s lines, ``ID | DATE | TIME | SENSOR | EVENT | Asserted``."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 6 and cells[3].lower().startswith(CRITICAL) and cells[5].lower() == ASSERTED:
            found.append(" ".join(cells[:5]))
    return found
