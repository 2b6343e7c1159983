"""Which rule a fault on a node meets: the highest priority wins, and only that rule runs (KCE help page).

Equal priority: the oldest policy, then the order of rules (semantics section 4).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kcover import catalog, fault, reasons, waits
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
    seen_within: Mapping[int, int] | None = None,
) -> tuple[Candidate | None, tuple[Tried, ...]]:
    """The rule that runs, if any, and every rule that was asked up to it.

    ``fatal`` is the log line's own word. ``seen_within`` tells how often this fault was seen on this device in the last
    so many seconds, for each window in ``windows``; a window that is missing counts as the one sighting at hand.
    """
    tried: list[Tried] = []
    for candidate in rank(candidates):
        refusal = fault_refusal(candidate.rule, kind=kind, code=code, cause=cause, fatal=fatal)
        refusal = refusal or label_refusal(candidate.rule, labels)
        refusal = refusal or _count_refusal(candidate.rule, seen_within or {})
        tried.append(Tried(candidate.name, refusal is None, refusal or reasons.of("code_and_labels_match")))
        if refusal is None:
            return candidate, tuple(tried)
    return None, tuple(tried)


def windows(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    """The windows, in seconds, within which some rule wants a fault to have been seen a number of times."""
    rules = (candidate.rule for candidate in candidates)
    return tuple(sorted({int(rule.minimum.within.total_seconds()) for rule in rules if rule.minimum is not None}))


def fault_refusal(
    rule: document.Rule, *, kind: str, code: str, cause: int | None = None, fatal: bool | None = None
) -> reasons.Reason | None:
    """Why the rule does not mean this fault, or None when it does.

    What a rule names is enough, whoever caused it; where it names a kind, or nothing at all, a fault must be one of the
    node.
    """
    listed = {"xid": rule.codes or (), "sxid": rule.sxids, "check": rule.checks}
    if code in listed.get(kind, ()):
        return None
    if kind not in rule.kinds and not (rule.any_fault and kind in fault.NUMERIC_KINDS):
        return _not_named(rule, kind=kind, code=code)
    if kind not in fault.NUMERIC_KINDS:
        return None
    if catalog.is_program_fault(kind, int(code), cause=cause, fatal=fatal):
        return reasons.of("program_fault", kind=kind, code=code)
    if catalog.describe(kind, int(code)) is None:
        return reasons.of("not_catalogued", kind=kind, code=code)
    return None


def _not_named(rule: document.Rule, *, kind: str, code: str) -> reasons.Reason:
    """What the rule names instead."""
    if rule.any_fault:
        return reasons.of("means_xids", kind=kind)
    if rule.codes and not (rule.sxids or rule.checks or rule.kinds):
        if kind != "xid":
            return reasons.of("lists_xids", kind=kind)
        return reasons.of("lists_others", listed=", ".join(rule.codes), code=code)
    named = [f"xid {one}" for one in rule.codes or ()]
    named += [f"sxid {one}" for one in rule.sxids] + [f"check {one}" for one in rule.checks]
    named += [f"{one} *" for one in rule.kinds]
    return reasons.of("names_others", named=", ".join(named), kind=kind, code=code)


def _count_refusal(rule: document.Rule, seen_within: Mapping[int, int]) -> reasons.Reason | None:
    if rule.minimum is None:
        return None
    seen = seen_within.get(int(rule.minimum.within.total_seconds()), 1)
    if seen >= rule.minimum.count:
        return None
    within = waits.render(rule.minimum.within)
    return reasons.of("seen_too_seldom", wanted=rule.minimum.count, within=within, seen=seen)


def label_refusal(rule: document.Rule, labels: Mapping[str, str]) -> reasons.Reason | None:
    """Why the rule does not select a node with these labels, or None when it does."""
    if not rule.labels:
        return None
    hits = [labels.get(key) == value for key, value in rule.labels.items()]
    wanted = ", ".join(f"{key}={value}" for key, value in rule.labels.items())
    if rule.operator == "any":
        return None if any(hits) else reasons.of("no_label", labels=wanted)
    return None if all(hits) else reasons.of("not_all_labels", labels=wanted)
