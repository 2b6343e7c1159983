"""The meaning of Xid and SXid codes, from the project's tables ``data/xids.json`` and ``data/sxids.json``.

A code that is not in a table is treated like any other fault (severity ``warning``), but has no title.
"""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEVERITIES = ("info", "warning", "degraded", "fatal")  # weakest first

_DATA_FILES = {"xid": "xids.json", "sxid": "sxids.json"}
# Responses that do nothing to the node. A code that user programs cause is not a fault of the node if its response is
# one of these; if it needs more (109: reset), it is, whoever caused it.
_RESPONSES_WITHOUT_ACTION = ("none", "record", "record_escalate_on_repeat")
_UNKNOWN_REMEDY = (
    "Not in the catalog: read the log line, the vendor's release notes and what else the node logged at that time."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One code.

    ``immediate_action`` is NVIDIA's advice, ``node_response`` this project's proposal, and ``remedy`` the proposal as a
    sentence. ``severity`` is one of SEVERITIES, or ``varies`` if it depends on the line; ``cordon_immediately`` is
    None then. ``app_caused``: a user program can be the cause. ``harmless``, ``scope``, ``impact`` and
    ``propagates_to_xid`` are for SXids.
    """

    kind: str
    code: int
    title: str
    category: str
    immediate_action: str
    severity: str
    node_response: str
    cordon_immediately: bool | None
    remedy: str
    source: str
    mnemonic: str | None = None
    app_caused: bool = False
    harmless: bool = False
    scope: str = ""
    impact: str = ""
    propagates_to_xid: tuple[int, ...] = ()
    note: str | None = None


NVLINK5 = range(144, 151)


def xid(code: int) -> Entry | None:
    """The catalog entry of an Xid, or None."""
    return describe("xid", code)


def sxid(code: int) -> Entry | None:
    """The catalog entry of an SXid, or None."""
    return describe("sxid", code)


def describe(kind: str, code: int) -> Entry | None:
    """The catalog entry of a code; None if there is none or the kind has no catalog."""
    return entries(kind).get(code)


def describe_text(kind: str, code: str) -> Entry | None:
    """``describe`` for a code as faults have it: None also where it is no number."""
    return describe(kind, int(code)) if kind in _DATA_FILES and code.isdecimal() else None


def entries(kind: str) -> Mapping[int, Entry]:
    """All entries of a kind by code, in ascending order; empty for kinds without a catalog."""
    return _table(kind) if kind in _DATA_FILES else {}


def is_user_fault(kind: str, code: int, *, cause: int | None = None, fatal: bool | None = None) -> bool:
    """Return whether the code is not a fault of the node, so that only a rule that lists it may act on it.

    True for codes that user programs cause (13, 31, 43, 45 and the like), any Xid caused by a previous one (``cause``),
    an SXid on the harmless list and a code that is information (51, 162) unless the line says Fatal, and an NVLink 5
    event (144 to 150) that is not fatal.
    """
    if kind == "xid" and (cause is not None or (code in NVLINK5 and fatal is False)):
        return True
    entry = describe(kind, code)
    if entry is None:
        return False
    return (
        (entry.harmless and fatal is not True)
        or is_information(entry, fatal=fatal)
        or (entry.app_caused and entry.node_response in _RESPONSES_WITHOUT_ACTION)
    )


def is_information(entry: Entry, *, fatal: bool | None = None) -> bool:
    """Return whether the code says that nothing is wrong, or what was told only by drivers of long ago."""
    return entry.severity == "info" and fatal is not True


def is_hardware(kind: str, code: str, *, cause: int | None = None, fatal: bool | None = None) -> bool:
    """Return whether the fault is an Xid or SXid that the catalog knows, and that no user program causes."""
    if kind not in _DATA_FILES or describe(kind, int(code)) is None:
        return False
    return not is_user_fault(kind, int(code), cause=cause, fatal=fatal)


def severity(kind: str, code: int, *, fatal: bool | None = None) -> str:
    """One of SEVERITIES. The severity on the line (``fatal``) overrides the table: Fatal is fatal, and Non-fatal turns
    the table's fatal into a warning."""
    entry = describe(kind, code)
    listed = entry.severity if entry else "warning"
    if fatal:
        return "fatal"
    if fatal is False and listed in ("fatal", "varies"):
        return "warning"
    return "degraded" if listed == "varies" else listed


def remedy(kind: str, code: int) -> str:
    """One sentence: what operators usually do about the code."""
    entry = describe(kind, code)
    return entry.remedy if entry else _UNKNOWN_REMEDY


def texts() -> list[str]:
    """All texts that pages show, for translation: titles, notes and remedies, each once."""
    rows = [entry for kind in _DATA_FILES for entry in entries(kind).values()]
    shown = [text for entry in rows for text in (entry.title, entry.note, entry.remedy) if text]
    return list(dict.fromkeys([*shown, _UNKNOWN_REMEDY]))


@functools.cache
def _table(kind: str) -> Mapping[int, Entry]:
    content = json.loads(
        importlib.resources.files("kcover.faults").joinpath("data", _DATA_FILES[kind]).read_text("utf-8")
    )
    return {row["code"]: _entry(kind, row, content) for row in content["codes"]}


def _entry(kind: str, row: dict[str, Any], content: dict[str, Any]) -> Entry:
    related = tuple(row.pop("propagates_to_xid", ()))
    source = content["sources"][row.pop("source")]
    sentence = content["remedies"][row["node_response"]]
    return Entry(kind=kind, source=source, remedy=sentence, propagates_to_xid=related, **row)
