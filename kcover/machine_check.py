"""Machine checks in a kernel log: which lines tell of an error that the hardware could not correct.

Each error is several lines, one of which carries the verdict. There are three writers, each with words of its own:

- x86: ``mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400``, where bit 61 of the bank's
  status says uncorrected; without ``Exception`` it was found by polling, after a crash for example;
- AMD's decoder: ``[Hardware Error]: System Fatal error.`` or ``... Uncorrected, software restartable error.``;
- firmware (APEI): ``{1}[Hardware Error]: event severity: recoverable`` or ``fatal``. Without the number in braces it
  is the record of an error that ended the boot before, printed at each boot for as long as the firmware keeps it; with
  ``NVRM:`` before it the NVIDIA driver repeats what its Xid says, a program's too.

A corrected or deferred error lost nothing and is none of these. Where a decoder such as Intel's EDAC or mcelog takes
x86's records the kernel prints no more than ``Machine check events logged``, for corrected ones too: then no line tells
(of memory EDAC's counters do). Sources: Linux, arch/x86/kernel/cpu/mce/core.c,
drivers/edac/mce_amd.c, drivers/firmware/efi/cper.c, drivers/acpi/apei/{ghes,bert}.c; NVIDIA's open kernel modules;
Intel SDM 3B, IA32_MCi_STATUS.
"""

import re

KIND, CODE = "other", "mce"
NEEDLES = (re.compile(rb"Hardware Error\]: "),)  # on every line of all of them; "[" begins most lines of a log
_SIGN = "[Hardware Error]: "

_BANK = re.compile(
    r"CPU [0-9]+: Machine Check(?: Exception)?: [0-9A-Fa-f]+ Bank [0-9]+: (?P<status>[0-9A-Fa-f]{1,16})\b"
)
_DECODED = re.compile(r"(?:System Fatal error|Uncorrected, software (?:restartable|containable) error)\.")
_FIRMWARE = re.compile(r"event severity: (?:recoverable|fatal)\b")
_UNCORRECTED = 1 << 61


def is_uncorrected(line: str) -> bool:
    """Whether the line tells of a machine check that was not corrected. Never raises."""
    start = line.find(_SIGN)
    if start < 0:
        return False
    told = start + len(_SIGN)
    bank = _BANK.match(line, told)
    if bank is not None:
        return bool(int(bank["status"], 16) & _UNCORRECTED)
    if _DECODED.match(line, told):
        return True
    before = line[:start]
    return before.endswith("}") and "NVRM" not in before and _FIRMWARE.match(line, told) is not None
