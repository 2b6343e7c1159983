"""Where rules meet, held against matching itself."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kcover.decisions import match, overlap
from kcover.policy import document

FAULTS = (("xid", "62"), ("xid", "48"), ("xid", "31"), ("xid", "9999"), ("sxid", "11004"), ("sxid", "12021"))
FAULTS += (("check", "remapped"), ("check", "dcgm"), ("agent", "silent"))
LABELS = (*({"a": a, "b": b} for a in "xy" for b in "xy"), {}, {"a": "x"}, {"b": "y"})


def rule(index: int = 0, **fields: Any) -> document.Rule:
    return document.Rule(index=index, priority=0, **fields)


def matches(
    one: document.Rule, kind: str, code: str, labels: dict[str, str], seen: int, *, application: bool = False
) -> bool:
    made = match.Candidate(policy="p", revision=1, created_at=datetime(2026, 1, 1, tzinfo=UTC), rule=one)
    windows = dict.fromkeys(match.windows([made]), seen)
    found, _ = match.match(
        [made], kind=kind, code=code, cause=None, labels=labels, seen_within=windows, application=application
    )
    return found is not None


def some(*of: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([(), *((one,) for one in of), of])


RULES = st.builds(
    rule,
    codes=st.none() | some("62", "48", "31", "9999").filter(bool),
    sxids=some("11004", "12021"),
    checks=some("remapped", "dcgm"),
    kinds=some("agent", "check", "sxid"),
    application_faults=st.booleans(),
    operator=st.sampled_from(("any", "all")),
    labels=st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys("ab", st.sampled_from("xy"))),
    minimum=st.none() | st.builds(document.Minimum, count=st.integers(1, 3), within=st.just(timedelta(hours=1))),
)


@settings(max_examples=400)
@given(RULES, RULES)
def test_a_rule_that_covers_another_matches_every_fault_of_it(first: document.Rule, second: document.Rule) -> None:
    if not overlap.covers(first, second):
        return
    for kind, code in FAULTS:
        for labels in LABELS:
            for seen in (1, 2, 3):
                for application in (False, True):
                    if matches(second, kind, code, labels, seen, application=application):
                        assert matches(first, kind, code, labels, seen, application=application)


@given(RULES, RULES)
def test_rules_meet_where_one_fault_on_one_node_matches_both(first: document.Rule, second: document.Rule) -> None:
    both = any(
        matches(first, kind, code, labels, 9) and matches(second, kind, code, labels, 9)
        for kind, code in FAULTS
        for labels in LABELS
    )
    assert (overlap.shared(first, second) is not None) is both
    assert (overlap.shared(second, first) is not None) is both


@given(RULES)
def test_a_rule_covers_itself(one: document.Rule) -> None:
    known = "31" not in (one.codes or ()) and "12021" not in one.sxids
    assert overlap.covers(one, one)
    assert (overlap.shared(one, one) is not None) or not known or not one.any_fault


@pytest.mark.parametrize(
    ("first", "second", "covers"),
    [
        (rule(kinds=("xid",)), rule(codes=("79",)), True),
        (rule(), rule(codes=("79",), sxids=("11004",)), True),
        (rule(kinds=("check",)), rule(checks=("dcgm",)), True),
        (rule(), rule(codes=("9999",)), True),
        (rule(kinds=("event",)), rule(phrases={"event": ("XidError",)}), True),
        (rule(phrases={"event": ("XidError", "b")}), rule(phrases={"event": ("b",)}), True),
        (rule(phrases={"event": ("XidError",)}), rule(phrases={"alert": ("XidError",)}), False),
        (rule(phrases={"event": ("XidError",)}), rule(), False),
        (rule(kinds=("xid",)), rule(codes=("31",)), False),  # a program's doing: meant only where it is listed
        (rule(kinds=("xid",)), rule(sxids=("11004",)), False),
        (rule(codes=("79",)), rule(kinds=("xid",)), False),
        (rule(kinds=("pod",), application_faults=False), rule(kinds=("pod",)), False),
        (rule(kinds=("pod",), application_faults=False), rule(phrases={"pod": ("Error",)}), False),
        (rule(kinds=("pod",)), rule(kinds=("pod",), application_faults=False), True),
        (rule(kinds=("xid",), application_faults=False), rule(kinds=("xid",)), True),
    ],
)
def test_a_kind_covers_its_faults_of_the_node(first: document.Rule, second: document.Rule, covers: bool) -> None:
    assert overlap.covers(first, second) is covers


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (rule(codes=("48", "62")), rule(codes=("62",)), "Xid 62"),
        (rule(), rule(sxids=("11004",)), "SXid 11004"),
        (rule(), rule(), "any fault"),
        (rule(), rule(kinds=("sxid",)), "any fault of kind sxid"),
        (rule(kinds=("check",)), rule(checks=("dcgm",)), "check dcgm"),
        (rule(codes=("48",)), rule(codes=("62",)), None),
        (rule(), rule(codes=("31",)), None),
    ],
)
def test_the_overlap_of_two_rules_is_described(first: document.Rule, second: document.Rule, said: str | None) -> None:
    shared = overlap.shared(first, second)
    assert (str(shared) if shared else None) == said


@pytest.mark.parametrize(
    ("first", "second", "covers"),
    [
        ((1, 1), (9, 1), True),
        ((3, 2), (3, 2), True),
        ((3, 2), (3, 1), True),
        ((3, 1), (3, 2), False),
        ((4, 2), (3, 2), False),
        ((3, 2), None, False),
        (None, (3, 2), True),
    ],
)
def test_a_count_covers_one_that_is_reached_later(
    first: tuple[int, int] | None, second: tuple[int, int] | None, covers: bool
) -> None:
    one, other = (
        rule(minimum=document.Minimum(count=has[0], within=timedelta(hours=has[1])) if has else None)
        for has in (first, second)
    )
    assert overlap.covers(one, other) is covers
