"""Machine checks in a kernel log: which lines tell of an error, in this boot, that the hardware could not correct.

Each error is several lines, one of which carries the verdict. There are three writers, each with words of its own:

- x86: ``mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400``, where the bank's status
  says valid (bit 63), uncorrected (61) and enabled (60);
- AMD's decoder: ``[Hardware Error]: Uncorrected, software restartable error.``;
- firmware (APEI): ``{1}[Hardware Error]: event severity: fatal``.

A node must not be rebooted for what is over, so that these are none:

- x86's line without ``Exception``: found by polling. At boot that is what a crash or a hard reset left in the banks
  (UC and PCC set, as in a fresh one), later an error that nobody has consumed (UCNA), which asks for nothing;
- the decoder's ``System Fatal error.`` and ``Uncorrected, software containable error.``: it says so of polled records,
  too, and of the first kind no fresh one leaves the machine alive;
- firmware's ``recoverable``: the system went on, and the line does not tell a processor's or memory's error from one
  of PCIe that was not fatal;
- firmware's record without the number in braces (BERT): an error that ended the boot before, printed at each boot for
  as long as the firmware keeps it; and with ``NVRM:`` before it the NVIDIA driver repeats what its Xid says.

A corrected or deferred error lost nothing. Where a decoder such as Intel's EDAC or mcelog takes x86's records the
kernel prints no more than ``Machine check events logged``, for corrected ones too: then no line tells (of memory
EDAC's counters do). Sources: Linux, arch/x86/kernel/cpu/mce/core.c, drivers/edac/mce_amd.c,
drivers/firmware/efi/cper.c, drivers/acpi/apei/{ghes,bert}.c; NVIDIA's open kernel modules; Intel SDM 3B,
IA32_MCi_STATUS.
"""

import re

KIND, CODE = "other", "mce"
NEEDLES = (re.compile(rb"Hardware Error\]: "),)  # on every line of all of them; "[" begins most lines of a log
_SIGN = "[Hardware Error]: "

_BANK = re.compile(r"CPU [0-9]+: Machine Check Exception: [0-9A-Fa-f]+ Bank [0-9]+: (?P<status>[0-9A-Fa-f]{1,16})\b")
_DECODED = "Uncorrected, software restartable error."
_FIRMWARE = re.compile(r"event severity: fatal\b")
_TELLS = 1 << 63 | 1 << 61 | 1 << 60  # valid, uncorrected, enabled


def is_uncorrected(line: str) -> bool:
    """Whether the line tells of a machine check of this boot that was not corrected. Never raises."""
    start = line.find(_SIGN)
    if start < 0:
        return False
    told = start + len(_SIGN)
    bank = _BANK.match(line, told)
    if bank is not None:
        return int(bank["status"], 16) & _TELLS == _TELLS
    if line.startswith(_DECODED, told):
        return True
    before = line[:start]
    return before.endswith("}") and "NVRM" not in before and _FIRMWARE.match(line, told) is not None
