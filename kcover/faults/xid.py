"""Parse Xid and SXid lines of a kernel log, whatever prefix a logger added.

Three families of lines are faults. Every line of a family contains the same literal:

- ``NVRM: Xid (ADDR): CODE, ...`` where ADDR is ``0000:03:00``, ``PCI:0000:4e:00``, ``PCI:0000:4e:00.0`` or
  ``PCI:0000:4e:00 GPU-I:05 GPU-CI:02`` (MIG); the comma and what follows may be missing, and so may the address;
- ``nvidia-nvswitchN: SXid (PCI:dddd:bb:dd.f): CODE, ...``;
- ``NVRM: ... fallen off the bus``, a line without a code, which is Xid 79.

One SXid is printed as up to three lines (the fault, ``Severity ...``, ``Data {...}``) and a lost GPU as two. Each line
is parsed as a fault of its own, because the ring buffer may have lost the others. The lines share (kind, code, ``slot``
of the address): group them by that. Only the line that prints the severity has ``fatal`` set.

A process name is up to 15 arbitrary bytes, so it may itself look like a fault: the leftmost family on a line wins.
Sources: NVIDIA's open kernel modules (print statements), gpud's and konduktor's patterns.
"""

import mmap
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kcover.faults import log_scan

MAX_CODE = 2**31 - 1  # codes of the driver are int32: a longer number is not a code
OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154

_HEX_ADDRESS = r"(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{2,4}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_CODE = (
    r"(?: {1,8}\((?P<address>[^()\n]{0,100})\))?: {0,8}(?P<code>[0-9]++)(?=[,;:\s\"\\]|\.?$)[,;:.]?[ \t]*"
    r"(?P<text>[^\r\n]*)"
)
_XID = re.compile("NVRM: Xid" + _CODE)
_SXID = re.compile("SXid" + _CODE)
_OFF_THE_BUS = re.compile(r"NVRM: (?P<text>(?P<device>[^\r\n]{0,200}?)fallen off the bus[^\r\n]*)")
_LOST_DEVICE = re.compile(rf"NVRM: The NVIDIA GPU ({_HEX_ADDRESS})\b")  # first of the three lines of older drivers
_ADDRESS = re.compile(rf"(?:PCI:)?(?P<pci>{_HEX_ADDRESS})(?: (?P<mig>GPU-[^\n]+))?", re.IGNORECASE)
_BARE_ADDRESS = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?")
_SLOT = re.compile(r"(?:0*([0-9a-f]{1,8}):)?([0-9a-f]{2,4}:[0-9a-f]{2})(?:\.[0-7])?")
_PID = re.compile(r"pid='?(?:<unknown>|(?P<pid>[0-9]{1,10}))'?(?:, +|,?$)")
_SEVERITY = re.compile(
    r"(?P<word>Non-?fatal|Non-?f[atl]{0,4}(?=$)|Fatal|Correctable)(?: error)?(?:,|$)"  # a line may be cut in the word
    r"(?: +Link +(?P<link>[0-9]{1,4})(?![0-9]))?",
    re.IGNORECASE,
)
_COMPANION = re.compile(r"Severity [0-9]|Data \{")
_CAUSE = re.compile(r"caused by previous Xid ([0-9]++)")
_NEW_ACTION = re.compile(r"recovery action changed from [^\n]{1,60}? to 0x([0-9A-Fa-f]{1,4})(?![0-9A-Fa-f])")
_IN_QUOTES = re.compile(r'(?:[^"\\]|\\.)*')
_ESCAPES = re.compile(r"(?:\\x[0-9A-Fa-f]{2})+")
_MAX_NAME_BYTES = 15  # TASK_COMM_LEN less its NUL
# How messages of the driver begin. A name may contain ", " too; the first words of the message mark its end.
_MESSAGE_START = re.compile(
    r"(?:Ch [0-9A-Fa-f]|Channel |GPU |Graphics |MMU |Row |Dynamic |An |DBE |Contained|Uncontained|Reset|Preemptive |"
    r"NVLink|Timeout |GSP |Class |Unrecover|High |Error |[A-Z]{2,}[0-9A-Z_]* |[0-9A-Fa-f]{8}\b|0x)"
)

