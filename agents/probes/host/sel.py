"""The event log of the machine's management controller (IPMI SEL): bus errors that accompany a lost GPU."""

import pathlib
from collections.abc import Sequence
from datetime import datetime

from agents.host import programs
from agents.probes.finding import Observation, Severity, finding

TIMEOUT_SECONDS = 60.0  # controllers answer slowly
LAST_ENTRIES = 100
IPMI_DEVICES = tuple(pathlib.Path(name) for name in ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0"))
CRITICAL, ASSERTED = "critical interrupt", "asserted"
MAX_SHOWN = 3


class SelProbe:
    """Entries from before the first run are history; only new ones are warnings."""

    name = "sel"
    deadline_seconds = 120.0
    hang_severity = Severity.FAILURE

    def __init__(self, *, interval_seconds: float = 900.0, devices: Sequence[pathlib.Path] = IPMI_DEVICES) -> None:
        self.interval_seconds = interval_seconds
        self._devices = tuple(devices)
        self._seen: frozenset[str] | None = None

    def observe(self, now: datetime) -> Observation:
        """The value is the number of new critical interrupts."""
        if not any(device.exists() for device in self._devices):
            return Observation()
        try:
            tool = programs.find("ipmitool", install="ipmitool")
        except programs.ToolMissing as missing:
            return Observation(findings=(finding("sel", Severity.SKIPPED, message=str(missing)),))
        result = programs.run((tool, "sel", "list", "last", str(LAST_ENTRIES)), timeout=TIMEOUT_SECONDS)
        if result.status:
            return Observation(findings=(finding("sel", Severity.ERROR, message=result.diagnostics[-300:]),))
        entries = critical_interrupts(result.stdout)
        new = [entry for entry in entries if self._seen is not None and entry not in self._seen]
        self._seen = frozenset(entries)
        message = "; ".join(new[-MAX_SHOWN:])
        severity = Severity.WARNING.when(bool(new))
        return Observation(findings=(finding("sel", severity, value=len(new), message=message),))


def critical_interrupts(text: str) -> list[str]:
    """The critical interrupts among ``ipmitool``'s lines, ``ID | DATE | TIME | SENSOR | EVENT | Asserted``."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 6 and cells[3].lower().startswith(CRITICAL) and cells[5].lower() == ASSERTED:
            found.append(" ".join(cells[:5]))
    return found
