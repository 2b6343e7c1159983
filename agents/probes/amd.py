"""AMD GPUs by ``amd-smi`` and its JSON: which there are, how hot they are, and errors that ECC could not mend.

The names of its fields are those that AMD's documentation and recorded answers agree on; what a GPU does not have is
"N/A" there and is not judged here. No real AMD GPU has verified any of it.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from agents import programs
from agents.probes.finding import Finding, Reading, enough, finding
from kcover.fault import Gpu, Inventory

log = logging.getLogger(__name__)

TIMEOUT = 60.0
EVERY = 900.0  # seconds: amd-smi is a Python program of a second, and a thousandth of a core is all there is
INSTALL = "amd-smi-lib (ROCm), or mount it into the agent's container"
HOT = 5  # °C to the GPU's own slowdown, as for other vendors
BROKE = (OSError, RuntimeError, ValueError, programs.TookTooLong)

Entry = Mapping[str, Any]


class AmdProbe:
    """An ``agents.probes.finding.Probe``. A tool that is missing, breaks or hangs is told as such: no bad node."""

    name = "amd"
    every = EVERY
    deadline = 300.0
    hung_is_fault = True

    def __init__(self, *, expected: Callable[[int], int]) -> None:
        """``expected``: told how many GPUs there are, it says how many there must be."""
        self._expected = expected
        self._slowdown: dict[str, float] = {}  # °C, by UUID

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. Devices are UUIDs."""
        try:
            tool = programs.find("amd-smi", install=INSTALL)
        except programs.Missing as missing:
            return Reading(findings=(finding("amd_gpus", "skipped", message=str(missing)),))
        try:
            gpus = {index: _gpu(index, entry) for index, entry in ask(tool, "list").items()}
            findings = [enough("amd_gpus", len(gpus), self._expected(len(gpus)))]
        except BROKE as error:
            return Reading(findings=(finding("amd_gpus", "error", message=str(error)),))
        try:
            if not {gpu.uuid for gpu in gpus.values()} <= self._slowdown.keys():
                self._slowdown = _slowdowns(tool, gpus)
            metric = ask(tool, "metric")
            for index, gpu in gpus.items():
                findings += self._judge(gpu, metric.get(index, {}))
        except BROKE as error:
            findings += [finding(name, "error", message=str(error)) for name in ("amd_temperature", "amd_ecc")]
        return Reading(findings=tuple(findings))

    def _judge(self, gpu: Gpu, entry: Entry) -> Iterator[Finding]:
        degrees = _number(_part(entry, "temperature").get("hotspot"))
        limit = self._slowdown.get(gpu.uuid, 0.0)
        if degrees is not None and limit > 0:
            message = f"{degrees:g} °C, it slows down at {limit:g}"
            hot = "warn" if limit - degrees < HOT else False
            yield finding("amd_temperature", hot, device=gpu.uuid, value=degrees, unit="C", message=message)
        ecc = _part(entry, "ecc")
        lost, mended = (_number(ecc.get(f"total_{kind}_count")) for kind in ("uncorrectable", "correctable"))
        if lost is not None:
            message = f"{lost:g} uncorrectable and {mended or 0:g} correctable ECC errors"
            found = finding(
                "amd_ecc", lost > 0, device=gpu.uuid, value=lost, unit="errors", message=message, fault=True
            )
            yield replace(found, pci=gpu.pci)


class AmdInventory:
    """The GPUs that ``amd-smi`` lists, asked no more often than the probe asks; without the tool only the kernel's
    version, and where it breaks what was known before."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known = Inventory(kernel=os.uname().release)
        self._due = monotonic()

    def __call__(self) -> Inventory:
        """What is known of this node."""
        tool = shutil.which("amd-smi")
        if tool is not None and self._monotonic() >= self._due:
            self._due = self._monotonic() + EVERY
            try:
                self._known = _inventory(tool)
            except BROKE as error:
                log.warning("inventory: %s", error)
        return self._known


def ask(tool: str, verb: str) -> dict[int, Entry]:
    """What ``amd-smi VERB --json`` says of each GPU, by its number. Raises one of BROKE."""
    ended = programs.run((tool, verb, "--json"), timeout=TIMEOUT)
    content = json.loads(ended.output(f"amd-smi {verb}"))
    listed = content.get("gpu_data") if isinstance(content, dict) else content  # newer ones wrap their list
    if not isinstance(listed, list):
        raise ValueError(f"amd-smi {verb} printed no list of GPUs")
    return {one["gpu"]: one for one in listed if isinstance(one, dict) and isinstance(one.get("gpu"), int)}


def _inventory(tool: str) -> Inventory:
    static = ask(tool, "static")
    gpus = tuple(_gpu(index, entry, static.get(index, {})) for index, entry in ask(tool, "list").items())
    drivers = (_text(_part(entry, "driver").get("version")) for entry in static.values())
    # Where the driver is the kernel's own, amd-smi prints the kernel's whole banner for its version.
    driver = next((one for one in drivers if one and not one.startswith("Linux")), "")
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
    """At how many °C each GPU slows itself down, by UUID; 0 where it does not say."""
    static = ask(tool, "static")
    limits = {index: _part(static.get(index, {}), "limit") for index in gpus}
    return {gpu.uuid: _number(limits[index].get("slowdown_hotspot_temperature")) or 0.0 for index, gpu in gpus.items()}


def _part(entry: Entry, name: str) -> Entry:
    """A group of fields; one that the GPU does not have is a text."""
    part = entry.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float | None:
    """A plain number, or one with its unit beside it; None for "N/A"."""
    plain = value.get("value") if isinstance(value, dict) else value
    return float(plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) and value != "N/A" else ""
