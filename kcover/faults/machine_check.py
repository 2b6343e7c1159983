"""Machine checks in a kernel log: which lines report an error of this boot that the hardware could not correct.

Each error is several lines, one of which has the verdict. Three sources write such lines, each in its own form:

- x86: ``mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400``, where the bank's status
  has the bits valid (63), uncorrected (61) and enabled (60);
- AMD's decoder: ``[Hardware Error]: Uncorrected, software restartable error.``;
- firmware (APEI): ``{1}[Hardware Error]: event severity: fatal``.

A node must not be rebooted for an error of an earlier boot, so these lines are ignored:

- x86's line without ``Exception``: found by polling. At boot it is what a crash or a hard reset left in the banks (UC
  and PCC set, as in a new error). Later it is an error that nothing has consumed (UCNA), which needs no action.
- the decoder's ``System Fatal error.`` and ``Uncorrected, software containable error.``: it prints these for polled
  records too, and no machine survives a new error of the first kind.
- firmware's ``recoverable``: the system continued, and the line does not distinguish an error of processor or memory
  from a PCIe error that was not fatal.
- firmware's record without the number in braces (BERT): an error that ended the previous boot, printed at each boot as
  long as the firmware keeps it. With ``NVRM:`` before it, the NVIDIA driver repeats its Xid.

A corrected or deferred error lost no data. If a decoder such as Intel's EDAC or mcelog takes x86's records, the kernel
prints only ``Machine check events logged``, for corrected errors too. Then no line reports the error; for memory,
EDAC's counters do. Sources: Linux, arch/x86/kernel/cpu/mce/core.c, drivers/edac/mce_amd.c, drivers/firmware/efi/cper.c,
drivers/acpi/apei/{ghes,bert}.c; NVIDIA's open kernel modules; Intel SDM 3B, IA32_MCi_STATUS.
"""

import re

KIND, CODE = "other", "mce"
NEEDLES = (re.compile(rb"Hardware Error\]: "),)  # on every such line; "[" itself begins most lines of a log
_MARKER = "[Hardware Error]: "

_BANK_LINE = re.compile(
    r"CPU [0-9]+: Machine Check Exception: [0-9A-Fa-f]+ Bank [0-9]+: (?P<status>[0-9A-Fa-f]{1,16})\b"
)
_DECODED_ERROR = "Uncorrected, software restartable error."
_FATAL_RECORD = re.compile(r"event severity: fatal\b")
_UNCORRECTED_BITS = 1 << 63 | 1 << 61 | 1 << 60  # valid, uncorrected, enabled


def is_uncorrected(line: str) -> bool:
    """Return whether the line reports an uncorrected machine check of this boot. Never raises."""
    start = line.find(_MARKER)
    if start < 0:
        return False
    offset = start + len(_MARKER)
    bank = _BANK_LINE.match(line, offset)
    if bank is not None:
        return int(bank["status"], 16) & _UNCORRECTED_BITS == _UNCORRECTED_BITS
    if line.startswith(_DECODED_ERROR, offset):
        return True
    before = line[:start]
    return before.endswith("}") and "NVRM" not in before and _FATAL_RECORD.match(line, offset) is not None
