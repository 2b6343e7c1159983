"""Who wrote a line of a log file: the kernel, or a program whose message a system log put beside the kernel's.

Any user can log any text (``logger 'NVRM: Xid ...'``); what a system log adds before the text tells it apart. A program
that is allowed to choose its tag can still take the kernel's: only ``/dev/kmsg`` has the facility, which nobody can
choose.

The forms: syslog's (RFC 3164, and with RFC 3339 times), RFC 5424's, journalctl's short ones, and those of ``dmesg``.
"""

import re
from typing import Final

KERNEL: Final = "kernel"

_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_STAMP: Final = (
    rf"(?:[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ 0-9][0-9] {_CLOCK} [0-9]{{4}}"  # Thu Nov 28 10:00:00 2026
    rf"|(?:[A-Z][a-z]{{2}} )?[A-Z][a-z]{{2}} [ 0-9][0-9] (?:[0-9]{{4}} )?{_CLOCK}"  # Nov 28 10:00:00
    rf"|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}}| [A-Z]{{3,4}})?"
    r"|[0-9]{9,11}\.[0-9]{1,9})"
)
_BOOT_STAMP: Final = r"\[ {0,11}[0-9]{1,10}\.[0-9]{3,9}\](?: ?\[ {0,6}[TC][0-9]{1,7}\])?"
_TAG: Final = r"(?P<tag>[A-Za-z_(/][^\s:\[\]]{0,63})(?P<pid>\[[0-9]{1,10}\])?:(?: |$)"
# A line that a system log wrote: a time, a host, and the tag of the program.
_TAGGED: Final = re.compile(
    rf"(?:<[0-9]{{1,3}}>)?(?:{_STAMP} [^\s\[\]]{{1,255}}|{_BOOT_STAMP} [a-z0-9][a-z0-9.-]{{0,254}}) {_TAG}"
)
_RFC5424: Final = re.compile(rf"<[0-9]{{1,3}}>1 {_STAMP} \S+ (?P<tag>\S{{1,48}}) (?P<pid>\S+) ")
# dmesg -x: facility and level before the time.
_DECODED: Final = re.compile(r"(?P<tag>[a-z0-9]{2,8}) *:[a-z]{3,6} *: (?=\[)")
# The kernel's own form: its time or nothing before its text.
_BARE: Final = re.compile(
    rf"(?:<[0-9]{{1,3}}>)?(?:{_BOOT_STAMP}|\[{_STAMP}\]|\[ *(?:{_STAMP})? *[<+][^\]\n]{{1,20}}\]) ?"
)
# How the texts begin that are read as faults, where nothing is before them, or a time alone.
_OWN: Final = re.compile(
    rf"(?:{_STAMP} )?(?:NVRM: |nvidia-nvswitch[0-9]{{1,4}}: |nvidia-peermem|mce: "
    r"|(?:\{[0-9]{1,10}\})?\[Hardware Error\]: |Linux version )"
)
_FIELD: Final = r"(?:SYSLOG_IDENTIFIER|syslog_identifier|_TRANSPORT|transport)"
_JOURNAL_FIELD: Final = re.compile(rf'"{_FIELD}" ?: ?"(?P<tag>[^"]{{1,64}})"')


def writer(line: str) -> str:
    """``kernel``, the tag of a program, or "" if the line does not tell."""
    if line.startswith("<") and (header := _RFC5424.match(line)):
        return header["tag"] if header["pid"] == "-" else f"{header['tag']}[{header['pid']}]"
    if tagged := _TAGGED.match(line):
        return f"{tagged['tag']}{tagged['pid'] or ''}"  # the kernel has no number
    if decoded := _DECODED.match(line):
        return KERNEL if decoded["tag"] == "kern" else decoded["tag"]
    if _BARE.match(line) or _OWN.match(line):
        return KERNEL
    if line.startswith("{") and (field := _JOURNAL_FIELD.search(line)):
        return field["tag"]
    return ""


def is_of_kernel(line: str) -> bool:
    """Return whether the line has the kernel's tag or its own form, so that nobody else is known to have written it."""
    return writer(line) == KERNEL


def is_of_program(line: str) -> bool:
    """Return whether the line names a program that wrote it."""
    return writer(line) not in ("", KERNEL)
