"""The health of NVMe disks (SMART), from ``nvme smart-log``."""

import json
import pathlib
import re
from collections.abc import Iterator
from datetime import datetime

from agents.host import programs
from agents.probes.finding import Finding, Observation, Severity, finding

TIMEOUT_SECONDS = 20.0
CONTROLLER_NAME = re.compile(r"nvme[0-9]+")
MAX_DISKS = 32
TEMPERATURE_BIT = 0x02
# Bits of the critical warning (NVM Express base specification, SMART log).
CRITICAL_WARNINGS = {
    0x01: "few spare blocks left",
    TEMPERATURE_BIT: "temperature out of range",
    0x04: "reliability degraded",
    0x08: "read-only",
    0x10: "volatile memory backup failed",
    0x20: "persistent memory unreliable",
}


class NvmeProbe:
    """A failing disk is shown, but is not a fault of the node: the storage probe shows whether the node suffers."""

    name = "nvme"
    deadline_seconds = 120.0
    hang_severity = Severity.FAILURE

    def __init__(
        self, *, interval_seconds: float = 3600.0, root: pathlib.Path = pathlib.Path("/sys/class/nvme")
    ) -> None:
        self.interval_seconds = interval_seconds
        self._root = root

    def observe(self, now: datetime) -> Observation:
        """The device is the controller, the value the percentage of its life used."""
        disks = sorted(entry.name for entry in self._root.iterdir()) if self._root.is_dir() else []
        disks = [name for name in disks if CONTROLLER_NAME.fullmatch(name)]
        if not disks:
            return Observation()
        try:
            tool = programs.find("nvme", install="nvme-cli")
        except programs.ToolMissing as missing:
            return Observation(findings=(finding("nvme", Severity.SKIPPED, message=str(missing)),))
        return Observation(findings=tuple(result for name in disks[:MAX_DISKS] for result in self._disk(tool, name)))

    def _disk(self, tool: str, name: str) -> Iterator[Finding]:
        try:
            result = programs.run((tool, "smart-log", f"/dev/{name}", "-o", "json"), timeout=TIMEOUT_SECONDS)
            content = json.loads(result.stdout_or_raise("nvme"))
            bits = content["critical_warning"]
            bits = int(bits["value"] if isinstance(bits, dict) else bits)  # newer versions also list the bits by name
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, programs.ProgramTimeout) as error:
            yield finding("nvme", Severity.ERROR, device=name, message=f"{type(error).__name__}: {error}")
            return
        problems = (
            "; ".join(text for bit, text in CRITICAL_WARNINGS.items() if bits & bit) or f"critical warning {bits:#x}"
        )
        used = content.get("percent_used")
        life = float(used) if isinstance(used, int | float) else None
        severity = Severity.FAILURE if bits & ~TEMPERATURE_BIT else Severity.WARNING.when(bool(bits))
        unit = "% used" if life is not None else ""
        yield finding("nvme", severity, device=name, value=life, unit=unit, message=problems)
