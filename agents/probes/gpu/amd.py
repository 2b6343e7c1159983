"""AMD GPUs through ``amd-smi`` and its JSON output: inventory, temperatures, and uncorrectable ECC errors.

The field names are those on which AMD's documentation and recorded output agree. Values that a GPU does not have are
"N/A" and are not judged. None of this has been verified on a real AMD GPU.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from agents.host import programs
from agents.probes.finding import Finding, Observation, Severity, finding, gpu_count_finding
from kcover.faults.fault import Gpu, Inventory

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 60.0
INTERVAL_SECONDS = 900.0  # amd-smi takes a second of CPU time, and the agent may use a thousandth of a core
INSTALL = "amd-smi-lib (ROCm), or mount it into the agent's container"
HOT_MARGIN_CELSIUS = 5  # below the slowdown temperature of the GPU, as for other vendors
TOOL_ERRORS = (OSError, RuntimeError, ValueError, programs.ProgramTimeout)

Entry = Mapping[str, Any]


class AmdProbe:
    """A tool that is missing, breaks or hangs is reported as such, not as a broken node."""

    name = "amd"
    interval_seconds = INTERVAL_SECONDS
    deadline_seconds = 300.0
    hang_severity = Severity.FAULT

    def __init__(self, *, expected: Callable[[int], int]) -> None:
        """``expected``: takes the number of GPUs found, returns the number that must be present."""
        self._expected = expected
        self._slowdown: dict[str, float] = {}  # °C by UUID

    def observe(self, now: datetime) -> Observation:
        """Devices are UUIDs."""
        try:
            tool = programs.find("amd-smi", install=INSTALL)
        except programs.ToolMissing as missing:
            return Observation(findings=(finding("amd_gpus", Severity.SKIPPED, message=str(missing)),))
        try:
            gpus = {index: _gpu(index, entry) for index, entry in run_amd_smi(tool, "list").items()}
            findings = [gpu_count_finding("amd_gpus", len(gpus), self._expected(len(gpus)))]
        except TOOL_ERRORS as error:
            return Observation(findings=(finding("amd_gpus", Severity.ERROR, message=str(error)),))
        try:
            if not {gpu.uuid for gpu in gpus.values()} <= self._slowdown.keys():
                self._slowdown = _slowdowns(tool, gpus)
            metric = run_amd_smi(tool, "metric")
            for index, gpu in gpus.items():
                findings += self._evaluate(gpu, metric.get(index, {}))
        except TOOL_ERRORS as error:
            findings += [finding(name, Severity.ERROR, message=str(error)) for name in ("amd_temperature", "amd_ecc")]
        return Observation(findings=tuple(findings))

    def _evaluate(self, gpu: Gpu, entry: Entry) -> Iterator[Finding]:
        degrees = _number(_part(entry, "temperature").get("hotspot"))
        limit = self._slowdown.get(gpu.uuid, 0.0)
        if degrees is not None and limit > 0:
            message = f"{degrees:g} °C; the GPU slows down at {limit:g} °C"
            severity = Severity.WARNING.when(limit - degrees < HOT_MARGIN_CELSIUS)
            yield finding("amd_temperature", severity, device=gpu.uuid, value=degrees, unit="C", message=message)
        ecc = _part(entry, "ecc")
        uncorrected, corrected = (_number(ecc.get(f"total_{kind}_count")) for kind in ("uncorrectable", "correctable"))
        if uncorrected is not None:
            message = f"{uncorrected:g} uncorrectable and {corrected or 0:g} correctable ECC errors"
            severity = Severity.FAULT.when(uncorrected > 0)
            yield finding(
                "amd_ecc", severity, device=gpu.uuid, value=uncorrected, unit="errors", message=message, pci=gpu.pci
            )


class AmdInventory:
    """The GPUs that ``amd-smi`` lists, read no more often than the probe runs. Without the tool, only the kernel's
    version; if the tool breaks, the last known inventory."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known = Inventory(kernel=os.uname().release)
        self._due = monotonic()

    def __call__(self) -> Inventory:
        tool = shutil.which("amd-smi")
        if tool is not None and self._monotonic() >= self._due:
            self._due = self._monotonic() + INTERVAL_SECONDS
            try:
                self._known = _inventory(tool)
            except TOOL_ERRORS as error:
                log.warning("inventory: %s", error)
        return self._known


def run_amd_smi(tool: str, verb: str) -> dict[int, Entry]:
    """The output of ``amd-smi VERB --json`` for each GPU, by its index. Raises one of TOOL_ERRORS."""
    result = programs.run((tool, verb, "--json"), timeout=TIMEOUT_SECONDS)
    content = json.loads(result.stdout_or_raise(f"amd-smi {verb}"))
    listed = content.get("gpu_data") if isinstance(content, dict) else content  # newer versions wrap the list
    if not isinstance(listed, list):
        raise ValueError(f"the output of amd-smi {verb} is not a list of GPUs")
    return {entry["gpu"]: entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("gpu"), int)}


def _inventory(tool: str) -> Inventory:
    static = run_amd_smi(tool, "static")
    gpus = tuple(_gpu(index, entry, static.get(index, {})) for index, entry in run_amd_smi(tool, "list").items())
    drivers = (_text(_part(entry, "driver").get("version")) for entry in static.values())
    # For the driver that is part of the kernel, amd-smi prints the kernel's whole version banner.
    driver = next((driver for driver in drivers if driver and not driver.startswith("Linux")), "")
    return Inventory(driver=driver, kernel=os.uname().release, gpus=gpus)


def _gpu(index: int, listed: Entry, static: Entry | None = None) -> Gpu:
    asic = _part(static or {}, "asic")
    return Gpu(
        index=index,
        uuid=_text(listed.get("uuid")) or f"amd{index}",
        pci=_text(listed.get("bdf")).lower().removesuffix(".0") or None,
        model=_text(asic.get("market_name")),
        serial=_text(asic.get("asic_serial")),
    )


def _slowdowns(tool: str, gpus: Mapping[int, Gpu]) -> dict[str, float]:
    """The temperature (°C) at which each GPU slows down, by UUID; 0 if it is unknown."""
    static = run_amd_smi(tool, "static")
    limits = {index: _part(static.get(index, {}), "limit") for index in gpus}
    return {gpu.uuid: _number(limits[index].get("slowdown_hotspot_temperature")) or 0.0 for index, gpu in gpus.items()}


def _part(entry: Entry, name: str) -> Entry:
    """A group of fields. It is text if the GPU does not have the group."""
    part = entry.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float | None:
    """A plain number, or one with a unit; None for "N/A"."""
    plain = value.get("value") if isinstance(value, dict) else value
    return float(plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) and value != "N/A" else ""
