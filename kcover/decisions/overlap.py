"""Overlap of rules: can two rules match the same fault on the same node, and does one shadow the other?

Only rules are compared, never a fleet. A fault is taken as sources first report it: without a cause and without a
severity of its own.
"""

from collections.abc import Mapping

from kcover import reasons
from kcover.faults import catalog, fault
from kcover.policy import document
from kcover.reasons import Reason

KIND_LABELS = {"xid": "Xid", "sxid": "SXid"}


def shared(first: document.Rule, second: document.Rule) -> Reason | str | None:
    """A fault that both rules match, for people to read, if one node's labels can satisfy both selectors."""
    if not any(_compatible(left, right) for left in _label_sets(first) for right in _label_sets(second)):
        return None
    for rule, other in ((first, second), (second, first)):
        for kind, code in _listed(rule):
            if (kind, code) in _listed(other) or (kind in _whole_kinds(other) and _is_node_fault(kind, code)):
                return f"{KIND_LABELS.get(kind, kind)} {code}"
    if first.any_fault and second.any_fault:
        return reasons.of("any_fault")
    both = [kind for kind in fault.INCIDENT_KINDS if kind in _whole_kinds(first) and kind in _whole_kinds(second)]
    return reasons.of("any_fault_of_kind", kind=both[0]) if both else None


def covers(first: document.Rule, second: document.Rule) -> bool:
    """Return whether ``first`` matches everything that ``second`` matches, so ``second`` never applies after it."""
    means = _whole_kinds(second) <= _whole_kinds(first) and all(
        key in _listed(first) or (key[0] in _whole_kinds(first) and _is_node_fault(*key)) for key in _listed(second)
    )
    selects = all(any(left.items() <= right.items() for left in _label_sets(first)) for right in _label_sets(second))
    return means and selects and _implies_minimum(first.minimum, second.minimum)


def _listed(rule: document.Rule) -> list[tuple[str, str]]:
    named = {"xid": rule.codes or (), "sxid": rule.sxids, "check": rule.checks}
    return [(kind, code) for kind, codes in named.items() for code in codes]


def _whole_kinds(rule: document.Rule) -> frozenset[str]:
    return frozenset(fault.NUMERIC_KINDS if rule.any_fault else rule.kinds)


def _is_node_fault(kind: str, code: str) -> bool:
    """Return whether a rule that names only the kind covers this code."""
    if kind not in fault.NUMERIC_KINDS:
        return True
    return catalog.describe(kind, int(code)) is not None and not catalog.is_user_fault(kind, int(code))


def _label_sets(rule: document.Rule) -> list[Mapping[str, str]]:
    """Each set of labels that satisfies the rule's selector."""
    if not rule.labels:
        return [{}]
    if rule.operator == "any":
        return [{key: value} for key, value in rule.labels.items()]
    return [rule.labels]


def _compatible(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    return all(left[key] == right[key] for key in left.keys() & right.keys())


def _implies_minimum(first: document.Minimum | None, second: document.Minimum | None) -> bool:
    """Return whether the first minimum is reached whenever the second is."""
    if first is None or first.count == 1:
        return True
    return second is not None and first.count <= second.count and first.within >= second.within
