"""Warnings about rules that are valid but may have unexpected effects."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kcover import actions, reasons
from kcover.decisions import match, overlap, rule_pairs
from kcover.faults import catalog
from kcover.plans import plan
from kcover.policy import document
from kcover.reasons import Reason, Value
from kcover.values import masked_addresses

MAX_COMPARED = 50_000  # pairs of rules; half a second
MAX_OVERLAPS = 1_000  # warnings about pairs; more than a person reads


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning about one place in a policy."""

    policy: str
    path: tuple[str | int, ...]
    reason: Reason


def weigh(rules: Iterable[match.Candidate], *, fresh: Collection[str]) -> list[Advice]:
    """Returns warnings about the rules of the ``fresh`` policies; ``rules`` are all that would be active with them.

    Of many overlaps the first ones are returned, and one warning that there may be more.
    """
    ranked = match.rank(rules)
    warnings = [advice for candidate in ranked if candidate.policy in fresh for advice in _about_one(candidate)]
    pairs = _pairs(ranked, fresh)
    overlaps = (advice for first, second in islice(pairs, MAX_COMPARED) for advice in _about_pair(first, second, fresh))
    warnings += islice(overlaps, MAX_OVERLAPS)
    left = next(pairs, None)
    if left is not None:
        about = left[1] if left[1].policy in fresh else left[0]
        reason = reasons.of("overlaps_left_out", most=MAX_OVERLAPS)
        warnings.append(Advice(about.policy, ("spec", "rules", about.rule.index), reason))
    return warnings


def _pairs(
    ranked: Sequence[match.Candidate], fresh: Collection[str]
) -> Iterator[tuple[match.Candidate, match.Candidate]]:
    for earlier, later in rule_pairs.related([candidate.rule for candidate in ranked]):
        first, second = ranked[earlier], ranked[later]
        if first.policy in fresh or second.policy in fresh:
            yield first, second


def _about_one(candidate: match.Candidate) -> Iterator[Advice]:
    yield from _about_codes(candidate)
    if _takes_work_for_anything(candidate.rule):
        at_rule = ("spec", "rules", candidate.rule.index)
        yield Advice(candidate.policy, at_rule, reasons.of("rule_of_any_fault", rule=candidate.name))
    for index, action in enumerate(candidate.rule.actions):
        if any(masked_addresses.has_key(str(value)) for value in action.attribute.values()):
            at = ("spec", "rules", candidate.rule.index, "actions", index)
            yield Advice(candidate.policy, at, reasons.of("address_with_key", action=action.name))


def _takes_work_for_anything(rule: document.Rule) -> bool:
    if not rule.any_fault or rule.labels or rule.mode == "shadow":
        return False
    return any(actions.ACTIONS[step.name].takes_away(step.args) for step in plan.of_rule(rule, code=""))


def _about_codes(candidate: match.Candidate) -> Iterator[Advice]:
    at: tuple[str | int, ...] = ("spec", "rules", candidate.rule.index)
    for noun, kind, codes, path in (
        ("Xid", "xid", candidate.rule.codes or (), (*at, "errorCode")),
        ("SXid", "sxid", candidate.rule.sxids, (*at, "match", "sxid")),
    ):
        for index, code in enumerate(codes):
            if catalog.is_user_fault(kind, int(code)):
                cause = "xid_of_program" if kind == "xid" else "sxid_corrected"
                yield Advice(candidate.policy, (*path, index), reasons.of(cause, kind=noun, code=code))
            elif catalog.describe(kind, int(code)) is None:
                unknown = reasons.of("code_uncataloged", kind=noun, code=code)
                yield Advice(candidate.policy, (*path, index), unknown)


def _about_pair(first: match.Candidate, second: match.Candidate, fresh: Collection[str]) -> Iterator[Advice]:
    """The most important warning about the order of two rules; ``first`` is evaluated first."""
    fault = overlap.shared(first.rule, second.rule)
    if fault is None:
        return
    about = second if second.policy in fresh else first
    place = ("spec", "rules", about.rule.index)
    covered = overlap.covers(first.rule, second.rule)
    names = {"first": first.name, "second": second.name}
    if first.rule.priority == second.rule.priority:
        note: Value = reasons.of("second_never_runs", second=second.name) if covered else ""
        reason = reasons.of("same_priority", **names, priority=first.rule.priority, fault=fault, note=note)
    elif covered:
        reason = reasons.of("rule_covered", **names, note=_shadow_note(first))
    elif first.rule.mode == "shadow" and second.rule.mode != "shadow":
        reason = reasons.of("rule_shadowed", **names, fault=fault, note=_shadow_note(first))
    else:
        return  # a partial overlap is the purpose of priorities
    yield Advice(about.policy, place, reason)


def _shadow_note(first: match.Candidate) -> Value:
    return reasons.of("shadow_does_nothing", first=first.name) if first.rule.mode == "shadow" else ""
