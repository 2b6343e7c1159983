"""MetaX GPUs through ``mx-smi``, with kcover's checks and limits: once a day at ``metaX.day2CheckTime``, local time.

The order is kcover's: GPUs, temperature, clock, ECC, adapters. Unlike in kcover, a failure does not hide later ones,
and a tool that is missing or breaks is reported as such, not as a broken node.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from agents.config import MetaX
from agents.host import programs
from agents.probes.finding import Finding, Observation, Severity, finding, gpu_count_finding
from agents.probes.host import clock
from kcover.faults.fault import Gpu, Inventory

DEFAULT_GPU_COUNT = 8  # if the settings do not say, as in kcover
TIMEOUT_SECONDS = 60.0
INSTALL = "MetaX's driver package, or mount it into the agent's container"
GPU_LINE = re.compile(r"^(GPU#[0-9]+)\s+(\S+)(?:\s+(\S+))?(?:\s+(\S+))?(?:.*UUID:\s*([^)\s]+))?")


class MetaXProbe:
    """Runs every minute, but does its work only at the start and once a day. In between it repeats the last findings,
    so that they stay known; faults are reported only when it does its work."""

    name = "metax"
    interval_seconds = 60.0
    deadline_seconds = 300.0
    hang_severity = Severity.FAULT

    def __init__(self, limits: MetaX, *, expected: Callable[[int], int]) -> None:
        """``expected``: takes the number of GPUs found, returns the number that must be present."""
        self._limits, self._expected = limits, expected
        self._next: datetime | None = None
        self._found: tuple[Finding, ...] = ()

    def observe(self, now: datetime) -> Observation:
        """Observe the GPUs. Devices are UUIDs if ``mx-smi -L`` prints them."""
        if self._next is not None and now < self._next:
            return Observation(findings=self._found, repeated=True)
        self._next = next_check_time(now.astimezone(), self._limits)
        findings = self._observe()
        self._found = tuple(replace(result, is_fault=False) for result in findings)
        return Observation(findings=tuple(findings))

    def _observe(self) -> list[Finding]:
        try:
            tool = programs.find("mx-smi", install=INSTALL)
        except programs.ToolMissing as missing:
            return [finding("metax_gpus", Severity.SKIPPED, message=str(missing))]
        uuids: dict[str, str] = {}
        findings: list[Finding] = []
        checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
            ("metax_gpus", lambda: self._gpus(tool, uuids)),
            ("metax_temperature", lambda: self._temperatures(tool, uuids)),
            ("metax_clock", self._clock),
            ("metax_ecc", lambda: self._ecc(tool, uuids)),
            ("metax_hca", self._adapters),
        )
        for name, check in checks:
            try:
                findings += check()
            except programs.ToolMissing as missing:
                findings.append(finding(name, Severity.SKIPPED, message=str(missing)))
            except (OSError, RuntimeError, ValueError, programs.ProgramTimeout) as error:
                findings.append(finding(name, Severity.ERROR, message=str(error)))
        return findings

    def _gpus(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        states = {}
        for line in _run(tool, "-L").splitlines():
            match = GPU_LINE.match(line.strip())
            if match and match[4]:
                states[match[1]] = match[4]
                uuids[match[1]] = match[5] or match[1]
        available = sum(1 for state in states.values() if state == "Available")
        others = ", ".join(f"{gpu}={state}" for gpu, state in sorted(states.items()) if state != "Available")
        summary = f"are available ({others})" if others else "are available"
        yield gpu_count_finding("metax_gpus", available, self._expected(len(states)), state=summary)

    def _temperatures(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        limit = self._limits.temperature
        hottest: dict[str, float] = {}
        for gpu, value in values(_run(tool, "--show-temperature"), "hotspot("):
            degrees = float(value.removesuffix("C").strip())
            hottest[gpu] = max(degrees, hottest.get(gpu, degrees))
        for gpu, degrees in hottest.items():
            message = f"{degrees:.2f} °C; the limit is {limit} °C"
            device = uuids.get(gpu, gpu)
            yield finding(
                "metax_temperature",
                Severity.FAULT.when(degrees >= limit),
                device=device,
                value=degrees,
                unit="C",
                message=message,
            )

    def _clock(self) -> Iterator[Finding]:
        limit = self._limits.ntp_max_offset_ms
        tool = programs.find("chronyc", install="chrony")
        offset = clock.offset_ms(_run(tool, "tracking"))
        if offset is None:
            yield finding("metax_clock", Severity.ERROR, message="chronyc does not report the clock offset")
            return
        message = f"clock offset {offset:.2f} ms; the limit is {limit} ms"
        severity = Severity.FAULT.when(offset > limit)
        yield finding("metax_clock", severity, value=round(offset, 3), unit="ms", message=message)

    def _ecc(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        limit = self._limits.ecc_max_count
        for gpu, value in values(_run(tool, "--count-ecc"), "Double Bit ECC"):
            count = int(value)
            message = f"{count} double-bit errors; the limit is {limit}"
            device = uuids.get(gpu, gpu)
            severity = Severity.FAULT.when(count > limit)
            yield finding("metax_ecc", severity, device=device, value=count, unit="errors", message=message)

    def _adapters(self) -> Iterator[Finding]:
        if not self._limits.hca_ids:
            return
        tool = programs.find("ibv_devinfo", install="ibverbs-utils")
        states: dict[str, str] = {}
        adapter = ""
        for line in _run(tool).splitlines():
            key, _, value = line.strip().partition(":")
            if key == "hca_id":
                adapter = value.strip()
            elif key == "state" and adapter:
                states[adapter] = value.strip()
        for wanted in self._limits.hca_ids:
            state = states.get(wanted, "missing")
            severity = Severity.FAULT.when(not state.startswith("PORT_ACTIVE"))
            yield finding("metax_hca", severity, device=wanted, message=f"the port is {state}")


def inventory() -> Inventory:
    """The GPUs that ``mx-smi -L`` lists; without the tool, only the kernel's version."""
    kernel = os.uname().release
    tool = shutil.which("mx-smi")
    if tool is None:
        return Inventory(kernel=kernel)
    matches = [GPU_LINE.match(line.strip()) for line in _run(tool, "-L").splitlines()]
    gpus = tuple(
        Gpu(
            index=int(match[1].removeprefix("GPU#")),
            uuid=match[5] or match[1],
            pci=(match[3] or "").lower().removesuffix(".0") or None,
            model=match[2],
        )
        for match in matches
        if match and match[4]
    )
    return Inventory(kernel=kernel, gpus=gpus)


def next_check_time(now: datetime, limits: MetaX) -> datetime:
    """The next ``day2CheckTime`` after ``now``, in the time zone of ``now``."""
    at = limits.day2_check_time
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def values(text: str, label: str) -> Iterator[tuple[str, str]]:
    """GPU and value of each line ``LABEL… : VALUE`` below a line that names a GPU, as ``mx-smi`` prints them."""
    gpu = ""
    for line in text.splitlines():
        stripped = line.strip()
        match = GPU_LINE.match(stripped)
        if match:
            gpu = match[1]
        elif gpu and stripped.startswith(label):
            yield gpu, stripped.partition(":")[2].strip()


def _run(*command: str) -> str:
    """The output of a tool. Raises RuntimeError if it fails."""
    return programs.run(command, timeout=TIMEOUT_SECONDS).stdout_or_raise(" ".join(command))
