"""Who wrote a line of a log file: the kernel, or a program whose message a system log put beside the kernel's.

Any user can log any text (``logger 'NVRM: Xid ...'``); what a system log adds before the text tells it apart. A program
that is allowed to choose its tag can still take the kernel's: only ``/dev/kmsg`` has the facility, which nobody can
choose.

All that precedes the driver's words must be the kernel's own form, or a header with the tag ``kernel:``. The forms:
syslog's (RFC 3164, and with RFC 3339 times; BusyBox adds the facility), RFC 5424's, journalctl's short ones, dmesg's.
The names of months and days may be those of another language: journalctl and dmesg print them by the user's locale.
"""

import re
from datetime import datetime, timedelta
from typing import Final

DRIFT: Final = 0.001  # of the kernel's clock, 86 s a day; one that nothing corrects drifts by a tenth of it
KERNEL: Final = "kernel"
PROGRAM: Final = "program"
MAX_WRAPS: Final = 5  # collectors around a line; a program can print their words as often as it likes

_CLOCK: Final = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_DAY: Final = r"[^\W\d_]{1,4}\.?"  # Thu, jeu., 四
_MONTH: Final = r"(?:[^\W\d_]{3,5}\.?| ?[0-9]{1,2}[月월])"  # Nov, déc., 11月
_STAMP: Final = (
    rf"(?:{_DAY} {_MONTH} [ 0-9][0-9] {_CLOCK} [0-9]{{4}}"  # Thu Nov 28 10:00:00 2026
    rf"|(?:{_DAY} )?{_MONTH} [ 0-9][0-9] (?:[0-9]{{4}} )?{_CLOCK}"  # Nov 28 10:00:00
    rf"|(?:{_DAY} )?[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?"
    r"|[0-9]{9,11}\.[0-9]{1,9})"
)
_ZONE: Final = r"(?: (?:[A-Z]{3,5}|[+-][0-9]{2,4}))?"  # some have no letters: +08
_BOOT_STAMP: Final = r"\[ {0,11}[0-9]{1,10}\.[0-9]{3,9}\](?: ?\[ {0,6}[TC][0-9]{1,7}\])?"
_RING: Final = (  # as dmesg prints a time
    rf"(?:{_BOOT_STAMP}|\[{_STAMP}\]"
    rf"|\[ {{0,20}}(?:(?:{_STAMP}|[0-9]{{1,9}}\.[0-9]{{3,9}}) {{0,20}})?[<+][^\]\n]{{1,20}}\]"
    r"|\[[A-Z][a-z]{2}[ 0-9][0-9] [0-9]{2}:[0-9]{2}\])"
)
_HOST: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}"
_TAG: Final = rf"(?:{_HOST} )?(?:kern\.[a-z]{{3,7}} )?kernel: {{0,2}}(?:{_RING} ?)?"
_HEADER: Final = rf"{_STAMP}{_ZONE} {_TAG}"  # of a system log
_FORMS: Final = re.compile(
    r"[0-7],[0-9]{1,19},[0-9]{1,19},[^;\n]{0,100};"  # a record of /dev/kmsg
    rf"|(?:<[0-7]>)?(?:(?:{_STAMP} |{_RING} ?)?|{_HEADER}|(?:{_RING} {_HOST} )?kernel: {{0,2}}(?:{_RING} ?)?)"  # to <7>
    rf"|kern *:[a-z]{{3,6}} *: (?:{_RING} ?|{_STAMP} )?"  # dmesg -x
    rf"|<[0-7]>1 {_STAMP} \S{{1,255}} kernel - \S{{1,32}} (?:-|\[[^\]\n]{{0,999}}\]) \ufeff?(?:{_RING} ?)?"
)
# How the texts begin that are read as faults, and the first line of a boot.
_WORDS: Final = re.compile(
    r"NVRM: |nvidia-nvswitch[0-9]{1,4}: |\bSXid\b|nvidia[-_]peermem|mce: \[Hardware"
    r"|(?:\{[0-9]{1,10}\})?\[Hardware Error\]: |Linux version ",
    re.IGNORECASE,
)
# Directly before the words: seconds of the kernel's clock, or the microseconds of a record of /dev/kmsg.
_UPTIME: Final = re.compile(
    r"\[ {0,11}([0-9]{1,9})\.([0-9]{3,9})(?: {0,20}<[^\]\n]{1,20})?\](?: ?\[ {0,6}[TC][0-9]{1,7}\])? ?"
    rf"(?:(?:{_HOST} )?kernel: {{0,2}})?\Z"
    r"|\A[0-7],[0-9]{1,19},([0-9]{1,16}),[^;\n]{0,100};\Z"
)
_PRINTED: Final = re.compile(
    r"(?:<[0-7]>(?:1 )?|kern *:[a-z]{3,6} *: )?"  # of syslog, with its version 1 (RFC 5424); of dmesg -x
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2}))"
)
# The forms without a zone, and those whose zone is a word: syslog's, dmesg's, journalctl's.
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LOCAL: Final = re.compile(
    rf"(?:<[0-7]>|kern *:[a-z]{{3,6}} *: )?\[?(?:{_DAY} )?"
    r"(?:(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[T ]|(?P<month>[A-Z][a-z]{2}| ?[0-9]{1,2}(?=[月월]))[月월]? "
    r"(?P<day>[ 0-9][0-9]) (?:(?P<year>[0-9]{4}) )?)"
    r"(?P<clock>[0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,][0-9]{1,9})?(?: (?P<year_behind>[0-9]{4}))?"
)
_WEST: Final = timedelta(hours=12)  # the zone that is latest in UTC
_EAST: Final = timedelta(hours=14)
# What a collector adds around a line, with or without the name of its writer.
_CONTAINER: Final = re.compile(rf"{_STAMP} (?:stdout|stderr) [FP] ")
_OBJECT: Final = re.compile(r'\{.*?"[A-Za-z_]{1,64}" ?: ?"(?=[^"]*$)')
# Of the journal and of rsyslog; and of syslog-ng, Fluentd and Vector, which collectors also set to names of their own.
_FIELD: Final = r"(?:SYSLOG_IDENTIFIER|syslog_identifier|_TRANSPORT|transport|programname|syslogtag)"
_WRITERS: Final = re.compile(rf'"{_FIELD}" ?: ?"([^"]{{1,64}}?):?"')
_TAGS: Final = re.compile(r'"(?:PROGRAM|program|ident|appname)" ?: ?"([^"]{1,64}?):?"')
_COLLECTORS: Final = frozenset(
    ("dmesg", "kmsg", "klog", "otel", "otelcol", "fluent-bit", "fluentbit", "fluentd", "vector", "promtail", "alloy")
)
_FACILITIES: Final = re.compile(r'"(?:SYSLOG_FACILITY|facility)" ?: ?"([^"]{1,64})"')  # no program can use the kernel's


