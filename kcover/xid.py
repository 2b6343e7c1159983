"""Reading Xid and SXid lines out of a kernel log, whatever was put in front of them.

Three families of lines are faults, each with one literal that every line of the family carries:

- ``NVRM: Xid (ADDR): CODE, ...`` where ADDR is ``0000:03:00``, ``PCI:0000:4e:00``, ``PCI:0000:4e:00.0`` or
  ``PCI:0000:4e:00 GPU-I:05 GPU-CI:02`` (MIG); the comma and what follows may be missing, and so may the address;
- ``nvidia-nvswitchN: SXid (PCI:dddd:bb:dd.f): CODE, ...``;
- ``NVRM: ... fallen off the bus``, a line without a code, which is Xid 79.

One SXid is printed as up to three lines (the fault, ``Severity ...``, ``Data {...}``) and a lost GPU as two. Each of
them is a sighting of its own, because the ring buffer may have lost the others; they share (kind, code, ``slot`` of the
address), which is what to fold them by. Only the line that carries the word has ``fatal`` set.

A process name is up to 15 bytes of anything, so it may itself look like a fault: the leftmost family on a line wins.
Sources: NVIDIA's open kernel modules (print statements), gpud's and konduktor's patterns.
"""

import mmap
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kcover import saved_log

MAX_CODE = 2**31 - 1  # the driver's codes are int32: anything longer is not a code
OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154

_HEX_ADDRESS = r"(?:[0-9A-Fa-f]{1,8}:)?[0-9A-Fa-f]{2,4}:[0-9A-Fa-f]{2}(?:\.[0-7])?"
_CODE = r"(?: \((?P<address>[^()\n]{0,100})\))?: ?(?P<code>[0-9]++)(?=[,;:\s]|\.?$)[,;:.]?[ \t]*(?P<text>[^\r\n]*)"
_XID = re.compile("NVRM: Xid" + _CODE)
_SXID = re.compile("SXid" + _CODE)
_OFF_THE_BUS = re.compile(r"NVRM: (?P<text>(?P<device>[^\r\n]{0,200}?)fallen off the bus[^\r\n]*)")
_LOST_DEVICE = re.compile(rf"NVRM: The NVIDIA GPU ({_HEX_ADDRESS})\b")  # first of the three lines of older drivers
_ADDRESS = re.compile(rf"(?:PCI:)?(?P<pci>{_HEX_ADDRESS})(?: (?P<mig>GPU-[^\n]+))?", re.IGNORECASE)
_BARE_ADDRESS = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?")
_SLOT = re.compile(r"(?:0*([0-9a-f]{1,8}):)?([0-9a-f]{2,4}:[0-9a-f]{2})(?:\.[0-7])?")
_PID = re.compile(r"pid='?(?:<unknown>|(?P<pid>[0-9]{1,10}))'?(?:, |,?$)")
_SEVERITY = re.compile(
    r"(?P<word>Non-fatal|Fatal|Correctable)(?:,|$)(?: Link (?P<link>[0-9]{1,4})(?![0-9]))?", re.IGNORECASE
)
_CAUSE = re.compile(r"caused by previous Xid ([0-9]++)")
_NEW_ACTION = re.compile(r"recovery action changed from [^\n]{1,60}? to 0x([0-9A-Fa-f]{1,4})(?![0-9A-Fa-f])")
_ESCAPES = re.compile(r"(?:\\x[0-9A-Fa-f]{2})+")
_NAME_BYTES = 15  # TASK_COMM_LEN less its NUL
# How the driver's own messages begin. A name may hold ", " too; the message's first words tell where it ends.
_OPENING = re.compile(
    r"(?:Ch [0-9A-Fa-f]|Channel |GPU |Graphics |MMU |Row |Dynamic |An |DBE |Contained|Uncontained|Reset|Preemptive |"
    r"NVLink|Timeout |GSP |Class |Unrecover|High |Error |[A-Z]{2,}[0-9A-Z_]* |[0-9A-Fa-f]{8}\b|0x)"
)

