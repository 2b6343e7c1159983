"""Decode NVLink 5 lines: Xid 144 to 150 range from no problem to a lost GPU; the line has the details.

``149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 ...)``: the unit, the driver's severity, whether
the error crossed containment, whether it was injected, the link, then register words. The first word contains the
sub-code, the second is the error status. ``data/nvlink5.json`` lists the action for many combinations of these.
Sources: NVIDIA's Xid catalog; line forms of the open drivers.
"""

import functools
import importlib.resources
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kcover.faults.xid import FaultLine

CODES = range(144, 151)

_EVENT = re.compile(
    r"(?:^|, )(?P<unit>[A-Z0-9_]{1,40}) +(?P<word>Fatal|Nonfatal) +XC ?(?P<crossed>[01]) i ?(?P<injected>[0-9]{1,3}) "
    r"Link (?P<link>-?[0-9]{1,4}) [(\[](?P<words>0x[0-9A-Fa-f]{1,8}(?: 0x[0-9A-Fa-f]{1,8}){0,5})(?P<end>[)\]])?"
)
# What a line that was cut still has; the word itself may be cut, too.
_PRINTED = re.compile(
    r"(?:^|, )[A-Z0-9_]{1,40} +(?:(?P<fatal>Fatal)|Non-?(?:f(?:atal\b|[atl]{0,4}$)|$))", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvent:
    """One decoded NVLink 5 line.

    ``link`` is None if no link is affected (printed as -1). ``fatal`` is the table's verdict if there is one, else the
    printed severity (``printed_fatal``). ``action`` and ``investigation`` are "" if the table has no row.
    """

    code: int
    unit: str
    subcode: int
    error_status: int
    printed_fatal: bool
    fatal: bool
    link: int | None
    crossed: bool
    injected: bool
    words: tuple[int, ...]
    action: str = ""
    investigation: str = ""

    @property
    def name(self) -> str:
        """The event as people quote it: ``149.33 (err status 0x00000000)``."""
        return f"{self.code}.{self.subcode} (err status 0x{self.error_status:08x})"


@dataclass(frozen=True, slots=True)
class _Verdict:
    """NVIDIA's judgement of one event."""

    fatal: bool
    action: str
    investigation: str


def is_fatal(line: FaultLine | None) -> bool | None:
    """Return whether the line reports a fatal fault: the printed severity of an SXid, the verdict on an NVLink 5 event.

    A severity that is printed counts even if the rest of the line was cut. None if the line does not tell.
    """
    if line is None:
        return None
    if (event := decode(line)) is not None:
        return event.fatal
    if line.kind == "xid" and line.code in CODES and (printed := _PRINTED.search(line.text)):
        return printed["fatal"] is not None
    return line.fatal


def decode(line: FaultLine) -> LinkEvent | None:
    """The details of an Xid 144 to 150; None for other codes and for lines without whole register words."""
    if line.kind != "xid" or line.code not in CODES:
        return None
    match = _EVENT.search(line.text)
    if match is None:
        return None
    words = tuple(int(word, 16) for word in match["words"].split())
    if not match["end"]:  # the line was cut, and perhaps its last word
        words = words[:-1]
    if not words or (len(words) == 1 and not match["end"]):
        return None
    subcode, status = words[0] >> 20 & 0x3F, words[1] if len(words) > 1 else 0
    printed = match["word"] == "Fatal"
    verdict = _verdicts().get((line.code, match["unit"], subcode, status), _Verdict(printed, "", ""))
    link = int(match["link"])
    return LinkEvent(
        code=line.code,
        unit=match["unit"],
        subcode=subcode,
        error_status=status,
        printed_fatal=printed,
        fatal=verdict.fatal,
        link=link if link >= 0 else None,
        crossed=match["crossed"] == "1",
        injected=int(match["injected"]) != 0,
        words=words,
        action=verdict.action,
        investigation=verdict.investigation,
    )


def table() -> bytes:
    """NVIDIA's verdicts, by which ``is_fatal`` goes: ``data/nvlink5.json`` as it is."""
    return importlib.resources.files("kcover.faults").joinpath("data", "nvlink5.json").read_bytes()


@functools.cache
def _verdicts() -> Mapping[tuple[int, str, int, int], _Verdict]:
    content = json.loads(table())
    return {
        (row["code"], unit, row["subcode"], row["error_status"]): _Verdict(
            row["fatal"], row["action"], row["investigation"]
        )
        for row in content["rows"]
        for unit in row["units"]
    }
