"""The faults that a rule selects: KCE's ``errorCode``, and the portal's ``match``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kcover import reasons
from kcover.faults import fault
from kcover.policy.document.model import Minimum, Path, Problem
from kcover.policy.document.problem_collector import ProblemCollector, did_you_mean
from kcover.reasons import Reason, Value
from kcover.values.quote import short_repr, short_text

CODE = re.compile(r"0|[1-9][0-9]{0,9}")
MATCH = ("sxid", "checks", "codes", "kinds", "applicationFaults", "minCount", "within")
NAMED_KINDS = (*fault.PHRASED_KINDS, "preflight", "agent", "other")  # whose codes ``match.codes`` lists
MAX_MIN_COUNT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSelector:
    """The part of a rule that selects faults."""

    codes: tuple[str, ...] | None = None
    sxids: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    application_faults: bool = True
    minimum: Minimum | None = None


def read(rule: dict[Any, Any], at: Path, problems: ProblemCollector) -> FaultSelector:
    """Parses ``errorCode`` and ``match`` of a rule; ``at`` is the path of the rule."""
    codes = _codes(rule.get("errorCode"), (*at, "errorCode"), problems)
    content, where = rule.get("match"), (*at, "match")
    if content is None:
        return FaultSelector(codes=codes)
    if not isinstance(content, dict) or not content:
        problems.add(where, "match_type", known=", ".join(MATCH))
        content = {}
    problems.check_keys(content, MATCH, where)
    kinds = _strings(content, "kinds", _kind_error, where, problems)
    sxids = _strings(content, "sxid", _sxid_error, where, problems)
    checks = _strings(content, "checks", _check_error, where, problems)
    phrases = _phrases(content, where, problems)
    # A kind that stands beside its codes selects these codes only.
    listed = {"xid": codes, "sxid": sxids, "check": checks, **phrases}
    kinds = tuple(kind for kind in kinds if not listed.get(kind))
    return FaultSelector(
        codes=codes,
        sxids=sxids,
        checks=checks,
        phrases=phrases,
        kinds=kinds,
        application_faults=_application_faults(content, where, problems),
        minimum=_minimum(content, where, problems),
    )


def _codes(value: object, at: Path, problems: ProblemCollector) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        problems.add(at, "codes_type")
        return None
    codes = []
    for index, code in enumerate(value):
        if not isinstance(code, str) or not CODE.fullmatch(code):
            instead = _digits(code, example="62")
            problems.add((*at, index), "code_invalid", instead=instead, value=short_repr(code))
        else:
            codes.append(code)
    return tuple(codes)


def _strings(
    content: dict[Any, Any], key: str, error: Callable[[object], Reason | None], at: Path, problems: ProblemCollector
) -> tuple[str, ...]:
    """A list of unique strings; ``error`` returns the problem of a string, or None."""
    if key not in content:
        return ()
    value = content[key]
    if not isinstance(value, list) or not value:
        problems.add((*at, key), "list_empty", key=key)
        return ()
    strings: list[str] = []
    for index, item in enumerate(value):
        wrong = error(item)
        if wrong is None and item in strings:
            wrong = reasons.of("listed_twice", name=short_text(item))
        if wrong is not None:
            problems.found.append(Problem((*at, key, index), wrong))
        strings.append(str(item))
    return tuple(strings)


def _phrases(content: dict[Any, Any], at: Path, problems: ProblemCollector) -> dict[str, tuple[str, ...]]:
    """The codes of other systems by kind: ``{event: [XidError]}``."""
    value, where = content.get("codes"), (*at, "codes")
    if "codes" not in content:
        return {}
    if not isinstance(value, dict) or not value:
        problems.add(where, "match_codes_type", known=", ".join(NAMED_KINDS))
        return {}
    problems.check_keys(value, NAMED_KINDS, where)
    return {kind: _strings(value, kind, _phrase_error(kind), where, problems) for kind in NAMED_KINDS if kind in value}


def _phrase_error(kind: str) -> Callable[[object], Reason | None]:
    form = fault.CODE_PHRASE if kind in fault.PHRASED_KINDS else fault.CODE_WORD

    def error(value: object) -> Reason | None:
        if isinstance(value, str) and form.fullmatch(value):
            return None
        return reasons.of("match_code_invalid", code=short_repr(value), kind=kind, form=form.pattern)

    return error


def _kind_error(value: object) -> Reason | None:
    if value in fault.INCIDENT_KINDS:
        return None
    known, hint = ", ".join(fault.INCIDENT_KINDS), did_you_mean(value, fault.INCIDENT_KINDS)
    return reasons.of("fault_kind_unknown", kind=short_repr(value), known=known, hint=hint)


def _sxid_error(value: object) -> Reason | None:
    if isinstance(value, str) and CODE.fullmatch(value):
        return None
    return reasons.of("sxid_invalid", instead=_digits(value, example="12028"), value=short_repr(value))


def _digits(value: object, *, example: str) -> Value:
    """The text to write instead of a value that is not a string of digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return reasons.of("quoted", text=short_text(value))
    return reasons.of("quoted_example", text=example)


def _check_error(value: object) -> Reason | None:
    if isinstance(value, str) and fault.CODE_WORD.fullmatch(value):
        return None
    return reasons.of("check_name_invalid", name=short_repr(value))


def _application_faults(content: dict[Any, Any], at: Path, problems: ProblemCollector) -> bool:
    """Returns whether ``kinds`` select application faults too, which is the default."""
    if "applicationFaults" not in content:
        return True
    value, where = content["applicationFaults"], (*at, "applicationFaults")
    if not isinstance(value, bool):
        problems.add(where, "match_application_faults", value=short_repr(value))
    elif "kinds" not in content:
        problems.add(where, "match_companion", key="applicationFaults", other="kinds", example='["other"]')
    return value is not False


def _minimum(content: dict[Any, Any], at: Path, problems: ProblemCollector) -> Minimum | None:
    if "minCount" not in content and "within" not in content:
        return None
    for key, other, example in (("minCount", "within", '"1h"'), ("within", "minCount", "3")):
        if key in content and other not in content:
            problems.add((*at, key), "match_companion", key=key, other=other, example=example)
            return None
    count, within = content["minCount"], problems.duration("within", content["within"], (*at, "within"))
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_MIN_COUNT:
        problems.add((*at, "minCount"), "min_count_invalid", most=MAX_MIN_COUNT, value=short_repr(count))
        return None
    return Minimum(count=count, within=within)
