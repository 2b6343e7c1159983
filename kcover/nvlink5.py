"""The sub-code in an NVLink 5 line: Xid 144 to 150 mean anything from nothing to a lost GPU, and the line says which.

``149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 ...)``: the unit, how bad the driver finds it,
whether it crossed containment, whether it was injected, the link, then words of registers. The first word holds the
sub-code, the second is the error status; ``data/nvlink5.json`` knows what many of their combinations ask for.
Sources: NVIDIA's Xid catalogue; line forms from the open drivers.
"""

import functools
import importlib.resources
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kcover.xid import Sighting

CODES = range(144, 151)

_EVENT = re.compile(
    r"(?:^|, )(?P<unit>[A-Z0-9_]{1,40}) +(?P<word>Fatal|Nonfatal) +XC ?(?P<crossed>[01]) i ?(?P<injected>[0-9]{1,3}) "
    r"Link (?P<link>-?[0-9]{1,4}) [(\[](?P<words>0x[0-9A-Fa-f]{1,8}(?: 0x[0-9A-Fa-f]{1,8}){0,5})[)\]]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What an NVLink 5 line says.

    ``link`` is None where no link is meant (printed as -1). ``fatal`` is the table's verdict where it has one, else the
    printed word (``printed_fatal``); ``action`` and ``investigation`` are "" where it has none.
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
class _Rule:
    fatal: bool
    action: str
    investigation: str


def fatal(sighting: Sighting | None) -> bool | None:
    """How bad a line says its fault is: an SXid's printed word, an NVLink 5 event's verdict; None: it says nothing."""
    if sighting is None:
        return None
    event = decode(sighting)
    return sighting.fatal if event is None else event.fatal


def decode(sighting: Sighting) -> Event | None:
    """What an Xid 144 to 150 says in detail; None for other codes and for lines without the words."""
    if sighting.kind != "xid" or sighting.code not in CODES:
        return None
    match = _EVENT.search(sighting.text)
    if match is None:
        return None
    words = tuple(int(word, 16) for word in match["words"].split())
    subcode, status = words[0] >> 20 & 0x3F, words[1] if len(words) > 1 else 0
    printed = match["word"] == "Fatal"
    rule = _rules().get((sighting.code, match["unit"], subcode, status), _Rule(printed, "", ""))
    link = int(match["link"])
    return Event(
        code=sighting.code,
        unit=match["unit"],
        subcode=subcode,
        error_status=status,
        printed_fatal=printed,
        fatal=rule.fatal,
        link=link if link >= 0 else None,
        crossed=match["crossed"] == "1",
        injected=int(match["injected"]) != 0,
        words=words,
        action=rule.action,
        investigation=rule.investigation,
    )


@functools.cache
def _rules() -> Mapping[tuple[int, str, int, int], _Rule]:
    content = json.loads(importlib.resources.files("kcover").joinpath("data", "nvlink5.json").read_text("utf-8"))
    return {
        (row["code"], unit, row["subcode"], row["error_status"]): _Rule(
            row["fatal"], row["action"], row["investigation"]
        )
        for row in content["rows"]
        for unit in row["units"]
    }
