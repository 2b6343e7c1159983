"""The offset of this node's clock, from chrony or, without it, from the kernel.

ntpd and systemd-timesyncd steer the clock through the kernel's loop (PLL), so the kernel knows the offset they last
measured. chrony does not; then the kernel only knows whether anything synchronizes the clock.
"""

import ctypes
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from agents.host import programs
from agents.probes.finding import Observation, Severity, finding

MAX_OFFSET_MS = 10.0  # kcover's ntpMaxOffsetMillis
TIMEOUT_SECONDS = 10.0
STA_PLL, STA_UNSYNC, STA_NANO = 0x0001, 0x0040, 0x2000  # <linux/timex.h>
_TIMEX = struct.Struct("@Illlli")  # its first fields: modes (0: read only), offset, freq, maxerror, esterror, status


@dataclass(frozen=True, slots=True)
class KernelClock:
    """The kernel's knowledge of its clock: whether anything synchronizes it, and its offset if known."""

    unsynchronized: bool
    offset_ms: float | None = None


class ClockProbe:
    """The offset of the clock. It is shown, but never acted on: the portal orders events by its own clock."""

    name = "clock"
    deadline_seconds = 30.0
    hang_severity = Severity.FAILURE

    def __init__(
        self,
        *,
        interval_seconds: float = 300.0,
        limit_ms: float = MAX_OFFSET_MS,
        kernel: Callable[[], KernelClock] | None = None,
    ) -> None:
        """``kernel`` reads the kernel's clock; None uses adjtimex(2)."""
        self.interval_seconds = interval_seconds
        self._limit = limit_ms
        self._kernel = kernel or read_kernel_clock

    def observe(self, now: datetime) -> Observation:
        """Observe the clock. The value is the offset in milliseconds, if something measures it."""
        tool = shutil.which("chronyc")
        offset = None
        if tool is not None:
            result = programs.run((tool, "tracking"), timeout=TIMEOUT_SECONDS)
            offset = offset_ms(result.stdout) if result.status == 0 else None
        if offset is None:
            kernel = self._kernel()
            if kernel.unsynchronized or kernel.offset_ms is None:
                severity = Severity.WARNING.when(kernel.unsynchronized)
                return Observation(
                    findings=(finding("clock", severity, message="nothing synchronizes the clock of this node"),)
                )
            offset = kernel.offset_ms
        message = f"clock offset {offset:.2f} ms; the limit is {self._limit:g} ms"
        severity = Severity.WARNING.when(offset > self._limit)
        return Observation(findings=(finding("clock", severity, value=round(offset, 3), unit="ms", message=message),))


def offset_ms(text: str) -> float | None:
    """The absolute offset in the output of ``chronyc tracking``. None if it has none, or no source yet."""
    lines = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
    known = {key.strip(): value.strip() for key, value in lines.items()}
    if known.get("Leap status") == "Not synchronised":
        return None
    try:
        return abs(float(known["System time"].split()[0])) * 1000
    except (KeyError, ValueError, IndexError):
        return None


def read_kernel_clock() -> KernelClock:
    """Read the kernel's knowledge of its clock. Raises OSError."""
    block = ctypes.create_string_buffer(512)  # larger than struct timex, which grows over time
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(block) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return read_timex(block.raw)


def read_timex(block: bytes) -> KernelClock:
    """Read ``struct timex``. Its offset is valid only while the kernel's loop is in use; otherwise nothing sets it."""
    _, offset, _, _, _, status = _TIMEX.unpack_from(block)
    unsynchronized = bool(status & STA_UNSYNC)
    if unsynchronized or not status & STA_PLL:
        return KernelClock(unsynchronized)
    return KernelClock(False, abs(offset) / (1e6 if status & STA_NANO else 1e3))