def writer(line: str, *, wraps: int = MAX_WRAPS) -> str:
    """KERNEL, PROGRAM, or "" if the line does not tell. ``wraps``: so many collectors may have added something."""
    words = _WORDS.search(line)
    before = line[: words.start()] if words is not None else line
    if line.startswith("{") and (field := _OBJECT.match(before)):
        if not {"kern", "kernel", "0"}.issuperset(_FACILITIES.findall(line)):
            return PROGRAM
        if named := set(_WRITERS.findall(line)) or set(_TAGS.findall(line)) - _COLLECTORS:
            return KERNEL if named == {KERNEL} else PROGRAM
        return _unless_program(line[field.end() :].removeprefix(" "), wraps=wraps)  # rsyslog's msg begins with one
    if container := _CONTAINER.match(line):
        return _unless_program(line[container.end() :], wraps=wraps)
    if words is not None:
        return KERNEL if _FORMS.fullmatch(before) else PROGRAM
    form = re.match(rf"(?:<[0-7]>)?(?:{_HEADER}|{_RING} )", line)
    return KERNEL if form is not None else PROGRAM if re.match(rf"(?:<[0-9]{{1,3}}>)?{_STAMP} ", line) else ""


def _unless_program(line: str, *, wraps: int) -> str:
    """What a collector passes on may be anybody's, even where it looks like the kernel's."""
    return PROGRAM if not wraps or writer(line, wraps=wraps - 1) == PROGRAM else ""


def uptime(line: str) -> timedelta | None:
    """How long the kernel had run when it printed the line, to the microsecond; None if the line does not say."""
    words = _WORDS.search(line)
    stamp = _UPTIME.search(line, 0, words.start()) if words is not None else None
    if stamp is None:
        return None
    seconds, fraction, micro = stamp.groups()
    return timedelta(microseconds=int(micro or seconds + fraction.ljust(6, "0")[:6]))


def printed_at(line: str) -> datetime | None:
    """The time that a system log printed before the line, with its zone (RFC 3339); None without one."""
    found = _PRINTED.match(line)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[1])
    except ValueError:
        return None


def latest_at(line: str, *, read_at: datetime) -> datetime | None:
    """The latest time at which a line was printed that has its time without a zone; None without one.

    By it an old line that a collector reads again is distinguished from a new one. The year may be missing, too.
    """
    found = _LOCAL.match(line)
    if found is None:
        return None
    year = found["year"] or found["year_behind"] or ""
    for one in (year,) if year or found["date"] else (str(read_at.year), str(read_at.year - 1)):
        date = found["date"] or f"{one}-{_month(found['month']):02}-{int(found['day']):02}"
        try:
            at = datetime.fromisoformat(f"{date}T{found['clock']}+00:00")
            latest = at + _WEST
        except (ValueError, OverflowError):
            continue
        if year or found["date"] or at <= read_at + _EAST:
            return latest
    return None


def _month(name: str) -> int:
    """The number of a month; 0, which no date has, of a name in another language."""
    number = name.strip()
    if number.isdigit():
        return int(number)
    return _MONTHS.index(name.lower()) + 1 if name.lower() in _MONTHS else 0


def header(line: str) -> str:
    """What a system log or dmesg put before the kernel's words, if it has a time of the calendar; "" otherwise."""
    words = _WORDS.search(line)
    before = line[: words.start()] if words is not None else ""
    return before if _PRINTED.match(before) or _LOCAL.match(before) else ""


def words_of(line: str) -> str:
    """The driver's words without what precedes them; the line itself if it has none."""
    words = _WORDS.search(line)
    return line[words.start() :] if words is not None else line


def is_of_kernel(line: str) -> bool:
    """Return whether the line has the kernel's tag or its own form, so that nobody else is known to have written it."""
    return writer(line) == KERNEL


def is_quoted(text: str) -> bool:
    """Return whether the driver's words stand inside another message of the kernel, after something else.

    The kernel itself prints what a user chose: the name of a file, of a device, of a process.
    """
    words = _WORDS.search(text)
    return words is not None and re.fullmatch(rf"(?:{_RING} ?)?", text[: words.start()]) is None


def is_of_program(line: str) -> bool:
    """Return whether a program has written the line: what precedes the driver's words is not the kernel's."""
    return writer(line) == PROGRAM
