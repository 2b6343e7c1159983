"""Lines of kernel logs and of pods' logs that report a fault, whoever collected them. Their times are nanoseconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from kcover.faults import driver_line, fault, kernel_line, xid

MAX_LINE: Final = 65_536  # characters; a record of the kernel has at most 8 KiB
SECOND: Final = 10**9  # nanoseconds
LATEST: Final = 2**62  # nanoseconds; the year 2116
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What Konduktor asks a log store for, the lines about GPUs that carry no code, and what explains some of them.
KERNEL_PATTERNS: Final = (
    *("NVRM: xid", "SXid", "fallen off the bus"),
    *driver_line.PATTERNS,
    *driver_line.UNSUPPORTED,
)
POD_PATTERNS: Final = ("invalid device ordinal",)
_ANY_CASE: Final = (
    (re.compile(r"NVRM: Xid", re.IGNORECASE), "NVRM: Xid"),
    (re.compile(r"\bSXid", re.IGNORECASE), "SXid"),
)
_NOT_CODE: Final = re.compile(r"[^a-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFault:
    """The fault that a line reports."""

    kind: str
    code: int | str
    pci: str | None = None


def kernel_fault(line: str) -> LoggedFault | None:
    """The fault of a line of a kernel log; None if it reports none, that a fault is over, or is a program's line."""
    if kernel_line.is_of_program(line):
        return None
    for pattern, spelled in _ANY_CASE:
        line = pattern.sub(spelled, line)
    found = xid.parse_line(line)
    if found is not None:
        if xid.is_all_clear(found.code, found.text):
            return None
        return LoggedFault(kind=found.kind, code=found.code, pci=xid.slot(found.pci))
    told = driver_line.parse(line)
    if told is not None:
        return LoggedFault(kind=driver_line.KIND, code=told.code, pci=xid.slot(told.pci))
    if driver_line.PEERMEM in line.lower():
        return LoggedFault(kind=driver_line.KIND, code=driver_line.PEERMEM_CODE)
    return None


def pod_fault(line: str, texts: Sequence[str]) -> LoggedFault | None:
    """The fault of a line of a pod's log that contains one of these texts, in any case. Its code is the text."""
    lower = line.lower()
    found = next((text for text in texts if text.lower() in lower), None)
    return LoggedFault(kind="other", code=code_of(found)) if found is not None else None


def code_of(text: str) -> str:
    """The code of a text: ``invalid device ordinal`` is ``invalid_device_ordinal``."""
    if text.lower() == driver_line.PEERMEM:
        return driver_line.PEERMEM_CODE
    code = _NOT_CODE.sub("_", text.lower()).strip("_")[:64]
    return code if fault.CODE_WORD.fullmatch(code) else "log_pattern"


def nanoseconds(at: datetime) -> int:
    """The time in nanoseconds since 1970, to the microsecond."""
    return (at - _BEGIN) // timedelta(microseconds=1) * 1_000


def moment(nanosecond: int) -> datetime:
    """The time of a number of nanoseconds since 1970, to the microsecond."""
    return _BEGIN + timedelta(microseconds=nanosecond // 1_000)
