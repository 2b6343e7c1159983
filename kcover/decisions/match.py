"""Find the rule that applies to a fault on a node. The rule with the highest priority wins, and only that rule runs.

Rules of equal priority are ordered by the age of their policy, then by their place in it (KCE help page). Rules that a
cluster keeps as objects come after all of the portal's own: they add rules, and replace none.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kcover import reasons
from kcover.faults import catalog, fault
from kcover.policy import document
from kcover.values import digests, durations

# Codes of reasons: the rule is about other faults, or leaves out reports of this kind.
FOR_OTHER_FAULTS: Final = frozenset({"means_xids", "lists_xids", "lists_others", "names_others"})
LEFT_OUT: Final = frozenset(
    {"program_fault", "harmless_report", "application_faults_left_out", "object_adds_node_faults_only"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rule and its origin. ``external``: an external decider gave it as its answer; no policy contains it.

    ``source``: the SHA-256 of the text of the policy's revision. ``added``: a cluster keeps the policy as an object.
    """

    policy: str
    revision: int
    created_at: datetime
    rule: document.Rule
    external: bool = False
    source: str = ""
    added: bool = False

    @property
    def name(self) -> str:
        """The policy and the rule's place in it, counted from 1: ``heal#2``."""
        return f"{self.policy}#{self.rule.index + 1}"


@dataclass(frozen=True, slots=True)
class TriedRule:
    """One rule that was compared with the fault, and why it did or did not match."""

    rule: str
    matched: bool
    because: reasons.Reason


