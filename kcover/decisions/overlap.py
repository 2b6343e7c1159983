"""Overlap of rules: can two match the same fault on the same node, and does one shadow the other?

Only rules are compared, never a fleet. A fault is taken as sources first report it: without a cause and without a
severity of its own.
"""

from collections.abc import Mapping

from kcover.faults import catalog, fault
from kcover.policy import document

KIND_LABELS = {"xid": "Xid", "sxid": "SXid"}


def shared(first: document.Rule, second: document.Rule) -> str | None:
    """A fault that both rules match, for people to read, if one node's labels can satisfy both selectors."""
    if not any(_agree(one, other) for one in _ways(first) for other in _ways(second)):
        return None
    for one, other in ((first, second), (second, first)):
        for kind, code in _listed(one):
            if (kind, code) in _listed(other) or (kind in _whole(other) and _of_the_node(kind, code)):
                return f"{KIND_LABELS.get(kind, kind)} {code}"
    if first.any_fault and second.any_fault:
        return "any fault"
    both = [kind for kind in fault.KINDS if kind in _whole(first) and kind in _whole(second)]
    return f"any fault of kind {both[0]}" if both else None


def covers(first: document.Rule, second: document.Rule) -> bool:
    """Whether ``first`` matches everything that ``second`` matches, so that ``second`` never applies after it."""
    means = _whole(second) <= _whole(first) and all(
        one in _listed(first) or (one[0] in _whole(first) and _of_the_node(*one)) for one in _listed(second)
    )
    selects = all(any(one.items() <= other.items() for one in _ways(first)) for other in _ways(second))
    return means and selects and _seldom_enough(first.minimum, second.minimum)


def _listed(rule: document.Rule) -> list[tuple[str, str]]:
    named = {"xid": rule.codes or (), "sxid": rule.sxids, "check": rule.checks}
    return [(kind, code) for kind, codes in named.items() for code in codes]


def _whole(rule: document.Rule) -> frozenset[str]:
    return frozenset(fault.NUMERIC_KINDS if rule.any_fault else rule.kinds)


def _of_the_node(kind: str, code: str) -> bool:
    """Whether a rule that names only the kind covers this code."""
    if kind not in fault.NUMERIC_KINDS:
        return True
    return catalog.describe(kind, int(code)) is not None and not catalog.is_user_fault(kind, int(code))


def _ways(rule: document.Rule) -> list[Mapping[str, str]]:
    """Each set of labels that satisfies the rule's selector."""
    if not rule.labels:
        return [{}]
    if rule.operator == "any":
        return [{key: value} for key, value in rule.labels.items()]
    return [rule.labels]


def _agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def _seldom_enough(first: document.Minimum | None, second: document.Minimum | None) -> bool:
    """Whether the first minimum is reached whenever the second is."""
    if first is None or first.count == 1:
        return True
    return second is not None and first.count <= second.count and first.within >= second.within
