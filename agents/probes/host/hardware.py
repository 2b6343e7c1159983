"""PCIe errors (AER) of GPUs and network adapters, and memory errors counted by the memory controllers (EDAC)."""

import pathlib
import re
from collections.abc import Iterator
from datetime import datetime

from agents.probes.finding import Finding, Observation, Severity, finding
from agents.probes.host.counter_files import Growth, read, read_number

NVIDIA_VENDOR = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # VGA, 3D, display, accelerator
NETWORK_CLASSES = ("0x0200", "0x0207")  # Ethernet, InfiniBand
MANY_CORRECTED_PER_MINUTE = 100.0  # a failing link; no limit is published
AER_TOTAL = re.compile(r"^TOTAL_ERR_[A-Z]+ ([0-9]+)$", re.MULTILINE)


class HardwareProbe:
    """Only the growth of a counter between two runs counts."""

    name = "hardware"
    deadline_seconds = 15.0
    hang_severity = Severity.FAILURE

    def __init__(self, *, interval_seconds: float = 60.0, root: pathlib.Path = pathlib.Path("/sys")) -> None:
        self.interval_seconds = interval_seconds
        self._root = root
        self._growth = Growth()

    def observe(self, now: datetime) -> Observation:
        """Devices are PCI addresses and memory controllers."""
        return Observation(findings=(*self._links(now), *self._memory(now)))

    def _links(self, now: datetime) -> Iterator[Finding]:
        for folder in pci_devices(self._root, (*GPU_CLASSES, *NETWORK_CLASSES)):
            grown = {kind: self._aer(folder, kind, now=now) for kind in ("fatal", "nonfatal", "correctable")}
            if all(growth is None for growth in grown.values()):
                continue  # the first run, or a device without error reporting
            counts = {kind: growth[0] for kind, growth in grown.items() if growth is not None}
            corrected = (grown["correctable"] or (0, 0.0))[1]
            soft = bool(counts.get("nonfatal")) or corrected > MANY_CORRECTED_PER_MINUTE
            severity = Severity.FAULT if counts.get("fatal") else Severity.WARNING.when(soft)
            errors = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
            gpu = (read(folder / "class") or "").startswith(GPU_CLASSES)
            yield finding(
                "pcie_errors",
                severity,
                device=folder.name,
                value=float(sum(counts.values())),
                unit="errors",
                message=f"{errors} since the last run",
                pci=folder.name.removesuffix(".0") if gpu else None,
            )

    def _aer(self, folder: pathlib.Path, kind: str, *, now: datetime) -> tuple[int, float] | None:
        total = AER_TOTAL.search(read(folder / f"aer_dev_{kind}") or "")
        return self._growth.of(f"{folder.name} {kind}", int(total[1]) if total else None, now=now)

    def _memory(self, now: datetime) -> Iterator[Finding]:
        for controller in sorted((self._root / "devices/system/edac/mc").glob("mc[0-9]*")):
            lost = self._growth.of(f"{controller.name} ue", read_number(controller / "ue_count"), now=now)
            mended = self._growth.of(f"{controller.name} ce", read_number(controller / "ce_count"), now=now)
            if lost is None and mended is None:
                continue
            uncorrected, corrected = (lost or (0, 0.0))[0], (mended or (0, 0.0))[1]
            many = corrected > MANY_CORRECTED_PER_MINUTE
            severity = Severity.FAULT if uncorrected else Severity.WARNING.when(many)
            message = (
                f"{uncorrected} uncorrected memory errors"
                if uncorrected
                else f"{corrected:.0f} corrected memory errors per minute"
            )
            yield finding(
                "host_memory",
                severity,
                device=controller.name,
                value=uncorrected,
                unit="errors",
                message=message,
            )


def pci_devices(root: pathlib.Path, classes: tuple[str, ...], vendors: tuple[str, ...] = ()) -> list[pathlib.Path]:
    """The PCI devices of these classes (and vendors) under ``/sys``, sorted by address."""
    found = []
    folder = root / "bus/pci/devices"
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        if (read(device / "class") or "").startswith(classes) and (not vendors or read(device / "vendor") in vendors):
            found.append(device)
    return found


def count_nvidia_gpus(root: pathlib.Path = pathlib.Path("/sys")) -> int:
    """The number of NVIDIA GPUs on the PCI bus, whatever their driver reports. Virtual functions do not count; they
    come and go.
    """
    return sum(1 for device in pci_devices(root, GPU_CLASSES, (NVIDIA_VENDOR,)) if not (device / "physfn").exists())
