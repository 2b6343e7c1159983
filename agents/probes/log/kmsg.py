"""Kernel log records to faults: pure, no I/O, no clock.

A record of ``/dev/kmsg`` is ``PRIORITY,SEQUENCE,USEC,FLAGS;TEXT``, optionally followed by lines `` KEY=value``. Bytes
outside printable ASCII are escaped as ``\\xNN``; the core's parser (``kcover.faults.xid``) reads them as they are.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.faults import driver_line, kernel_line, machine_check, xid
from kcover.faults.fault import Fault

MAX_LINE_BYTES = 64 * 1024  # only so much of a line is read; no kernel line is longer than 8 KiB
CLOCK_STEP = timedelta(seconds=15)  # by so much a clock may be put forward after the start, when lines were printed
MAX_MESSAGE_CHARS = 4096  # the most of a line that is reported
MAX_LINES = 8  # of one message
SOURCE_NAME = "kmsg"

_HEADER = re.compile(r"([0-9]{1,10}),([0-9]{1,19}),([0-9]{1,19}),[^;]{0,200};")
_CONTINUED = re.compile(r"[ \t]{2,}NVRM: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message of the kernel log. ``at``: when it was logged, or read if the log has no time.

    ``facility`` 0 is the kernel's own. The kernel lets no program use it, so any other value is a program's message.
    ``is_plain``: without a header. A system log has the lines of programs, too, and any user may log any text, so that
    only what stands before the text tells whose it is. ``most_uptime``: a plain line whose kernel had run for longer,
    or that was printed before, is of an earlier boot.
    """

    text: str
    at: datetime
    facility: int = 0
    sequence: int | None = None
    is_plain: bool = False
    most_uptime: timedelta | None = None

    @property
    def is_foreign(self) -> bool:
        """True if the kernel of this boot has not written it, as far as a plain line tells, or only quotes what a user
        chose."""
        if self.is_plain:
            return not kernel_line.is_of_kernel(self.text) or self._is_of_earlier_boot
        return self.facility == 0 and kernel_line.is_quoted(self.text)

    @property
    def _is_of_earlier_boot(self) -> bool:
        if self.most_uptime is None:
            return False
        uptime, printed = kernel_line.uptime(self.text), kernel_line.printed_at(self.text)
        is_older = printed is not None and printed < self.at - self.most_uptime - CLOCK_STEP
        return is_older or (uptime is not None and uptime > self.most_uptime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of a record, before its text. ``usec``: microseconds since boot."""

    facility: int
    sequence: int
    usec: int


def split_header(line: str) -> tuple[Header | None, str]:
    """The kmsg header of a line, None if it has none (a plain log), and the text."""
    match = _HEADER.match(line)
    if match is None:
        return None, line
    priority, sequence, usec = (int(group) for group in match.groups())
    return Header(facility=priority >> 3, sequence=sequence, usec=usec), line[match.end() :]


def faults_of(records: Iterable[Record], *, before: Sequence[Record] = ()) -> list[Fault]:
    """One fault for each line, in order. ``count`` is 0 for a line that only adds to a fault of another line: the
    second and third line of an SXid, the plain line after an Xid 79.

    ``before``: the last records that were read before. The lines of one message may arrive in two reads.
    """
    kept = [*before, *records]
    found = (_fault_of(kept, index) for index in range(len(before), len(kept)))
    return [fault for fault in found if fault is not None]


def _fault_of(kept: Sequence[Record], index: int) -> Fault | None:
    record = kept[index]
    if "Xid" not in record.text and "fallen off" not in record.text:  # nearly every line of a kernel log ends here
        if machine_check.is_uncorrected(record.text) and not _is_foreign(kept, index):
            return _fault(record, kind=machine_check.KIND, code=machine_check.CODE)
        line = driver_line.parse(record.text)
        if line is None or _is_foreign(kept, index):
            return None
        if driver_line.is_unsupported(line, _texts_before(kept, index, driver_line.UNSUPPORTED_LINES)):
            return None
        return _fault(record, kind=driver_line.KIND, code=line.code, pci=line.pci)
    if _is_foreign(kept, index):
        return None
    # The two lines before tell which GPU a line without an address is about (lost GPUs with older drivers).
    for fault_line in xid.parse_lines((*_texts_before(kept, index, 2), record.text)):
        if fault_line.line != record.text.rstrip("\r\n"):
            continue
        if xid.is_all_clear(fault_line.code, fault_line.text):  # nothing is wrong
            return None
        count = 0 if xid.is_companion(fault_line) else 1
        return _fault(record, kind=fault_line.kind, code=fault_line.code, pci=fault_line.pci, count=count)
    return None


def _texts_before(kept: Sequence[Record], index: int, most: int) -> list[str]:
    """The lines of the kernel among the last ones before."""
    return [kept[one].text for one in range(max(0, index - most), index) if not _is_foreign(kept, one)]


def _is_foreign(kept: Sequence[Record], index: int) -> bool:
    """True if the kernel of this boot has not written the line. Of a message of several lines only the first one has a
    header (dmesg, journalctl); it tells whose the others are."""
    first = index
    while first > 0 and kept[first].is_plain and _CONTINUED.match(kept[first].text) and index - first < MAX_LINES:
        first -= 1
    return kept[first].is_foreign


def _fault(record: Record, *, kind: str, code: int | str, pci: str | None = None, count: int = 1) -> Fault:
    return Fault(
        kind=kind,
        code=code,
        pci=pci,
        message=record.text[:MAX_MESSAGE_CHARS],
        seen_at=record.at,
        source=SOURCE_NAME,
        sequence=record.sequence,
        drill=record.facility != 0,
        count=count,
    )