# Every fault line contains one of them.
NEEDLES = (re.compile(rb"NVRM: Xid"), re.compile(rb"SXid"), re.compile(rb"fallen off the bus"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLine:
    """One parsed fault line; every value was printed on the line.

    ``pci`` is lower case, without ``PCI:`` and MIG part; ``mig`` is that part (``GPU-I:05 GPU-CI:02``). In ``process``,
    the kernel's ``\\xNN`` escapes are decoded if they spell text. ``fatal`` is the severity of an SXid line (``Fatal``
    true, ``Non-fatal`` and ``Correctable`` false), None on any other. ``cause`` is N of ``caused by previous Xid N``.
    ``text`` is the text after the code, including the process part; ``line`` is the whole line.
    """

    kind: str
    code: int
    pci: str | None = None
    pid: int | None = None
    process: str | None = None
    fatal: bool | None = None
    link: int | None = None
    mig: str | None = None
    cause: int | None = None
    text: str = ""
    line: str = ""


def parse_line(line: str) -> FaultLine | None:
    """The fault that a log line reports, or None. Never raises."""
    if "Xid" in line:
        matches = [match for match in (_XID.search(line), _SXID.search(line)) if match]
        if matches:
            match = min(matches, key=re.Match.start)
            return _xid(match, line) if match.re is _XID else _sxid(match, line)
    if "fallen off the bus" in line and (lost := _OFF_THE_BUS.search(line)):
        device = _BARE_ADDRESS.search(lost["device"])
        pci = device[0].lower() if device else None
        return FaultLine(kind="xid", code=OFF_THE_BUS, pci=pci, text=lost["text"], line=line.rstrip("\r\n"))
    return None


def parse_lines(lines: Iterable[str]) -> Iterator[FaultLine]:
    """The faults of a log, in order. Lazy, so that a followed log can be passed in.

    Older drivers print a lost GPU as three lines, with the address on the first: the address is taken from there.
    """
    previous: deque[str] = deque(maxlen=2)
    for line in lines:
        fault = parse_line(line)
        if fault is not None:
            yield _with_address(fault, previous)
        previous.append(line)


def scan(data: bytes | mmap.mmap) -> Iterator[FaultLine]:
    """The faults of a saved log, in order."""
    for start, end in log_scan.find_lines(data, NEEDLES):
        fault = parse_at(data, start, end)
        if fault is not None:
            yield fault


def parse_at(data: bytes | mmap.mmap, start: int, end: int) -> FaultLine | None:
    """The fault on the line between two offsets of a saved log, or None."""
    fault = parse_line(log_scan.decode_line(data[start:end]))
    if fault is None:
        return None
    return _with_address(fault, log_scan.decode_line(data[max(0, start - 512) : start]).splitlines()[-2:])


def cause_of(message: str) -> int | None:
    """N of ``caused by previous Xid N``, which the driver appends to the Xid 45 of unaffected channels."""
    causes = _CAUSE.findall(message)
    return _code(causes[-1]) if causes else None


def recovery_action(message: str) -> int | None:
    """The recovery action of an Xid 154 line: 0 none, 1 GPU reset, 2 node reboot, 3 drain peer-to-peer, 4 drain and
    reset. 0 is an all-clear, not a fault."""
    match = _NEW_ACTION.search(message)
    return int(match[1], 16) if match else None


def is_all_clear(code: int | str, message: str) -> bool:
    """Return whether this Xid clears a fault: 154 without a recovery action."""
    return code == RECOVERY_ACTION_CHANGED and recovery_action(message) == 0


def is_companion(line: FaultLine) -> bool:
    """Return whether the line only adds to a fault of another line: the second and third line of an SXid, the plain
    line after an Xid 79."""
    if line.kind == "sxid":
        return _COMPANION.match(line.text) is not None
    return line.code == OFF_THE_BUS and "Xid" not in line.line


def slot(pci: str | None) -> str | None:
    """The address as ``dddd:bb:dd``, lower case. This key joins ``0000:4e:00`` and ``0000:4e:00.0`` of the kernel log
    with ``00000000:4E:00.0`` of NVML. None for anything that is not an address."""
    match = _SLOT.fullmatch(pci.lower()) if pci else None
    if match is None:
        return None
    return f"{match[1] or '':0>4}:{match[2]}"


def _xid(match: re.Match[str], line: str) -> FaultLine | None:
    code = _code(match["code"])
    if code is None:
        return None
    text = _text(match["text"], line)
    pci, mig = _address(match["address"])
    pid, process = _process(text)
    cause = cause_of(text)
    line = line.rstrip("\r\n")
    return FaultLine(
        kind="xid", code=code, pci=pci, pid=pid, process=process, mig=mig, cause=cause, text=text, line=line
    )


def _sxid(match: re.Match[str], line: str) -> FaultLine | None:
    code = _code(match["code"])
    if code is None:
        return None
    text = _text(match["text"], line)
    pci, _ = _address(match["address"])
    fatal = link = None
    if severity := _SEVERITY.match(text):
        fatal = severity["word"].lower() == "fatal"
        link = int(severity["link"]) if severity["link"] else None
    return FaultLine(kind="sxid", code=code, pci=pci, fatal=fatal, link=link, text=text, line=line.rstrip("\r\n"))


def _text(printed: str, line: str) -> str:
    """The text as the driver printed it. In a line of JSON, it ends with its string, not with the line."""
    if line.startswith("{") and (quoted := _IN_QUOTES.match(printed)):
        printed = quoted[0].removesuffix("\\n")
    return printed.rstrip()


def _code(digits: str) -> int | None:
    if len(digits) > 10:
        return None
    code = int(digits)
    return code if code <= MAX_CODE else None


def _address(printed: str | None) -> tuple[str | None, str | None]:
    match = _ADDRESS.fullmatch(printed.strip()) if printed else None
    return (match["pci"].lower(), match["mig"]) if match else (None, None)


def _process(text: str) -> tuple[int | None, str | None]:
    pid = None
    if match := _PID.match(text):
        pid = int(match["pid"]) if match["pid"] else None
        text = text[match.end() :]
    if not text.startswith("name="):
        return pid, None
    name = _process_name(text[len("name=") :])
    if name in ("", "<unknown>", "'<unknown>'"):
        return pid, None
    return pid, _ESCAPES.sub(_unescape, name)


def _process_name(text: str) -> str:
    """The name at the start of ``name, message``. It ends at the first ", " before a known message and within 15 bytes;
    without a known message, at the first ", "."""
    first = cut = text.find(", ")
    while cut >= 0 and _width(text[:cut]) <= _MAX_NAME_BYTES:
        if _MESSAGE_START.match(text[cut + 2 :].lstrip(" ")):
            return text[:cut]
        cut = text.find(", ", cut + 1)
    return text[:first] if first >= 0 else text.removesuffix(",")


def _width(name: str) -> int:
    return len(_ESCAPES.sub(lambda run: "?" * (len(run[0]) // 4), name).encode(errors="replace"))


def _unescape(run: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(run[0].replace("\\x", "")).decode()
    except UnicodeDecodeError:
        return run[0]
    return text if text.isprintable() else run[0]


def _with_address(fault: FaultLine, previous: Iterable[str]) -> FaultLine:
    if fault.code != OFF_THE_BUS or fault.pci or "Xid" in fault.line:
        return fault
    match = _LOST_DEVICE.search("\n".join(previous))
    return replace(fault, pci=match[1].lower()) if match else fault
