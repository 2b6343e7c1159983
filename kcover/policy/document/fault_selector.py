"""The faults that a rule selects: KCE's ``errorCode``, and the portal's ``match``."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kcover.faults import fault
from kcover.policy.document.model import Minimum, Path
from kcover.policy.document.problem_collector import ProblemCollector, did_you_mean
from kcover.quote import short_repr, short_text

CODE = re.compile(r"0|[1-9][0-9]{0,9}")
MATCH = ("sxid", "checks", "kinds", "minCount", "within")
MAX_MIN_COUNT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSelector:
    """The part of a rule that selects faults."""

    codes: tuple[str, ...] | None = None
    sxids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    minimum: Minimum | None = None


def read(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> FaultSelector:
    """Parses ``errorCode`` and ``match`` of a rule; ``at`` is the path of the rule."""
    codes = _codes(rule.get("errorCode"), (*at, "errorCode"), problems)
    content, where = rule.get("match"), (*at, "match")
    if content is None:
        return FaultSelector(codes=codes)
    if not isinstance(content, dict) or not content:
        problems.add(where, f"match must be a mapping with at least one of {', '.join(MATCH)}")
        content = {}
    problems.check_keys(content, MATCH, where)
    kinds = _strings(content, "kinds", _kind_error, where, problems)
    sxids = _strings(content, "sxid", _sxid_error, where, problems)
    checks = _strings(content, "checks", _check_error, where, problems)
    for kind, selected, key in (("xid", codes, "errorCode"), ("sxid", sxids, "sxid"), ("check", checks, "checks")):
        if kind in kinds and selected:
            message = f"{key} selects some faults of kind {kind}, but kinds selects all of them: remove one of the two"
            problems.add((*where, "kinds", kinds.index(kind)), message)
    return FaultSelector(
        codes=codes, sxids=sxids, checks=checks, kinds=kinds, minimum=_minimum(content, where, problems)
    )


def _codes(value: object, at: Path, problems: ProblemCollector) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        problems.add(at, 'errorCode must be a list of strings, ["62"] for example; leave it out for any code')
        return None
    codes = []
    for index, code in enumerate(value):
        if not isinstance(code, str) or not CODE.fullmatch(code):
            written = (
                f'"{short_text(code)}"' if isinstance(code, int) and not isinstance(code, bool) else '"62" for example'
            )
            problems.add((*at, index), f"an error code is a string of digits: write {written}, not {short_repr(code)}")
        else:
            codes.append(code)
    return tuple(codes)


def _strings(
    content: dict[Any, Any], key: str, error: Callable[[object], str | None], at: Path, problems: ProblemCollector
) -> tuple[str, ...]:
    """A list of unique strings; ``error`` returns the problem of a string, or None."""
    if key not in content:
        return ()
    value = content[key]
    if not isinstance(value, list) or not value:
        problems.add((*at, key), f"{key} must be a list with at least one entry: add one, or remove {key}")
        return ()
    strings: list[str] = []
    for index, item in enumerate(value):
        message = error(item)
        if message is None and item in strings:
            message = f"{short_text(item)} appears twice"
        if message is not None:
            problems.add((*at, key, index), message)
        strings.append(str(item))
    return tuple(strings)


def _kind_error(value: object) -> str | None:
    if value in fault.KINDS:
        return None
    return f"unknown kind {short_repr(value)}: use one of {', '.join(fault.KINDS)}{did_you_mean(value, fault.KINDS)}"


def _sxid_error(value: object) -> str | None:
    if isinstance(value, str) and CODE.fullmatch(value):
        return None
    written = (
        f'"{short_text(value)}"' if isinstance(value, int) and not isinstance(value, bool) else '"12028" for example'
    )
    return f"an SXid code is a string of digits: write {written}, not {short_repr(value)}"


def _check_error(value: object) -> str | None:
    if isinstance(value, str) and fault.CODE_WORD.fullmatch(value):
        return None
    return f'{short_repr(value)} is not a check name: write "remapped" for example'


def _minimum(content: dict[Any, Any], at: Path, problems: ProblemCollector) -> Minimum | None:
    if "minCount" not in content and "within" not in content:
        return None
    for key, other, example in (("minCount", "within", '"1h"'), ("within", "minCount", "3")):
        if key in content and other not in content:
            problems.add((*at, key), f"{key} needs {other}: write {other}: {example} beside it, for example")
            return None
    count, within = content["minCount"], problems.duration("within", content["within"], (*at, "within"))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_MIN_COUNT:
        problems.add(
            (*at, "minCount"), f"minCount must be a whole number from 1 to {MAX_MIN_COUNT}, not {short_repr(count)}"
        )
        return None
    return Minimum(count=count, within=within)
