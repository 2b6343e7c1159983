"""Lines of the kernel log about a GPU that the driver gave up or could not start, without any Xid.

Each is a fault of kind ``other`` with a code of its own:

- ``gpu_init_failed``: ``NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2477)``, or
  ``NVRM: The NVIDIA probe routine failed for 1 device(s).``, which names no GPU;
- ``gpu_reset_required`` and ``gpu_lost``: an assertion whose status is ``[NV_ERR_RESET_REQUIRED]`` or
  ``[NV_ERR_GPU_IS_LOST]``. In brackets, since the text of an assertion may name a status that it excludes;
- ``peermem_invalid_context``: nvidia-peermem refuses transfers between a GPU and an adapter.

Sources: NVIDIA's open kernel modules (print statements), reports of users.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from kcover.faults import xid

KIND: Final = "other"
INIT_FAILED, RESET_REQUIRED, LOST = "gpu_init_failed", "gpu_reset_required", "gpu_lost"
PEERMEM_CODE: Final = "peermem_invalid_context"
PEERMEM: Final = "detected invalid context"
SEVERITIES: Final[Mapping[str, str]] = MappingProxyType(dict.fromkeys((INIT_FAILED, RESET_REQUIRED, LOST), "degraded"))
# Codes of Xids that say the same; beside them a line without an Xid tells nothing new.
TOLD_BY: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        LOST: (xid.OFF_THE_BUS,),
        INIT_FAILED: (xid.OFF_THE_BUS,),
        RESET_REQUIRED: (xid.OFF_THE_BUS, xid.RECOVERY_ACTION_CHANGED),
    }
)
TOLD_WITHIN: Final = timedelta(seconds=5)  # of the Xid, before and after
UNSUPPORTED: Final = (
    "is not supported by",
    "assigned to your NVIDIA device is invalid",
    "requires use of the NVIDIA open kernel modules",
)
UNSUPPORTED_LINES: Final = 8  # at most so many lines before the failed start
# What a store of logs is asked for. Every fault line contains one of them.
PATTERNS: Final = ("NV_ERR_RESET_REQUIRED", "NV_ERR_GPU_IS_LOST", "InitAdapter failed", "probe routine failed", PEERMEM)
NEEDLES: Final = tuple(re.compile(re.escape(text).encode()) for text in PATTERNS)

_STATUS = re.compile(r"\[NV_ERR_(?P<name>RESET_REQUIRED|GPU_IS_LOST)\]")
_INIT = re.compile(
    r"NVRM: (?:The NVIDIA probe routine failed for [0-9]{1,4} device"
    r"|(?:GPU [^ \r\n]{1,24} )?RmInitAdapter failed)"
)
_MODULE = re.compile(r"nvidia[-_]peermem", re.IGNORECASE)
_CODES: Final = {"RESET_REQUIRED": RESET_REQUIRED, "GPU_IS_LOST": LOST}
_ADDRESS: Final = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)\b"
_DEVICE = re.compile(rf"NVRM: (?:GPU (?:at )?)?(?:PCI:)?{_ADDRESS}")
_OF_CARD: Final = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLine:
    """The fault of a line; ``pci`` as printed, lower case, None if the line names no GPU."""

    code: str
    pci: str | None = None


def parse(line: str) -> DriverLine | None:
    """The fault that a line of the kernel reports, or None. Never raises, in time that grows with the line only."""
    if (begun := line.find("NVRM: ")) >= 0:
        if status := _STATUS.search(line, begun):
            return DriverLine(code=_CODES[status["name"]], pci=_pci(line))
        if _INIT.search(line):
            return DriverLine(code=INIT_FAILED, pci=_pci(line))
    if "peermem" in line and (module := _MODULE.search(line)) and PEERMEM in line[module.end() :].lower():
        return DriverLine(code=PEERMEM_CODE)
    return None


def is_unsupported(line: DriverLine, before: Sequence[str]) -> bool:
    """Return whether the lines before a failed start say that the driver cannot run the card, or has no room for it.

    That is a setting of the node: no reset or reboot changes it. What they say of one GPU does not hold for another.
    """
    if line.code != INIT_FAILED:
        return False
    if line.pci is None:
        return any(says_unsupported(text) for text in before)
    about = ""
    for text in before:
        about = unsupported_gpu(text) or about
        if says_unsupported(text) and xid.slot(about) == xid.slot(line.pci):
            return True
    return False


def says_unsupported(text: str) -> bool:
    """Return whether a line of the kernel says that the driver cannot run a card."""
    is_of_driver = "NVRM: " in text or text.startswith((" ", "\t"))  # the driver's further lines are indented in dmesg
    return is_of_driver and any(words in text for words in UNSUPPORTED)


def unsupported_gpu(text: str) -> str:
    """The GPU that such a line, or the one before it, names; "" if it names none."""
    found = _OF_CARD.search(text)
    return found[1].lower() if found else ""


@dataclass(frozen=True, slots=True)
class Told:
    """A line or an Xid. ``code``: of the line, or the Xid's number; ``slot``: the GPU, "" or None if it names none."""

    code: str | int
    slot: str | None
    at: datetime | None


def is_told(line: Told, by: Told) -> bool:
    """Return whether the Xid says all that the line of the same node says. A GPU or time that one lacks fits any."""
    if int(by.code) not in TOLD_BY.get(str(line.code), ()) or (line.slot and by.slot and line.slot != by.slot):
        return False
    return line.at is None or by.at is None or abs(line.at - by.at) < TOLD_WITHIN


def _pci(line: str) -> str | None:
    device = _DEVICE.search(line)
    return device[1].lower() if device else None
