"""Which faults a rule means: KCE's ``errorCode``, and the portal's ``match`` beyond it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kcover import fault
from kcover.policy.document.notes import Notes, meant
from kcover.policy.document.values import Minimum, Path
from kcover.quoting import plain, shown

CODE = re.compile(r"0|[1-9][0-9]{0,9}")
WORD = re.compile(r"[a-z0-9_.-]{1,64}")  # as the wire format takes the code of a check
MATCH = ("sxid", "checks", "kinds", "minCount", "within")
MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The part of a rule that says which faults it means."""

    codes: tuple[str, ...] | None = None
    sxids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    minimum: Minimum | None = None


def read(rule: dict[Any, Any], at: Path, notes: Notes) -> Faults:
    """Reads ``errorCode`` and ``match`` of a rule."""
    codes = _codes(rule.get("errorCode"), (*at, "errorCode"), notes)
    content, where = rule.get("match"), (*at, "match")
    if content is None:
        return Faults(codes=codes)
    if not isinstance(content, dict) or not content:
        notes.problem(where, f"match is a mapping of what else must hold: {', '.join(MATCH)}")
        content = {}
    notes.only(content, MATCH, where)
    kinds = _words(content, "kinds", _kind, where, notes)
    sxids = _words(content, "sxid", _sxid, where, notes)
    checks = _words(content, "checks", _check, where, notes)
    for kind, listed, key in (("xid", codes, "errorCode"), ("sxid", sxids, "sxid"), ("check", checks, "checks")):
        if kind in kinds and listed:
            message = f"{key} names some faults of kind {kind}, and kinds means every one: take out one of the two"
            notes.problem((*where, "kinds", kinds.index(kind)), message)
    return Faults(codes=codes, sxids=sxids, checks=checks, kinds=kinds, minimum=_minimum(content, where, notes))


def _codes(value: object, at: Path, notes: Notes) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        notes.problem(at, 'errorCode must be a list of strings, ["62"] for example; leave it out for any code')
        return None
    codes = []
    for index, code in enumerate(value):
        if not isinstance(code, str) or not CODE.fullmatch(code):
            written = f'"{plain(code)}"' if isinstance(code, int) and not isinstance(code, bool) else '"62" for example'
            notes.problem((*at, index), f"an error code is a string of digits: write {written}, not {shown(code)}")
        else:
            codes.append(code)
    return tuple(codes)


def _words(
    content: dict[Any, Any], key: str, refusal: Callable[[object], str | None], at: Path, notes: Notes
) -> tuple[str, ...]:
    """A list of words, each of which ``refusal`` has nothing against."""
    if key not in content:
        return ()
    value = content[key]
    if not isinstance(value, list) or not value:
        notes.problem((*at, key), f"{key} must be a list with at least one entry: write it, or take {key} out")
        return ()
    words: list[str] = []
    for index, word in enumerate(value):
        message = refusal(word)
        if message is None and word in words:
            message = f"{plain(word)} is there twice"
        if message is not None:
            notes.problem((*at, key, index), message)
        words.append(str(word))
    return tuple(words)


def _kind(word: object) -> str | None:
    if word in fault.KINDS:
        return None
    return f"unknown kind {shown(word)}: use one of {', '.join(fault.KINDS)}{meant(word, fault.KINDS)}"


def _sxid(word: object) -> str | None:
    if isinstance(word, str) and CODE.fullmatch(word):
        return None
    written = f'"{plain(word)}"' if isinstance(word, int) and not isinstance(word, bool) else '"12028" for example'
    return f"an SXid code is a string of digits: write {written}, not {shown(word)}"


def _check(word: object) -> str | None:
    if isinstance(word, str) and WORD.fullmatch(word):
        return None
    return f'{shown(word)} is no name of a check: write "remapped" for example'


def _minimum(content: dict[Any, Any], at: Path, notes: Notes) -> Minimum | None:
    if "minCount" not in content and "within" not in content:
        return None
    for key, other, example in (("minCount", "within", '"1h"'), ("within", "minCount", "3")):
        if key in content and other not in content:
            notes.problem((*at, key), f"{key} needs {other}: write {other}: {example} beside it, for example")
            return None
    count, within = content["minCount"], notes.wait("within", content["within"], (*at, "within"))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        notes.problem((*at, "minCount"), f"minCount must be a whole number from 1 to {MOST}, not {shown(count)}")
        return None
    return Minimum(count=count, within=within)
