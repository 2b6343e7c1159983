"""Which rule a fault meets: priority, age, place; codes and labels."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kcover import reasons
from kcover.decisions import match
from kcover.faults import machine_check
from kcover.policy import document
from kcover.values import digests

OLD = datetime(2026, 1, 1, tzinfo=UTC)


def candidate(policy: str = "p", *, index: int = 0, age: int = 0, **rule: Any) -> match.Candidate:
    """A rule in force; a higher age is an older policy."""
    rule.setdefault("priority", 0)
    made = OLD - timedelta(days=age)
    return match.Candidate(policy=policy, revision=1, created_at=made, rule=document.Rule(index=index, **rule))


def meet(
    *rules: match.Candidate, kind: str = "xid", code: str = "62", cause: int | None = None, **labels: str
) -> str | None:
    chosen, tried = match.match(rules, kind=kind, code=code, cause=cause, labels=labels)
    if chosen is None:
        assert not any(one.matched for one in tried)
        return None
    assert [one.matched for one in tried] == [False] * (len(tried) - 1) + [True]
    assert tried[-1] == match.TriedRule(chosen.name, True, reasons.of("code_and_labels_match"))
    return chosen.name


def why(rule: match.Candidate, *, kind: str = "xid", code: str = "62", cause: int | None = None, **labels: str) -> str:
    chosen, [tried] = match.match([rule], kind=kind, code=code, cause=cause, labels=labels)
    assert (chosen, tried.rule, tried.matched) == (None, rule.name, False)
    return str(tried.because)


def test_rules_are_counted_from_one() -> None:
    assert candidate("kce", index=2).name == "kce#3"


def test_no_rule_no_match() -> None:
    assert match.match([], kind="xid", code="62", cause=None, labels={}) == (None, ())


def test_the_highest_priority_wins_whatever_the_order() -> None:
    low, high = candidate("low", priority=1, age=9), candidate("high", priority=10)
    assert meet(low, high) == meet(high, low) == "high#1"


def test_among_equals_the_oldest_policy_wins() -> None:
    young, old = candidate("a", age=1), candidate("z", age=2)
    assert meet(young, old) == meet(old, young) == "z#1"


def test_among_policies_of_one_moment_the_name_decides() -> None:
    assert meet(candidate("b"), candidate("a")) == "a#1"


def test_within_a_policy_the_first_rule_wins() -> None:
    assert meet(candidate(index=1), candidate(index=0), candidate(index=2)) == "p#1"


def test_rules_are_matched_in_order_of_priority_age_and_index() -> None:
    ranked = match.rank(
        [
            candidate("d", priority=1),
            candidate("c", index=1, age=1),
            candidate("c", index=0, age=1),
            candidate("b", age=0),
            candidate("a", age=0),
        ]
    )
    assert [one.name for one in ranked] == ["d#1", "c#1", "c#2", "a#1", "b#1"]


def test_a_rule_that_does_not_match_lets_the_next_rule_be_tried() -> None:
    first, second = candidate("first", priority=10, codes=("48",)), candidate("second", codes=("62",))
    third = candidate("third", priority=0, age=-1)
    chosen, tried = match.match([first, second, third], kind="xid", code="62", cause=None, labels={})
    assert chosen == second
    assert tried == (
        match.TriedRule("first#1", False, reasons.of("lists_others", listed="48", code="62")),
        match.TriedRule("second#1", True, reasons.of("code_and_labels_match")),
    )


# --- codes


def test_a_listed_code_is_met_exactly() -> None:
    rule = candidate(codes=("48", "62"))
    assert meet(rule, code="62") == "p#1"
    assert why(rule, code="6") == "It covers 48, 62, not 6."
    assert why(rule, code="162") == "It covers 48, 62, not 162."


@pytest.mark.parametrize("kind", ["sxid", "check", "agent", "pod"])
def test_listed_codes_are_xids(kind: str) -> None:
    assert why(candidate(codes=("62",)), kind=kind) == f"It covers Xids only; this fault is of kind {kind}."


@pytest.mark.parametrize("code", ["48", "62", "79", "74"])
def test_a_rule_without_codes_meets_any_fault_of_the_node(code: str) -> None:
    assert meet(candidate(), code=code) == "p#1"
    assert meet(candidate(), kind="sxid", code="11004") == "p#1"


@pytest.mark.parametrize("code", ["13", "31", "43", "45"])
def test_a_programs_code_must_be_listed(code: str) -> None:
    assert why(candidate(), code=code) == f"Xid {code} is not a node fault; only a rule that lists it matches."
    assert meet(candidate(codes=(code,)), code=code) == "p#1"


def test_a_fault_caused_by_a_previous_xid_must_be_listed() -> None:
    assert why(candidate(), code="62", cause=149).startswith("Xid 62 is not a node fault")
    assert meet(candidate(codes=("62",)), code="62", cause=149) == "p#1"


def test_a_harmless_sxid_is_no_fault_of_the_node() -> None:
    assert why(candidate(), kind="sxid", code="12021").startswith("SXid 12021 is not a node fault")


@pytest.mark.parametrize("rule", [candidate(), candidate(kinds=("sxid",))])
def test_the_severity_of_the_line_outweighs_the_harmless_list(rule: match.Candidate) -> None:
    asked = {"kind": "sxid", "code": "12021", "cause": None, "labels": {}}
    assert match.match([rule], **asked, fatal=True)[0] == rule
    assert match.match([rule], **asked, fatal=False)[0] is None


def test_an_nvlink_event_that_is_not_fatal_is_no_node_fault() -> None:
    asked = {"kind": "xid", "code": "145", "cause": None, "labels": {}}
    assert match.match([candidate()], **asked, fatal=True)[0] is not None
    chosen, [tried] = match.match([candidate()], **asked, fatal=False)
    assert (chosen, tried.because.code) == (None, "program_fault")


@pytest.mark.parametrize(("kind", "code"), [("xid", "9999"), ("sxid", "1")])
def test_an_unknown_code_is_a_fault_until_known_otherwise(kind: str, code: str) -> None:
    assert meet(candidate(), kind=kind, code=code) == "p#1"
    assert meet(candidate(kinds=(kind,)), kind=kind, code=code) == "p#1"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("pod", "Error"),
        ("condition", "GpuFailed=True/XidError"),
        ("alert", "GPU down"),
        ("event", "XidError"),
        ("health", "dcgm/79"),
        ("gpud", "accelerator-nvidia-xid"),
        ("preflight", "slow"),
    ],
)
def test_codes_of_other_kinds_are_listed_by_kind(kind: str, code: str) -> None:
    rule = candidate(phrases={kind: (code, "x")})
    assert meet(rule, kind=kind, code=code) == "p#1"
    assert why(rule, kind=kind, code="other") == f"It covers {kind} {code}, {kind} x, not {kind} other."
    assert why(rule, code="62") == f"It covers {kind} {code}, {kind} x, not Xid 62."
    assert meet(candidate(kinds=(kind,)), kind=kind, code=code) == "p#1"


@pytest.mark.parametrize(
    ("kind", "code", "listed"),
    [
        ("alert", "GpuXidErrors/79", "GpuXidErrors"),
        ("condition", "XIDErrors=True/Bad/79", "XIDErrors=True/Bad"),
        ("health", "SysLogsXIDError/79", None),
        ("alert", "GpuXidErrors/7a", None),
    ],
)
def test_an_alert_is_listed_whichever_xid_it_names(kind: str, code: str, listed: str | None) -> None:
    assert meet(candidate(phrases={kind: (code,)}), kind=kind, code=code) == "p#1"
    base = code.rpartition("/")[0]
    assert meet(candidate(phrases={kind: (base,)}), kind=kind, code=code) == ("p#1" if listed else None)


@pytest.mark.parametrize(("kind", "code"), [("check", "remapped"), ("agent", "silent"), ("preflight", "slow")])
def test_a_rule_without_codes_matches_no_other_kinds(kind: str, code: str) -> None:
    assert why(candidate(), kind=kind, code=code) == f"It covers Xids and SXids, not faults of kind {kind}."


# --- labels

PAIR = {"app": "demo", "env": "test"}


@pytest.mark.parametrize(
    ("operator", "labels", "met"),
    [
        ("any", {"app": "demo"}, True),
        ("any", {"env": "test", "x": "y"}, True),
        ("any", {"app": "test", "env": "demo"}, False),
        ("any", {}, False),
        ("all", {"app": "demo", "env": "test", "x": "y"}, True),
        ("all", {"app": "demo"}, False),
        ("all", {"app": "demo", "env": "prod"}, False),
    ],
)
def test_one_label_or_all_labels_must_match(operator: str, labels: dict[str, str], met: bool) -> None:
    assert (meet(candidate(operator=operator, labels=PAIR), **labels) is not None) is met


@pytest.mark.parametrize("selected", [None, {}])
@pytest.mark.parametrize("operator", ["any", "all"])
def test_no_labels_select_every_node(operator: str, selected: dict[str, str] | None) -> None:
    assert meet(candidate(operator=operator, labels=selected)) == "p#1"
    assert meet(candidate(operator=operator, labels=selected), app="x") == "p#1"


def test_a_mismatch_names_the_missing_labels() -> None:
    assert why(candidate(operator="any", labels=PAIR)) == "The node has none of these labels: app=demo, env=test."
    assert (
        why(candidate(operator="all", labels=PAIR), app="demo")
        == "The node does not have all of these labels: app=demo, env=test."
    )


def test_the_code_is_weighed_before_the_labels() -> None:
    assert why(candidate(codes=("48",), labels=PAIR)) == "It covers 48, not 62."


# --- beyond error codes


def test_each_list_of_a_rule_matches_alone() -> None:
    rule = candidate(codes=("79",), sxids=("12021",), checks=("remapped",), kinds=("agent",))
    for kind, code in (("xid", "79"), ("sxid", "12021"), ("check", "remapped"), ("agent", "silent")):
        assert meet(rule, kind=kind, code=code) == "p#1"
    named = "It covers Xid 79, SXid 12021, check remapped, agent *, not {}."
    for kind, code in (("xid", "62"), ("sxid", "11004"), ("check", "dcgm"), ("pod", "error"), ("xid", "12021")):
        spelled = {"xid": "Xid", "sxid": "SXid"}.get(kind, kind)
        assert why(rule, kind=kind, code=code) == named.format(f"{spelled} {code}")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"sxids": ("12028",)}, "SXid 12028"),
        ({"checks": ("remapped",)}, "check remapped"),
        ({"kinds": ("agent",)}, "agent *"),
    ],
)
def test_a_mismatch_names_the_kinds_that_a_rule_lists_beside_codes(
    more: dict[str, tuple[str, ...]], named: str
) -> None:
    assert why(candidate(codes=("79",), **more)) == f"It covers Xid 79, {named}, not Xid 62."


def test_a_kind_means_its_faults_of_the_node() -> None:
    assert meet(candidate(kinds=("sxid",)), kind="sxid", code="11004") == "p#1"
    assert why(candidate(kinds=("sxid",)), kind="sxid", code="12021").startswith("SXid 12021 is not a node fault")
    assert why(candidate(kinds=("sxid",)), code="62") == "It covers SXid *, not Xid 62."
    assert meet(candidate(kinds=("check",)), kind="check", code="anything") == "p#1"
    assert meet(candidate(kinds=("other",)), kind=machine_check.KIND, code=machine_check.CODE) == "p#1"
    assert (
        why(candidate(), kind=machine_check.KIND, code=machine_check.CODE)
        == "It covers Xids and SXids, not faults of kind other."
    )


@pytest.mark.parametrize("kind", ["pod", "other", "gpud", "event"])
def test_a_kind_may_leave_application_faults_out(kind: str) -> None:
    asked = {"kind": kind, "code": "x", "cause": None, "labels": {}}
    reserved, listed = candidate(kinds=(kind,), application_faults=False), candidate(phrases={kind: ("x",)})
    for rule in (reserved, listed, candidate(kinds=(kind,))):
        assert match.match([rule], **asked).candidate == rule
    for rule in (listed, candidate(kinds=(kind,))):
        assert match.match([rule], **asked, application=True).candidate == rule
    chosen, [tried] = match.match([reserved], **asked, application=True)
    assert (chosen, tried.because) == (None, reasons.of("application_faults_left_out", kind=kind, code="x"))


@pytest.mark.parametrize("reserved", [True, False])
def test_the_catalog_decides_which_xids_are_application_faults(reserved: bool) -> None:
    rule = candidate(kinds=("xid",), application_faults=not reserved)
    for application in (True, False):
        asked = {"kind": "xid", "cause": None, "labels": {}, "application": application}
        assert match.match([rule], code="62", **asked).candidate == rule
        assert match.match([rule], code="31", **asked).candidate is None


def test_a_listed_sxid_is_met_though_harmless() -> None:
    assert meet(candidate(sxids=("12021",)), kind="sxid", code="12021") == "p#1"


def counted(count: int, within: timedelta = timedelta(hours=1), seen: dict[int, int] | None = None) -> bool:
    rule = candidate(minimum=document.Minimum(count=count, within=within))
    chosen, [tried] = match.match([rule], kind="xid", code="62", cause=None, labels={}, seen_within=seen)
    if chosen is None:
        assert tried.because.code == "seen_too_seldom"
    return chosen is not None


def test_a_fault_must_have_been_seen_often_enough() -> None:
    assert counted(3, seen={3600: 3})
    assert counted(3, seen={3600: 7})
    assert not counted(3, seen={3600: 2})
    assert not counted(3, seen={60: 9})


def test_a_window_without_counts_holds_the_current_occurrence() -> None:
    assert counted(1)
    assert not counted(2)


def test_a_mismatch_by_count_names_the_required_and_the_seen_occurrences() -> None:
    rule = candidate(minimum=document.Minimum(count=3, within=timedelta(minutes=90)))
    assert why(rule) == "Requires 3 occurrences within 1h30min; 1 were seen."


def test_the_count_is_weighed_last() -> None:
    rule = candidate(labels=PAIR, minimum=document.Minimum(count=3, within=timedelta(hours=1)))
    assert why(rule) == "The node does not have all of these labels: app=demo, env=test."


def test_the_windows_that_must_be_counted() -> None:
    hour, day = timedelta(hours=1), timedelta(days=1)
    rules = [
        candidate(minimum=document.Minimum(count=n, within=within)) for n, within in ((2, day), (3, hour), (9, day))
    ]
    assert match.windows([candidate(), *rules]) == (3600, 86_400)
    assert match.windows([candidate()]) == ()


def test_the_rules_as_plain_json() -> None:
    low, high = candidate("low", age=1, codes=("62",)), candidate("high", index=2, priority=5, actions=())
    high = dataclasses.replace(high, source="abc", created_at=OLD.astimezone(timezone(timedelta(hours=8))))
    assert match.to_json([low, high]) == [
        {
            "policy": "high",
            "revision": 1,
            "created_at": "2026-01-01T00:00:00+00:00",
            "index": 2,
            "rule": document.render_rule(high.rule),
            "source": "abc",
        },
        {
            "policy": "low",
            "revision": 1,
            "created_at": "2025-12-31T00:00:00+00:00",
            "index": 0,
            "rule": document.render_rule(low.rule),
            "source": low.source,
        },
    ]


def test_the_digest_of_the_rules_follows_them() -> None:
    first, second = (candidate("a"),), (candidate("b"),)
    for rules in (first, first, second, (), first):
        assert match.digest_of(rules) == digests.digest(match.to_json(rules))
