"""Where rules meet: whether two can mean the same fault on the same node, and whether one leaves the other nothing.

Both look at rules only, never at a fleet, and take a fault as a source names it first: without a cause and without a
word of its own about its severity.
"""

from collections.abc import Mapping

from kcover import catalog, fault
from kcover.policy import document

SAID = {"xid": "Xid", "sxid": "SXid"}


def shared(first: document.Rule, second: document.Rule) -> str | None:
    """A fault that both mean, as people say it, if one node's labels can satisfy both selectors."""
    if not any(_agree(one, other) for one in _ways(first) for other in _ways(second)):
        return None
    for one, other in ((first, second), (second, first)):
        for kind, code in _listed(one):
            if (kind, code) in _listed(other) or (kind in _whole(other) and _of_the_node(kind, code)):
                return f"{SAID.get(kind, kind)} {code}"
    if first.any_fault and second.any_fault:
        return "any fault"
    both = [kind for kind in fault.KINDS if kind in _whole(first) and kind in _whole(second)]
    return f"any fault of kind {both[0]}" if both else None


def covers(first: document.Rule, second: document.Rule) -> bool:
    """Whether ``first`` matches whatever ``second`` matches, so that asked first it leaves the other nothing."""
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
    """Whether a rule that names the kind alone means this code."""
    if kind not in fault.NUMERIC_KINDS:
        return True
    return catalog.describe(kind, int(code)) is not None and not catalog.is_program_fault(kind, int(code))


def _ways(rule: document.Rule) -> list[Mapping[str, str]]:
    """Each set of labels that is enough for the rule."""
    if not rule.labels:
        return [{}]
    if rule.operator == "any":
        return [{key: value} for key, value in rule.labels.items()]
    return [rule.labels]


def _agree(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def _seldom_enough(first: document.Minimum | None, second: document.Minimum | None) -> bool:
    """Whether the first count is reached whenever the second is."""
    if first is None or first.count == 1:
        return True
    return second is not None and first.count <= second.count and first.within >= second.within
