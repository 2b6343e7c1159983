"""What NVMe disks say of themselves (SMART), by ``nvme smart-log``."""

import json
import pathlib
import re
from collections.abc import Iterator
from datetime import datetime

from agents import programs
from agents.probes.finding import Finding, Reading, finding

TIMEOUT = 20.0
CONTROLLER = re.compile(r"nvme[0-9]+")
MOST = 32  # disks
HOT = 0x02
# Bits of the critical warning (NVM Express base specification, SMART log).
WARNINGS = {
    0x01: "spare blocks run out",
    HOT: "too hot or too cold",
    0x04: "no longer reliable",
    0x08: "read-only",
    0x10: "its memory backup failed",
    0x20: "its persistent memory failed",
}


class NvmeProbe:
    """An ``agents.probes.finding.Probe``. A disk that fails is shown; whether the node is the worse for it the probe of
    the mounts says."""

    name = "nvme"
    deadline = 120.0
    hung_is_fault = False

    def __init__(self, *, every: float = 3600.0, root: pathlib.Path = pathlib.Path("/sys/class/nvme")) -> None:
        self.every = every
        self._root = root

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The device is the controller, the value how much of its life is used, in percent."""
        disks = sorted(one.name for one in self._root.iterdir()) if self._root.is_dir() else []
        disks = [name for name in disks if CONTROLLER.fullmatch(name)]
        if not disks:
            return Reading()
        try:
            tool = programs.find("nvme", install="nvme-cli")
        except programs.Missing as missing:
            return Reading(findings=(finding("nvme", "skipped", message=str(missing)),))
        return Reading(findings=tuple(one for name in disks[:MOST] for one in self._one(tool, name)))

    def _one(self, tool: str, name: str) -> Iterator[Finding]:
        try:
            ended = programs.run((tool, "smart-log", f"/dev/{name}", "-o", "json"), timeout=TIMEOUT)
            content = json.loads(ended.output("nvme"))
            bits = content["critical_warning"]
            bits = int(bits["value"] if isinstance(bits, dict) else bits)  # newer ones spell the bits out beside it
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, programs.TookTooLong) as error:
            yield finding("nvme", "error", device=name, message=f"{type(error).__name__}: {error}")
            return
        words = "; ".join(said for bit, said in WARNINGS.items() if bits & bit) or f"critical warning {bits:#x}"
        used = content.get("percent_used")
        life = float(used) if isinstance(used, int | float) else None
        bad = "fail" if bits & ~HOT else "warn" if bits else False
        yield finding("nvme", bad, device=name, value=life, unit="% used" if life is not None else "", message=words)
