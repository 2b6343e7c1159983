"""Which rule a fault on a node meets: the highest priority wins, and only that rule runs (KCE help page).

Equal priority: the oldest policy, then the order of rules (semantics section 4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kcover import catalog, reasons
from kcover.policy import document


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rule in force, with where it comes from."""

    policy: str
    revision: int
    created_at: datetime
    rule: document.Rule

    @property
    def name(self) -> str:
        """How people name the rule: policy and its place in it, counted from 1."""
        return f"{self.policy}#{self.rule.index + 1}"


@dataclass(frozen=True, slots=True)
class Tried:
    """One rule held against the fault, and why it did or did not match."""

    rule: str
    matched: bool
    because: reasons.Reason


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates in the order in which they are asked."""
    return sorted(candidates, key=lambda c: (-c.rule.priority, c.created_at, c.policy, c.rule.index))


def match(
    candidates: Iterable[Candidate],
    *,
    kind: str,
    code: str,
    cause: int | None,
    labels: Mapping[str, str],
    fatal: bool | None = None,
) -> tuple[Candidate | None, tuple[Tried, ...]]:
    """The rule that runs, if any, and every rule that was asked up to it. ``fatal`` is the log line's own word."""
    tried: list[Tried] = []
    for candidate in rank(candidates):
        refusal = _code_refusal(candidate.rule, kind=kind, code=code, cause=cause, fatal=fatal)
        refusal = refusal or _label_refusal(candidate.rule, labels)
        tried.append(Tried(candidate.name, refusal is None, refusal or reasons.of("code_and_labels_match")))
        if refusal is None:
            return candidate, tuple(tried)
    return None, tuple(tried)


def _code_refusal(
    rule: document.Rule, *, kind: str, code: str, cause: int | None, fatal: bool | None
) -> reasons.Reason | None:
    if rule.codes is not None:
        if kind != "xid":
            return reasons.of("lists_xids", kind=kind)
        return None if code in rule.codes else reasons.of("lists_others", listed=", ".join(rule.codes), code=code)
    if kind not in ("xid", "sxid"):
        return reasons.of("means_xids", kind=kind)
    if catalog.is_program_fault(kind, int(code), cause=cause, fatal=fatal):
        return reasons.of("program_fault", kind=kind, code=code)
    if catalog.describe(kind, int(code)) is None:
        return reasons.of("not_catalogued", kind=kind, code=code)
    return None


def _label_refusal(rule: document.Rule, labels: Mapping[str, str]) -> reasons.Reason | None:
    if not rule.labels:
        return None
    hits = [labels.get(key) == value for key, value in rule.labels.items()]
    wanted = ", ".join(f"{key}={value}" for key, value in rule.labels.items())
    if rule.operator == "any":
        return None if any(hits) else reasons.of("no_label", labels=wanted)
    return None if all(hits) else reasons.of("not_all_labels", labels=wanted)
