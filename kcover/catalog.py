"""What Xid and SXid codes mean: the project's own tables, ``data/xids.json`` and ``data/sxids.json``.

A code that is in no table is a fault like any other (severity ``warning``); it just has no title.
"""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEVERITIES = ("info", "warning", "degraded", "fatal")  # weakest first

_FILES = {"xid": "xids.json", "sxid": "sxids.json"}
# Answers to a code that leave the node alone. A program's code with one of them is no fault of the node; one that asks
# for more (109: reset) is, whoever caused it.
_NODE_LEFT_ALONE = ("none", "record", "record_escalate_on_repeat")
_UNKNOWN_REMEDY = (
    "In no catalogue: read the line, the vendor's release notes and what else the node logged at that time."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One code.

    ``immediate_action`` is NVIDIA's advice, ``node_response`` this project's proposal and ``remedy`` the same as a
    sentence. ``severity`` is one of SEVERITIES, or ``varies`` where the line decides; ``cordon_immediately`` is None
    then. ``app_caused``: a user's program can be the cause. ``harmless``, ``scope``, ``impact`` and
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


def xid(code: int) -> Fact | None:
    """What is known of an Xid, None if it is in no catalogue."""
    return describe("xid", code)


def sxid(code: int) -> Fact | None:
    """What is known of an SXid, None if it is in no catalogue."""
    return describe("sxid", code)


def describe(kind: str, code: int) -> Fact | None:
    """What is known of a code of that kind, None if nothing is or the kind has no codes."""
    return facts(kind).get(code)


def facts(kind: str) -> Mapping[int, Fact]:
    """All known codes of a kind, in ascending order; empty for kinds without codes."""
    return _table(kind) if kind in _FILES else {}


def is_program_fault(kind: str, code: int, *, cause: int | None = None, fatal: bool | None = None) -> bool:
    """Whether the code is not a fault of the node, so that only a rule which lists it may act on it.

    That is a user program's code (13, 31, 43, 45 and the like), any Xid that a previous one caused (``cause``), an SXid
    on the harmless list, unless its line says Fatal, and an NVLink 5 event (144 to 150) that is not fatal.
    """
    if kind == "xid" and (cause is not None or (code in NVLINK5 and fatal is False)):
        return True
    fact = describe(kind, code)
    if fact is None:
        return False
    return (fact.harmless and fatal is not True) or (fact.app_caused and fact.node_response in _NODE_LEFT_ALONE)


def severity(kind: str, code: int, *, fatal: bool | None = None) -> str:
    """One of SEVERITIES. The word that the line printed (``fatal``) wins over the table: Fatal is fatal, and
    Non-fatal turns the table's fatal into a warning."""
    fact = describe(kind, code)
    listed = fact.severity if fact else "warning"
    if fatal:
        return "fatal"
    if fatal is False and listed in ("fatal", "varies"):
        return "warning"
    return "degraded" if listed == "varies" else listed


def remedy(kind: str, code: int) -> str:
    """One sentence: what operators usually do about it."""
    fact = describe(kind, code)
    return fact.remedy if fact else _UNKNOWN_REMEDY


@functools.cache
def _table(kind: str) -> Mapping[int, Fact]:
    content = json.loads(importlib.resources.files("kcover").joinpath("data", _FILES[kind]).read_text("utf-8"))
    return {row["code"]: _fact(kind, row, content) for row in content["codes"]}


def _fact(kind: str, row: dict[str, Any], content: dict[str, Any]) -> Fact:
    related = tuple(row.pop("propagates_to_xid", ()))
    source = content["sources"][row.pop("source")]
    sentence = content["remedies"][row["node_response"]]
    return Fact(kind=kind, source=source, remedy=sentence, propagates_to_xid=related, **row)
