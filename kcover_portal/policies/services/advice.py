"""What an author should hear about rules that are valid but may surprise."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kcover import catalog
from kcover.policy import document, matching


@dataclass(frozen=True, slots=True)
class Advice:
    """One warning, about one place of one policy."""

    policy: str
    path: tuple[str | int, ...]
    message: str


@dataclass(frozen=True, slots=True)
class _Placed:
    policy: str
    rule: document.Rule
    fresh: bool

    @property
    def name(self) -> str:
        return f"{self.policy}#{self.rule.index + 1}"


def weigh(fresh: Sequence[document.Policy], *, in_force: Iterable[matching.Candidate]) -> list[Advice]:
    """Warnings about the policies of a text, next to those in force that it does not replace."""
    names = {policy.name for policy in fresh}
    rules = [_Placed(one.policy, one.rule, False) for one in in_force if one.policy not in names]
    rules += [_Placed(policy.name, rule, True) for policy in fresh for rule in policy.rules]
    return [*_about_codes(rules), *_about_ties(rules)]


def _about_codes(rules: Iterable[_Placed]) -> Iterable[Advice]:
    for one in rules:
        for index, code in enumerate(one.rule.codes or () if one.fresh else ()):
            path = ("spec", "rules", one.rule.index, "errorCode", index)
            if catalog.is_program_fault("xid", int(code)):
                message = f"Xid {code} is a program's doing, not a fault of the node: this rule acts on nodes for it"
                yield Advice(one.policy, path, message)
            elif catalog.describe("xid", int(code)) is None:
                yield Advice(one.policy, path, f"no catalogue knows Xid {code}")


def _about_ties(rules: Sequence[_Placed]) -> Iterable[Advice]:
    """Two rules of one priority that can match the same code on the same node (semantics: the older policy's runs)."""
    for first, second in combinations(rules, 2):
        if first.rule.priority != second.rule.priority or not second.fresh:
            continue
        code = _shared_code(first.rule.codes, second.rule.codes)
        if code is not None and _share_a_node(first.rule, second.rule):
            message = (
                f"{first.name} and {second.name} both have priority {first.rule.priority} and can match {code} on one"
                " node: the older policy's rule runs, then the one written first"
            )
            yield Advice(second.policy, ("spec", "rules", second.rule.index), message)


def _shared_code(first: Sequence[str] | None, second: Sequence[str] | None) -> str | None:
    """A code that both lists hold, as people say it; no list means any fault of the node."""
    if first is None and second is None:
        return "any fault"
    if first is None or second is None:
        listed = second if first is None else first
        return next((f"Xid {code}" for code in listed or () if _is_node_fault(code)), None)
    return next((f"Xid {code}" for code in first if code in second), None)


def _is_node_fault(code: str) -> bool:
    return catalog.describe("xid", int(code)) is not None and not catalog.is_program_fault("xid", int(code))


def _share_a_node(first: document.Rule, second: document.Rule) -> bool:
    """Whether one node's labels could satisfy both selectors."""
    return any(
        all(one[key] == other[key] for key in one.keys() & other.keys())
        for one in _ways(first)
        for other in _ways(second)
    )


def _ways(rule: document.Rule) -> list[Mapping[str, str]]:
    """Each set of labels that is enough for the rule."""
    if not rule.labels:
        return [{}]
    if rule.operator == "any":
        return [{key: value} for key, value in rule.labels.items()]
    return [rule.labels]
