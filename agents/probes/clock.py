"""How far this node's clock is off, by chrony or, where there is none, by what the kernel knows.

ntpd and systemd-timesyncd steer the clock by the kernel's loop (PLL), so it knows how far off they last found it;
chrony does not, and there the kernel says no more than whether somebody keeps the clock.
"""

import ctypes
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from agents import programs
from agents.probes.finding import Reading, finding

LIMIT_MS = 10.0  # kcover's ntpMaxOffsetMillis
TIMEOUT = 10.0
STA_PLL, STA_UNSYNC, STA_NANO = 0x0001, 0x0040, 0x2000  # <linux/timex.h>
_TIMEX = struct.Struct("@Illlli")  # its beginning: modes (0: only look), offset, freq, maxerror, esterror, status


@dataclass(frozen=True, slots=True)
class Kept:
    """What the kernel knows of its clock: whether nobody keeps it, and how far off it is, where it was told."""

    unsynchronized: bool
    offset_ms: float | None = None


class ClockProbe:
    """An ``agents.probes.finding.Probe``. An offset is shown and never acted on: the portal orders by its own clock."""

    name = "clock"
    deadline = 30.0
    hung_is_fault = False

    def __init__(
        self, *, every: float = 300.0, limit_ms: float = LIMIT_MS, kernel: Callable[[], Kept] | None = None
    ) -> None:
        """``kernel`` asks the kernel; None: adjtimex(2)."""
        self.every = every
        self._limit = limit_ms
        self._kernel = kernel or ask_kernel

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The value is the offset in milliseconds, where something measures it."""
        tool = shutil.which("chronyc")
        offset = None
        if tool is not None:
            ended = programs.run((tool, "tracking"), timeout=TIMEOUT)
            offset = offset_ms(ended.out) if ended.status == 0 else None
        if offset is None:
            kept = self._kernel()
            if kept.unsynchronized or kept.offset_ms is None:
                bad = "warn" if kept.unsynchronized else False
                return Reading(findings=(finding("clock", bad, message="nothing keeps this node's clock"),))
            offset = kept.offset_ms
        message = f"{offset:.2f} ms off, {self._limit:g} are accepted"
        bad = "warn" if offset > self._limit else False
        return Reading(findings=(finding("clock", bad, value=round(offset, 3), unit="ms", message=message),))


def offset_ms(text: str) -> float | None:
    """The absolute offset in what ``chronyc tracking`` prints; None where it does not say, or has no source yet."""
    lines = dict(line.partition(":")[::2] for line in text.splitlines() if ":" in line)
    known = {key.strip(): value.strip() for key, value in lines.items()}
    if known.get("Leap status") == "Not synchronised":
        return None
    try:
        return abs(float(known["System time"].split()[0])) * 1000
    except (KeyError, ValueError, IndexError):
        return None


def ask_kernel() -> Kept:
    """What the kernel knows of its clock. Raises OSError where it does not say."""
    block = ctypes.create_string_buffer(512)  # more than struct timex, which grows
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(block) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return read_timex(block.raw)


def read_timex(block: bytes) -> Kept:
    """What ``struct timex`` says. Its offset counts where the kernel's loop is in use: else nobody sets it."""
    _, offset, _, _, _, status = _TIMEX.unpack_from(block)
    unsynchronized = bool(status & STA_UNSYNC)
    if unsynchronized or not status & STA_PLL:
        return Kept(unsynchronized)
    return Kept(False, abs(offset) / (1e6 if status & STA_NANO else 1e3))
