"""PCIe errors (AER) of GPUs and network adapters, and the memory controllers' own counts (EDAC: machine checks)."""

import pathlib
import re
from collections.abc import Iterator
from datetime import datetime

from agents.probes.counters import Growth, read, read_number
from agents.probes.finding import Finding, Reading, finding

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")  # VGA, 3D, display, accelerator
NETWORK_CLASSES = ("0x0200", "0x0207")  # Ethernet, InfiniBand
MANY_CORRECTED = 100.0  # a minute: a link that is about to go, by no published limit
TOTAL = re.compile(r"^TOTAL_ERR_[A-Z]+ ([0-9]+)$", re.MULTILINE)


class HardwareProbe:
    """An ``agents.probes.finding.Probe``."""

    name = "hardware"
    deadline = 15.0
    hung_is_fault = False

    def __init__(self, *, every: float = 60.0, root: pathlib.Path = pathlib.Path("/sys")) -> None:
        self.every = every
        self._root = root
        self._growth = Growth()

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. Devices are PCI addresses and memory controllers."""
        return Reading(findings=(*self._links(now), *self._memory(now)))

    def _links(self, now: datetime) -> Iterator[Finding]:
        for folder in devices(self._root, (*GPU_CLASSES, *NETWORK_CLASSES)):
            grown = {kind: self._aer(folder, kind, now=now) for kind in ("fatal", "nonfatal", "correctable")}
            if all(one is None for one in grown.values()):
                continue  # the first look, or a device without error reporting
            counts = {kind: one[0] for kind, one in grown.items() if one is not None}
            corrected = (grown["correctable"] or (0, 0.0))[1]
            soft = bool(counts.get("nonfatal")) or corrected > MANY_CORRECTED
            bad = "fail" if counts.get("fatal") else "warn" if soft else False
            words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
            gpu = (read(folder / "class") or "").startswith(GPU_CLASSES)
            yield finding(
                "pcie_errors",
                bad,
                device=folder.name,
                value=float(sum(counts.values())),
                unit="errors",
                message=f"{words} since the last look",
                fault=True,
                pci=folder.name.removesuffix(".0") if gpu else None,
            )

    def _aer(self, folder: pathlib.Path, kind: str, *, now: datetime) -> tuple[int, float] | None:
        total = TOTAL.search(read(folder / f"aer_dev_{kind}") or "")
        return self._growth.of(f"{folder.name} {kind}", int(total[1]) if total else None, now=now)

    def _memory(self, now: datetime) -> Iterator[Finding]:
        for controller in sorted((self._root / "devices/system/edac/mc").glob("mc[0-9]*")):
            lost = self._growth.of(f"{controller.name} ue", read_number(controller / "ue_count"), now=now)
            mended = self._growth.of(f"{controller.name} ce", read_number(controller / "ce_count"), now=now)
            if lost is None and mended is None:
                continue
            uncorrected, corrected = (lost or (0, 0.0))[0], (mended or (0, 0.0))[1]
            bad = "fail" if uncorrected else "warn" if corrected > MANY_CORRECTED else False
            message = (
                f"{uncorrected} uncorrected memory errors" if uncorrected else f"{corrected:.0f} corrected a minute"
            )
            yield finding(
                "host_memory",
                bad,
                device=controller.name,
                value=uncorrected,
                unit="errors",
                message=message,
                fault=True,
            )


def devices(root: pathlib.Path, classes: tuple[str, ...], vendors: tuple[str, ...] = ()) -> list[pathlib.Path]:
    """The PCI devices of these classes (and vendors) under ``/sys``, by address."""
    found = []
    folder = root / "bus/pci/devices"
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        if (read(device / "class") or "").startswith(classes) and (not vendors or read(device / "vendor") in vendors):
            found.append(device)
    return found


def gpus_on_the_bus(root: pathlib.Path = pathlib.Path("/sys")) -> int:
    """How many NVIDIA GPUs the PCI bus shows, whatever their driver says; virtual functions come and go, and are
    none."""
    return sum(1 for device in devices(root, GPU_CLASSES, (NVIDIA,)) if not (device / "physfn").exists())