class MatchResult(NamedTuple):
    """The rule that applies, None if no rule does, and every rule that was tried, the applying one last."""

    candidate: Candidate | None
    tried: tuple[TriedRule, ...]


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates in the order in which they are tried."""
    return sorted(candidates, key=lambda c: (c.added, -c.rule.priority, c.created_at, c.policy, c.rule.index))


def to_json(candidates: Iterable[Candidate]) -> list[dict[str, Any]]:
    """The candidates in the order in which they are tried, each rule as its document writes it."""
    return [
        {
            "policy": candidate.policy,
            "revision": candidate.revision,
            "created_at": candidate.created_at.astimezone(UTC).isoformat(),
            "index": candidate.rule.index,
            "rule": document.render_rule(candidate.rule),
            "source": candidate.source,
            **({"added": True} if candidate.added else {}),
        }
        for candidate in rank(candidates)
    ]


_digested: tuple[tuple[Candidate, ...], str] = ((), "")


def digest_of(candidates: tuple[Candidate, ...]) -> str:
    """The digest of ``to_json``. That of the last candidates is kept, because they rarely change."""
    global _digested
    if _digested[0] is not candidates or not _digested[1]:
        _digested = (candidates, digests.digest(to_json(candidates)))
    return _digested[1]


def match(
    candidates: Iterable[Candidate],
    *,
    kind: str,
    code: str,
    cause: int | None,
    labels: Mapping[str, str],
    fatal: bool | None = None,
    application: bool = False,
    harmless: bool = False,
    seen_within: Mapping[int, int] | None = None,
) -> MatchResult:
    """Compare the fault with the candidates by rank until one matches.

    ``fatal``: the severity that the log line itself printed. ``application``, ``harmless``: see ``fault_refusal``.
    ``seen_within``: occurrences of this fault on this device, by window in seconds (see ``windows``); a missing window
    counts as one occurrence. An added rule covers neither an application fault nor a fault that one of the portal's own
    rules waits to see more often.
    """
    tried: list[TriedRule] = []
    waits = ""
    for candidate in rank(candidates):
        refusal = fault_refusal(
            candidate.rule,
            kind=kind,
            code=code,
            cause=cause,
            fatal=fatal,
            application=application,
            harmless=harmless,
        )
        refusal = refusal or label_refusal(candidate.rule, labels)
        if refusal is None and candidate.added:
            told = application or harmless
            no_node_fault = _is_no_node_fault(kind=kind, code=code, cause=cause, fatal=fatal, told=told)
            refusal = _addition_refusal(no_node_fault=no_node_fault, waits=waits)
        if refusal is None:
            refusal = _count_refusal(candidate.rule, seen_within or {})
            waits = waits or (candidate.name if refusal is not None and not candidate.added else "")
        tried.append(TriedRule(candidate.name, refusal is None, refusal or reasons.of("code_and_labels_match")))
        if refusal is None:
            return MatchResult(candidate, tuple(tried))
    return MatchResult(None, tuple(tried))


def _is_no_node_fault(*, kind: str, code: str, cause: int | None, fatal: bool | None, told: bool) -> bool:
    """``told``: its source says so. The catalog decides about Xids and SXids."""
    if kind in fault.NUMERIC_KINDS:
        return catalog.is_user_fault(kind, int(code), cause=cause, fatal=fatal)
    return told


def _addition_refusal(*, no_node_fault: bool, waits: str) -> reasons.Reason | None:
    """The reason why a rule of a cluster's object does not add to the portal's own; ``waits``: one that comes first."""
    if no_node_fault:
        return reasons.of("object_adds_node_faults_only")
    return reasons.of("object_after_own", own=waits) if waits else None


def windows(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    """The windows, in seconds, in which some rule requires a minimum number of occurrences."""
    rules = (candidate.rule for candidate in candidates)
    return tuple(sorted({int(rule.minimum.within.total_seconds()) for rule in rules if rule.minimum is not None}))


def fault_refusal(
    rule: document.Rule,
    *,
    kind: str,
    code: str,
    application: bool,
    cause: int | None = None,
    fatal: bool | None = None,
    harmless: bool = False,
) -> reasons.Reason | None:
    """The reason why the rule does not cover this fault; None if it does.

    A rule that lists the code covers it, whatever caused the fault. A rule that names only a kind, or nothing, covers
    faults of the node but not those of a user's program. A code that is in no catalog is a fault of the node.
    ``application``: the fault's source calls it an application fault. A rule that names its kind covers it unless the
    rule leaves application faults out. ``harmless``: it says that nothing is wrong, or that a monitor does not work;
    only a rule that lists its code covers it. The catalog decides about Xids and SXids, whatever their source says.
    """
    if not {code, _told_code(kind, code)}.isdisjoint(rule.listed.get(kind, ())):
        return None
    if kind not in rule.kinds and not (rule.any_fault and kind in fault.NUMERIC_KINDS):
        return _fault_mismatch(rule, kind=kind, code=code)
    if kind in fault.NUMERIC_KINDS:
        is_program = catalog.is_user_fault(kind, int(code), cause=cause, fatal=fatal)
        return reasons.of("program_fault", kind=kind, code=code) if is_program else None
    if harmless:
        return reasons.of("harmless_report", kind=kind, code=code)
    if application and not rule.application_faults:
        return reasons.of("application_faults_left_out", kind=kind, code=code)
    return None


def _told_code(kind: str, code: str) -> str:
    """The code of the alert or condition, without the Xid that the portal adds where one of them names several."""
    return re.sub(r"/[0-9]{1,10}$", "", code) if kind in ("alert", "condition") else code


def _fault_mismatch(rule: document.Rule, *, kind: str, code: str) -> reasons.Reason:
    """The faults that the rule covers instead."""
    if rule.any_fault:
        return reasons.of("means_xids", kind=kind)
    if rule.codes and not (rule.sxids or rule.checks or rule.phrases or rule.kinds):
        if kind != "xid":
            return reasons.of("lists_xids", kind=kind)
        return reasons.of("lists_others", listed=", ".join(rule.codes), code=code)
    named = [f"{reasons.SPELLED.get(of, of)} {name}" for of, names in rule.listed.items() for name in names]
    named += [f"{reasons.SPELLED.get(name, name)} *" for name in rule.kinds]
    return reasons.of("names_others", named=", ".join(named), kind=kind, code=code)


def _count_refusal(rule: document.Rule, seen_within: Mapping[int, int]) -> reasons.Reason | None:
    if rule.minimum is None:
        return None
    seen = seen_within.get(int(rule.minimum.within.total_seconds()), 1)
    if seen >= rule.minimum.count:
        return None
    within = durations.render(rule.minimum.within)
    return reasons.of("seen_too_seldom", wanted=rule.minimum.count, within=within, seen=seen)


def label_refusal(rule: document.Rule, labels: Mapping[str, str]) -> reasons.Reason | None:
    """The reason why the rule does not select a node with these labels; None if it does."""
    if not rule.labels:
        return None
    hits = [labels.get(key) == value for key, value in rule.labels.items()]
    wanted = ", ".join(f"{key}={value}" for key, value in rule.labels.items())
    if rule.operator == "any":
        return None if any(hits) else reasons.of("no_label", labels=wanted)
    return None if all(hits) else reasons.of("not_all_labels", labels=wanted)
