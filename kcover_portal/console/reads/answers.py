"""What a decision answers, in one sentence, and the rules that it compared with the fault, nearest first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover.decisions import decide, match
from kcover_portal.needs.queries import sentences
from kcover_portal.rescue.models import Decision

APPLIES: Final = _("This rule applies")
NEAREST: Final = _("These cover the fault, but not here or not yet")
LEFT_OUT: Final = _("These leave out faults of this kind")
OTHERS: Final = _("These cover other faults")


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that were compared with a fault, with the same result."""

    title: str | Promise
    rules: Sequence[match.TriedRule]


def of(decision: Decision) -> tuple[reasons.Reason, ...]:
    """The answer, without the rule that matches and without those that do not. The groups of rules name these."""
    why = decision.reasons
    if decide.says_no_rule(why) and decision.incident is not None:
        return sentences.in_short(decision.incident, why)
    return decide.without_match(why) or why


def tried(decision: Decision) -> list[match.TriedRule]:
    """The rules that the decision compared with the fault, as it was stored."""
    return [match.TriedRule(one["rule"], one["matched"], reasons.from_json(one["because"])) for one in decision.tried]


def grouped(rules: Iterable[match.TriedRule]) -> list[RuleGroup]:
    """The rules by their result: the one that applies, those that cover the fault all the same, and the rest."""
    found: dict[str | Promise, list[match.TriedRule]] = {APPLIES: [], NEAREST: [], LEFT_OUT: [], OTHERS: []}
    for rule in rules:
        found[_group(rule)].append(rule)
    return [RuleGroup(title, members) for title, members in found.items() if members]


def _group(rule: match.TriedRule) -> str | Promise:
    if rule.matched:
        return APPLIES
    if reasons.says(rule.because, *match.FOR_OTHER_FAULTS):
        return OTHERS
    return LEFT_OUT if reasons.says(rule.because, *match.LEFT_OUT) else NEAREST
