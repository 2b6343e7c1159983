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
    if not any(_compatible(left, right) for left in label_sets(first) for right in label_sets(second)):
        return None
    for rule, other in ((first, second), (second, first)):
        for kind, code in listed(rule):
            if (kind, code) in listed(other) or (kind in whole_kinds(other) and is_node_fault(kind, code)):
                return f"{KIND_LABELS.get(kind, kind)} {code}"
    if first.any_fault and second.any_fault:
        return reasons.of("any_fault")
    both = [kind for kind in fault.INCIDENT_KINDS if kind in whole_kinds(first) and kind in whole_kinds(second)]
    return reasons.of("any_fault_of_kind", kind=both[0]) if both else None


def covers(first: document.Rule, second: document.Rule) -> bool:
    """Return whether ``first`` matches everything that ``second`` matches, so ``second`` never applies after it."""
    reserved = reserved_kinds(first)
    means = whole_kinds(second) <= whole_kinds(first) and all(
        key in listed(first) or (key[0] in whole_kinds(first) - reserved and is_node_fault(*key))
        for key in listed(second)
    )
    means = means and not reserved & (whole_kinds(second) - reserved_kinds(second))
    selects = all(any(left.items() <= right.items() for left in label_sets(first)) for right in label_sets(second))
    return means and selects and _implies_minimum(first.minimum, second.minimum)


def listed(rule: document.Rule) -> list[tuple[str, str]]:
    """The kind and code of each fault that the rule lists."""
    return [(kind, code) for kind, codes in rule.listed.items() for code in codes]


def whole_kinds(rule: document.Rule) -> frozenset[str]:
    """The kinds of which the rule selects every fault of the node."""
    return frozenset(fault.NUMERIC_KINDS if rule.any_fault else rule.kinds)


def reserved_kinds(rule: document.Rule) -> frozenset[str]:
    """The whole kinds of which the rule leaves out faults that their sources call application faults."""
    return frozenset() if rule.application_faults else whole_kinds(rule) - frozenset(fault.NUMERIC_KINDS)


def is_node_fault(kind: str, code: str) -> bool:
    """Return whether a rule that names only the kind covers this code."""
    return kind not in fault.NUMERIC_KINDS or not catalog.is_user_fault(kind, int(code))


def label_sets(rule: document.Rule) -> list[Mapping[str, str]]:
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
