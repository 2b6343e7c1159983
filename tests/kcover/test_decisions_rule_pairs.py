"""Pairs of rules, held against the comparison of each rule with each other one."""

from datetime import timedelta
from itertools import combinations
from typing import Any

from hypothesis import given, settings, strategies as st

from kcover.decisions import overlap, rule_pairs
from kcover.policy import document

CODES = ("62", "48", "31", "9999")


def some(*of: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([(), *((one,) for one in of), of])


def rule(**fields: Any) -> document.Rule:
    return document.Rule(**{"index": 0, "priority": 0, **fields})


RULES = st.builds(
    rule,
    priority=st.integers(0, 2),
    mode=st.sampled_from(("shadow", "approve", "enforce")),
    codes=st.none() | some(*CODES).filter(bool),
    sxids=some("11004", "12021"),
    checks=some("remapped", "dcgm"),
    kinds=some("agent", "check", "sxid"),
    operator=st.sampled_from(("any", "all")),
    labels=st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys("abc", st.sampled_from("xyz"))),
    minimum=st.none() | st.builds(document.Minimum, count=st.integers(1, 3), within=st.just(timedelta(hours=1))),
)


def needs_warning(first: document.Rule, second: document.Rule) -> bool:
    if overlap.shared(first, second) is None:
        return False
    hides = first.mode == "shadow" != second.mode
    return first.priority == second.priority or hides or overlap.covers(first, second)


@settings(max_examples=300)
@given(st.lists(RULES, max_size=12))
def test_every_pair_that_needs_a_warning_is_found_once(rules: list[document.Rule]) -> None:
    ranked = sorted(rules, key=lambda one: -one.priority)
    found = list(rule_pairs.related(ranked))
    assert len(found) == len(set(found))
    warned = {
        (earlier, later)
        for (earlier, first), (later, second) in combinations(enumerate(ranked), 2)
        if needs_warning(first, second)
    }
    assert warned <= set(found)
    assert all(earlier < later for earlier, later in found)


def test_rules_of_different_pools_are_not_compared() -> None:
    pools = [rule(codes=("62", "48"), labels={"pool": f"p{i}", "gpu": "h100"}) for i in range(3000)]
    assert not list(rule_pairs.related(pools))


def test_rules_that_overlap_in_part_by_intention_are_rarely_compared() -> None:
    own = [rule(priority=3000 - i, codes=("62", str(1000 + i))) for i in range(3000)]
    assert len(list(rule_pairs.related(own))) == 0


def test_rules_of_different_codes_are_not_compared() -> None:
    assert not list(rule_pairs.related([rule(codes=(str(i),)) for i in range(3000)]))
