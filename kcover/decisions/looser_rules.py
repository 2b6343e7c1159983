"""Finds rules from elsewhere that would replace one of the portal's own rules and act more loosely.

Policies that people keep as objects of a cluster may add rules. They never loosen what the portal's own rules say.
"""

from collections.abc import Iterable
from datetime import timedelta

from kcover.actions import drain
from kcover.decisions import match, overlap
from kcover.policy import document
from kcover.validation import fault_classes


def loosened_by(candidate: match.Candidate, own: Iterable[match.Candidate]) -> match.Candidate | None:
    """The first of the portal's ``own`` rules that ``candidate`` would loosen; None if there is none.

    A rule is loosened if the candidate is tried before it, both can match the same fault of a node, and the candidate
    has a looser mode, approval, budget, cooldown, verification, validation, end of a drain or minimum, drains nodes of
    one Kueue workload at once, or adds application faults.
    """
    for other in match.rank(own):
        earlier, _ = match.rank((candidate, other))
        if (
            earlier is candidate
            and overlap.shared(candidate.rule, other.rule)
            and is_looser(candidate.rule, other.rule)
        ):
            return other
    return None


def is_looser(rule: document.Rule, other: document.Rule) -> bool:
    """Return whether ``rule`` allows more than ``other`` in any of its limits."""
    modes = document.MODES  # the strictest first
    return (
        modes.index(rule.mode) > modes.index(other.mode)
        or _approvers(rule) < _approvers(other)
        or (other.budget is not None and rule.budget != other.budget)
        or (rule.cooldown or timedelta()) < (other.cooldown or timedelta())
        or (other.verify and not rule.verify)
        or (other.verify_agent and not rule.verify_agent)
        or _validates_less(rule, other)
        or (other.on_drain_timeout == "hold" and rule.on_drain_timeout != "hold")
        or (_drains_together(rule) and not _drains_together(other))
        or (other.minimum is not None and rule.minimum != other.minimum)
        or bool(overlap.reserved_kinds(other) & (overlap.whole_kinds(rule) - overlap.reserved_kinds(rule)))
    )


def _drains_together(rule: document.Rule) -> bool:
    return any(action.name == "drain" and action.attribute.get(drain.TOGETHER) == "true" for action in rule.actions)


def _validates_less(rule: document.Rule, other: document.Rule) -> bool:
    """Return whether some fault gets a weaker validation by ``rule``. ``auto`` may be any profile."""
    if other.validate is None or rule.validate == other.validate:
        return False
    strictness = (None, *fault_classes.STRICTEST_LAST)
    least = fault_classes.STRICTEST_LAST[0] if rule.validate == fault_classes.AUTO else rule.validate
    most = fault_classes.STRICTEST_LAST[-1] if other.validate == fault_classes.AUTO else other.validate
    return strictness.index(least) < strictness.index(most)


def _approvers(rule: document.Rule) -> int:
    return rule.approval.approvers if rule.approval is not None else 0
