"""Finds pairs of rules that may need a warning, without comparing all pairs.

Rules are indexed by the faults and labels that they name. Of 1,500 rules for 1,500 pools, no pair is yielded; of 1,500
equal rules, every pair is. So the cost is proportional to the number of yielded pairs, and callers bound that number.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from kcover.decisions import overlap
from kcover.policy import document

Key: TypeAlias = tuple[str, str | None]  # a kind and a code; ANY_CODE; or None for a rule that names the whole kind
Label: TypeAlias = tuple[str, str]

ANY_CODE = "*"  # no code: under this key are the rules that list a fault of the node


def related(ranked: Sequence[document.Rule]) -> Iterator[tuple[int, int]]:
    """Yields the indexes of an earlier and a later rule, in the order of the later one.

    It yields every pair that can match one fault on one node and has the same priority, or whose earlier rule alone is
    in shadow mode, and every pair whose earlier rule covers the later one. It may yield others.
    """
    pivot = _most_common_key(ranked)
    equals, shadows, covers = _Sharing(pivot), _Sharing(pivot), _Covering(ranked)
    for later, rule in enumerate(ranked):
        if later and ranked[later - 1].priority != rule.priority:
            equals = _Sharing(pivot)
        found = equals.find(rule) | covers.find(rule)
        if rule.mode != "shadow":
            found |= shadows.find(rule)
        for earlier in sorted(found):
            yield earlier, later
        equals.add(later, rule)
        covers.add(later, rule)
        if rule.mode == "shadow":
            shadows.add(later, rule)


class _Sharing:
    """Rules by fault and by the value of one label, to find those that can match the same fault on the same node."""

    def __init__(self, pivot: str) -> None:
        self._pivot = pivot
        self._rules: defaultdict[tuple[Key, str | None], list[int]] = defaultdict(list)
        self._all: defaultdict[Key, list[int]] = defaultdict(list)

    def add(self, index: int, rule: document.Rule) -> None:
        values = self._values(rule) or {None}
        for key in _named(rule):
            self._all[key].append(index)
            for value in values:
                self._rules[key, value].append(index)

    def find(self, rule: document.Rule) -> set[int]:
        values = self._values(rule)
        found: set[int] = set()
        for key in _meeting(rule):
            if not values:
                found.update(self._all.get(key, ()))
            for value in (*values, None) if values else ():
                found.update(self._rules.get((key, value), ()))
        return found

    def _values(self, rule: document.Rule) -> set[str | None]:
        """The values of the label that the rule can match; empty if the rule does not depend on the label."""
        sets = overlap.label_sets(rule)
        return {labels[self._pivot] for labels in sets} if all(self._pivot in labels for labels in sets) else set()


class _Covering:
    """Rules by fault and by one label of each of their selectors, to find those that cover a later rule."""

    def __init__(self, ranked: Iterable[document.Rule]) -> None:
        rules = list(ranked)
        self._faults = Counter(key for rule in rules for key in _named(rule))
        self._labels = Counter(
            label for rule in rules for labels in overlap.label_sets(rule) for label in labels.items()
        )
        self._rules: defaultdict[tuple[Key, Label | None], list[int]] = defaultdict(list)

    def add(self, index: int, rule: document.Rule) -> None:
        for key in _named(rule):
            for label in {self._rarest(labels) for labels in overlap.label_sets(rule)}:
                self._rules[key, label].append(index)

    def find(self, rule: document.Rule) -> set[int]:
        """A covering rule covers each fault and each label set of this one, so it is enough to look for one of each."""
        faults: list[Key] = [*overlap.listed(rule), *((kind, None) for kind in overlap.whole_kinds(rule))]
        if not faults:
            return set()
        kind, code = min(faults, key=lambda key: self._faults[key])
        labels = overlap.label_sets(rule)[0]
        return {
            index
            for key in {(kind, code), (kind, None)}
            for label in (None, *labels.items())
            for index in self._rules.get((key, label), ())
        }

    def _rarest(self, labels: Mapping[str, str]) -> Label | None:
        return min(labels.items(), key=lambda label: (self._labels[label], label), default=None)


def _most_common_key(rules: Iterable[document.Rule]) -> str:
    counts = Counter(key for rule in rules for labels in overlap.label_sets(rule) for key in labels)
    return max(counts, key=lambda key: (counts[key], key), default="")


def _named(rule: document.Rule) -> set[Key]:
    """The keys under which a rule is found."""
    keys: set[Key] = {(kind, None) for kind in overlap.whole_kinds(rule)}
    for kind, code in overlap.listed(rule):
        keys.add((kind, code))
        if overlap.is_node_fault(kind, code):
            keys.add((kind, ANY_CODE))
    return keys


def _meeting(rule: document.Rule) -> set[Key]:
    """The keys under which the rules are that share a fault with this one."""
    keys: set[Key] = {(kind, code) for kind in overlap.whole_kinds(rule) for code in (None, ANY_CODE)}
    for kind, code in overlap.listed(rule):
        keys.add((kind, code))
        if overlap.is_node_fault(kind, code):
            keys.add((kind, None))
    return keys
