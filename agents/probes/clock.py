"""How far this node's clock is off, by chrony or, where there is none, by what the kernel knows."""

import ctypes
import os
import shutil
from collections.abc import Callable
from datetime import datetime

from agents import programs
from agents.probes.finding import Reading, finding

LIMIT_MS = 10.0  # kcover's ntpMaxOffsetMillis
TIMEOUT = 10.0
STA_UNSYNC = 0x0040  # <linux/timex.h>


class ClockProbe:
    """An ``agents.probes.finding.Probe``. An offset is shown and never acted on: the portal orders by its own clock."""

    name = "clock"
    deadline = 30.0
    hung_is_fault = False

    def __init__(
        self, *, every: float = 300.0, limit_ms: float = LIMIT_MS, unsynchronized: "Callable[[], bool] | None" = None
    ) -> None:
        """``unsynchronized`` asks the kernel whether nobody keeps its clock; None: adjtimex(2)."""
        self.every = every
        self._limit = limit_ms
        self._unsynchronized = unsynchronized or kernel_unsynchronized

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The value is the offset in milliseconds, where something measures it."""
        tool = shutil.which("chronyc")
        offset = None
        if tool is not None:
            ended = programs.run((tool, "tracking"), timeout=TIMEOUT)
            offset = offset_ms(ended.out) if ended.status == 0 else None
        if offset is None:
            bad = "warn" if self._unsynchronized() else False
            return Reading(findings=(finding("clock", bad, message="nothing keeps this node's clock"),))
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


def kernel_unsynchronized() -> bool:
    """Whether the kernel's clock is marked as kept by nobody. Raises OSError where it does not say."""
    block = (ctypes.c_char * 512)()  # struct timex begins: modes (0: only look), offset, freq, ..., status
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(block)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    long_size = ctypes.sizeof(ctypes.c_long)
    # modes is padded to a long; offset, freq, maxerror and esterror are longs; then comes the int status.
    status = ctypes.c_int.from_buffer_copy(block, 5 * long_size)
    return bool(status.value & STA_UNSYNC)
