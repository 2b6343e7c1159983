"""MetaX GPUs by ``mx-smi``, with kcover's checks and limits: once a day at ``metaX.day2CheckTime``, local time.

As in kcover the order is GPUs, temperature, clock, ECC, adapters. Unlike in kcover the first failure does not hide the
later ones, and a tool that is missing or breaks is told as such, not as a broken node.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from agents import programs
from agents.config import MetaX
from agents.probes import clock
from agents.probes.finding import Finding, Reading, enough, finding
from kcover.fault import Gpu, Inventory

GPUS = 8  # of a node whose settings do not say, as in kcover
TIMEOUT = 60.0
INSTALL = "MetaX's driver package, or mount it into the agent's container"
GPU_LINE = re.compile(r"^(GPU#[0-9]+)\s+(\S+)(?:\s+(\S+))?(?:\s+(\S+))?(?:.*UUID:\s*([^)\s]+))?")


class MetaXProbe:
    """An ``agents.probes.finding.Probe``; it is asked each minute and works once a day, and once at the start. In
    between it says what it found, so that this is told again each hour and stays known; as a fault only by a look."""

    name = "metax"
    every = 60.0
    deadline = 300.0
    hung_is_fault = True

    def __init__(self, limits: MetaX, *, expected: Callable[[int], int]) -> None:
        """``expected``: told how many GPUs there are, it says how many there must be."""
        self._limits, self._expected = limits, expected
        self._next: datetime | None = None
        self._found: tuple[Finding, ...] = ()

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. Devices are UUIDs where ``mx-smi -L`` tells them."""
        if self._next is not None and now < self._next:
            return Reading(findings=self._found)
        self._next = next_time(now.astimezone(), self._limits)
        findings = self._look()
        self._found = tuple(replace(one, fault=False) for one in findings)
        return Reading(findings=tuple(findings))

    def _look(self) -> list[Finding]:
        try:
            tool = programs.find("mx-smi", install=INSTALL)
        except programs.Missing as missing:
            return [finding("metax_gpus", "skipped", message=str(missing))]
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
            except programs.Missing as missing:
                findings.append(finding(name, "skipped", message=str(missing)))
            except (OSError, RuntimeError, ValueError, programs.TookTooLong) as error:
                findings.append(finding(name, "error", message=str(error)))
        return findings

    def _gpus(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        states = {}
        for line in _say(tool, "-L").splitlines():
            match = GPU_LINE.match(line.strip())
            if match and match[4]:
                states[match[1]] = match[4]
                uuids[match[1]] = match[5] or match[1]
        available = sum(1 for state in states.values() if state == "Available")
        others = ", ".join(f"{gpu}={state}" for gpu, state in sorted(states.items()) if state != "Available")
        words = f"are available ({others})" if others else "are available"
        yield enough("metax_gpus", available, self._expected(len(states)), words=words)

    def _temperatures(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        limit = self._limits.temperature
        hottest: dict[str, float] = {}
        for gpu, value in values(_say(tool, "--show-temperature"), "hotspot("):
            degrees = float(value.removesuffix("C").strip())
            hottest[gpu] = max(degrees, hottest.get(gpu, degrees))
        for gpu, degrees in hottest.items():
            message = f"{degrees:.2f} °C, under {limit} are accepted"
            device = uuids.get(gpu, gpu)
            yield finding(
                "metax_temperature",
                degrees >= limit,
                device=device,
                value=degrees,
                unit="C",
                message=message,
                fault=True,
            )

    def _clock(self) -> Iterator[Finding]:
        limit = self._limits.ntp_max_offset_ms
        tool = programs.find("chronyc", install="chrony")
        offset = clock.offset_ms(_say(tool, "tracking"))
        if offset is None:
            yield finding("metax_clock", "error", message="chronyc does not say how far the clock is off")
            return
        message = f"{offset:.2f} ms off, {limit} are accepted"
        yield finding("metax_clock", offset > limit, value=round(offset, 3), unit="ms", message=message, fault=True)

    def _ecc(self, tool: str, uuids: dict[str, str]) -> Iterator[Finding]:
        limit = self._limits.ecc_max_count
        for gpu, value in values(_say(tool, "--count-ecc"), "Double Bit ECC"):
            count = int(value)
            message = f"{count} double-bit errors, {limit} are accepted"
            device = uuids.get(gpu, gpu)
            yield finding(
                "metax_ecc", count > limit, device=device, value=count, unit="errors", message=message, fault=True
            )

    def _adapters(self) -> Iterator[Finding]:
        if not self._limits.hca_ids:
            return
        tool = programs.find("ibv_devinfo", install="ibverbs-utils")
        states: dict[str, str] = {}
        adapter = ""
        for line in _say(tool).splitlines():
            key, _, value = line.strip().partition(":")
            if key == "hca_id":
                adapter = value.strip()
            elif key == "state" and adapter:
                states[adapter] = value.strip()
        for wanted in self._limits.hca_ids:
            state = states.get(wanted, "missing")
            bad = not state.startswith("PORT_ACTIVE")
            yield finding("metax_hca", bad, device=wanted, message=f"is {state}", fault=True)


def inventory() -> Inventory:
    """The GPUs that ``mx-smi -L`` lists; without the tool only the kernel's version."""
    kernel = os.uname().release
    tool = shutil.which("mx-smi")
    if tool is None:
        return Inventory(kernel=kernel)
    matches = [GPU_LINE.match(line.strip()) for line in _say(tool, "-L").splitlines()]
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


def next_time(now: datetime, limits: MetaX) -> datetime:
    """The next ``day2CheckTime`` after ``now``, in ``now``'s zone."""
    at = limits.day2_check_time
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)


def values(text: str, label: str) -> Iterator[tuple[str, str]]:
    """GPU and value of each line ``LABEL… : VALUE`` below a line that names a GPU, as ``mx-smi`` lists them."""
    gpu = ""
    for line in text.splitlines():
        stripped = line.strip()
        match = GPU_LINE.match(stripped)
        if match:
            gpu = match[1]
        elif gpu and stripped.startswith(label):
            yield gpu, stripped.partition(":")[2].strip()


def _say(*command: str) -> str:
    """What a tool prints; raises RuntimeError where it fails."""
    return programs.run(command, timeout=TIMEOUT).output(" ".join(command))