# One of them is on every line that is a fault.
NEEDLES = (re.compile(rb"NVRM: Xid"), re.compile(rb"SXid"), re.compile(rb"fallen off the bus"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One fault line, with nothing in it that was not printed.

    ``pci`` is lower case, without ``PCI:`` and MIG part; ``mig`` is that part (``GPU-I:05 GPU-CI:02``). ``process`` has
    the kernel's ``\\xNN`` escapes undone where they spell text. ``fatal`` is the word of an SXid line (``Fatal`` true,
    ``Non-fatal`` and ``Correctable`` false), None on any other. ``cause`` is N of ``caused by previous Xid N``.
    ``text`` is what follows the code, the process part included; ``line`` is all of it.
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


def parse_line(line: str) -> Sighting | None:
    """What a log line says went wrong, or None. Never raises."""
    if "Xid" in line:
        found = [match for match in (_XID.search(line), _SXID.search(line)) if match]
        if found:
            match = min(found, key=re.Match.start)
            return _xid(match, line) if match.re is _XID else _sxid(match, line)
    if "fallen off the bus" in line and (lost := _OFF_THE_BUS.search(line)):
        device = _BARE_ADDRESS.search(lost["device"])
        pci = device[0].lower() if device else None
        return Sighting(kind="xid", code=OFF_THE_BUS, pci=pci, text=lost["text"], line=line.rstrip("\r\n"))
    return None


def parse_lines(lines: Iterable[str]) -> Iterator[Sighting]:
    """The sightings of a log, in order; lazily, so that a followed log can be passed in.

    Older drivers spread the lost GPU over three lines, with the address on the first: it is taken from there.
    """
    above: deque[str] = deque(maxlen=2)
    for line in lines:
        sighting = parse_line(line)
        if sighting is not None:
            yield _located(sighting, above)
        above.append(line)


def scan(data: bytes | mmap.mmap) -> Iterator[Sighting]:
    """The sightings of a saved log, in order."""
    for start, end in saved_log.lines(data, NEEDLES):
        sighting = read_at(data, start, end)
        if sighting is not None:
            yield sighting


def read_at(data: bytes | mmap.mmap, start: int, end: int) -> Sighting | None:
    """What the line between two places of a saved log says went wrong, or None."""
    sighting = parse_line(saved_log.text(data[start:end]))
    if sighting is None:
        return None
    return _located(sighting, saved_log.text(data[max(0, start - 512) : start]).splitlines()[-2:])


def cause_of(message: str) -> int | None:
    """N of ``caused by previous Xid N``, which the driver appends to the Xid 45 of innocent channels."""
    causes = _CAUSE.findall(message)
    return _code(causes[-1]) if causes else None


def recovery_action(message: str) -> int | None:
    """The action that an Xid 154 line says the GPU now needs: 0 none, 1 GPU reset, 2 node reboot, 3 drain peer-to-peer,
    4 drain and reset. 0 is an all-clear, not a fault."""
    match = _NEW_ACTION.search(message)
    return int(match[1], 16) if match else None


def is_all_clear(code: int | str, message: str) -> bool:
    """Whether this Xid takes a fault back: 154 with no recovery action left."""
    return code == RECOVERY_ACTION_CHANGED and recovery_action(message) == 0


def slot(pci: str | None) -> str | None:
    """An address as ``dddd:bb:dd``, lower case, whatever form it had: the key that joins the kernel log's
    ``0000:4e:00`` and ``0000:4e:00.0`` with NVML's ``00000000:4E:00.0``. None for what is no address."""
    match = _SLOT.fullmatch(pci.lower()) if pci else None
    if match is None:
        return None
    return f"{match[1] or '':0>4}:{match[2]}"


def _xid(match: re.Match[str], line: str) -> Sighting | None:
    code = _code(match["code"])
    if code is None:
        return None
    text = match["text"].rstrip()
    pci, mig = _address(match["address"])
    pid, process = _process(text)
    cause = cause_of(text)
    line = line.rstrip("\r\n")
    return Sighting(
        kind="xid", code=code, pci=pci, pid=pid, process=process, mig=mig, cause=cause, text=text, line=line
    )


def _sxid(match: re.Match[str], line: str) -> Sighting | None:
    code = _code(match["code"])
    if code is None:
        return None
    text = match["text"].rstrip()
    pci, _ = _address(match["address"])
    fatal = link = None
    if severity := _SEVERITY.match(text):
        fatal = severity["word"].lower() == "fatal"
        link = int(severity["link"]) if severity["link"] else None
    return Sighting(kind="sxid", code=code, pci=pci, fatal=fatal, link=link, text=text, line=line.rstrip("\r\n"))


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
    name = _name(text[len("name=") :])
    if name in ("", "<unknown>", "'<unknown>'"):
        return pid, None
    return pid, _ESCAPES.sub(_unescape, name)


def _name(text: str) -> str:
    """The name at the head of ``name, message``: up to the first ", " that a message follows and that 15 bytes reach;
    with no message known, up to the first ", " of all."""
    first = cut = text.find(", ")
    while cut >= 0 and _width(text[:cut]) <= _NAME_BYTES:
        if _OPENING.match(text, cut + 2):
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


def _located(sighting: Sighting, above: Iterable[str]) -> Sighting:
    if sighting.code != OFF_THE_BUS or sighting.pci or "Xid" in sighting.line:
        return sighting
    match = _LOST_DEVICE.search("\n".join(above))
    return replace(sighting, pci=match[1].lower()) if match else sighting
