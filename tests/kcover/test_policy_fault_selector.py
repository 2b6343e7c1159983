"""Which faults a rule selects beyond its error codes."""

from datetime import timedelta
from typing import Any

import pytest

from kcover import reasons
from kcover.faults import fault
from kcover.policy import document
from tests.kcover.policy_documents import rule, rule_problems, rule_reasons


def test_every_key_of_match_is_read() -> None:
    read = rule(
        errorCode=["79"],
        match={"sxid": ["12028", "0"], "checks": ["remapped"], "kinds": ["agent"], "minCount": 3, "within": "1h30min"},
    )
    assert (read.codes, read.sxids, read.checks, read.kinds) == (("79",), ("12028", "0"), ("remapped",), ("agent",))
    assert read.minimum == document.Minimum(count=3, within=timedelta(minutes=90))
    assert not read.any_fault


def test_a_minimum_alone_selects_any_fault() -> None:
    assert rule(match={"minCount": 1, "within": "1day"}).any_fault
    assert rule().any_fault
    assert not rule(errorCode=["62"]).any_fault


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_bounds_of_the_minimum_count(count: int) -> None:
    minimum = document.Minimum(count=count, within=timedelta(hours=1))
    assert rule(match={"minCount": count, "within": "1h"}).minimum == minimum


@pytest.mark.parametrize("kind", ["xid", "sxid", "check"])
def test_every_kind_is_accepted(kind: str) -> None:
    read = rule(match={"kinds": [kind]})
    assert (read.kinds, read.any_fault) == ((kind,), False)


@pytest.mark.parametrize("value", [{}, [], "sxid", 7, False])
def test_match_is_a_mapping(value: object) -> None:
    message = (
        "match must be a mapping with at least one of sxid, checks, codes, kinds, applicationFaults, minCount, within"
    )
    assert rule_problems(match=value) == [(("match",), message)]


@pytest.mark.parametrize(
    ("match", "path", "message"),
    [
        (
            {"sxids": ["1"]},
            ("sxids",),
            "Unknown key 'sxids': known keys are sxid, checks, codes, kinds, applicationFaults, minCount, within"
            " (did you mean sxid?)",
        ),
        ({"sxid": []}, ("sxid",), "sxid must be a list with at least one entry: add one, or remove sxid"),
        ({"sxid": "12028"}, ("sxid",), "sxid must be a list with at least one entry: add one, or remove sxid"),
        ({"checks": None}, ("checks",), "checks must be a list with at least one entry: add one, or remove checks"),
        ({"sxid": [12028]}, ("sxid", 0), 'An SXid code is a string of digits: write "12028", not 12028.'),
        ({"sxid": ["x"]}, ("sxid", 0), "An SXid code is a string of digits: write \"12028\" for example, not 'x'."),
        ({"sxid": [True]}, ("sxid", 0), 'An SXid code is a string of digits: write "12028" for example, not True.'),
        ({"sxid": ["1", "1"]}, ("sxid", 1), "1 appears twice"),
        ({"checks": [7]}, ("checks", 0), '7 is not a check name: write "remapped" for example'),
        ({"checks": ["A b"]}, ("checks", 0), "'A b' is not a check name: write \"remapped\" for example"),
        (
            {"kinds": ["sxids"]},
            ("kinds", 0),
            "Unknown kind 'sxids': use one of xid, sxid, check, agent, preflight, pod, other, condition, alert, event,"
            " health, gpud, overflow (did you mean sxid?)",
        ),
        ({"kinds": [["xid"]]}, ("kinds", 0), None),
        ({"minCount": 3}, ("minCount",), 'minCount needs within: write within: "1h" beside it, for example'),
        ({"within": "1h"}, ("within",), "within needs minCount: write minCount: 3 beside it, for example"),
        (
            {"minCount": 0, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not 0",
        ),
        (
            {"minCount": True, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not True",
        ),
        (
            {"minCount": 1_000_001, "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not 1000001",
        ),
        (
            {"minCount": "3", "within": "1h"},
            ("minCount",),
            "minCount must be a whole number from 1 to 1000000, not '3'",
        ),
        ({"minCount": 2, "within": 60}, ("within",), 'within must be a string: write "60min"'),
        (
            {"minCount": 2, "within": ""},
            ("within",),
            'within must be greater than zero: write "20min" for example, or remove it',
        ),
        (
            {"minCount": 2, "within": "0min"},
            ("within",),
            'within must be greater than zero: write "20min" for example, or remove it',
        ),
    ],
)
def test_an_invalid_match_is_a_problem(match: object, path: tuple[str | int, ...], message: str | None) -> None:
    [(found, said)] = rule_problems(match=match)
    assert found == ("match", *path)
    assert message is None or said == message


@pytest.mark.parametrize(
    "fields",
    [
        {"errorCode": ["79"], "match": {"kinds": ["agent", "xid"]}},
        {"match": {"kinds": ["agent", "sxid"], "sxid": ["1"]}},
        {"match": {"kinds": ["agent", "check"], "checks": ["dcgm"]}},
        {"match": {"kinds": ["agent", "event"], "codes": {"event": ["XidError"]}}},
    ],
)
def test_a_kind_beside_its_codes_selects_these_codes_only(fields: dict[str, Any]) -> None:
    read = rule(**fields)
    assert (read.kinds, read.any_fault) == (("agent",), False)
    alone = rule(**(fields | {"match": fields["match"] | {"kinds": fields["match"]["kinds"][1:]}}))
    assert (alone.kinds, alone.any_fault) == ((), False)


@pytest.mark.parametrize("value", [True, False])
def test_a_whole_kind_may_leave_application_faults_out(value: bool) -> None:
    read = rule(match={"kinds": ["pod"], "applicationFaults": value})
    assert (read.kinds, read.application_faults) == (("pod",), value)
    assert rule(match={"kinds": ["pod"]}).application_faults


@pytest.mark.parametrize(
    ("match", "code"),
    [
        ({"kinds": ["pod"], "applicationFaults": "false"}, "match_application_faults"),
        ({"kinds": ["pod"], "applicationFaults": 0}, "match_application_faults"),
        ({"kinds": ["pod"], "applicationFaults": None}, "match_application_faults"),
        ({"applicationFaults": False}, "match_companion"),
        ({"checks": ["remapped"], "applicationFaults": True}, "match_companion"),
    ],
)
def test_leaving_application_faults_out_needs_a_boolean_and_a_kind(match: object, code: str) -> None:
    [problem] = rule_reasons(match=match)
    assert (problem.path[-2:], problem.reason.code) == (("match", "applicationFaults"), code)


def test_codes_by_kind() -> None:
    codes = {"event": ["XidError"], "condition": ["GpuFailed=True/Xid Error"], "preflight": ["slow"]}
    read = rule(match={"codes": codes})
    assert read.phrases == {kind: tuple(listed) for kind, listed in codes.items()}
    assert (read.any_fault, read.listed["event"], read.listed["xid"]) == (False, ("XidError",), ())
    assert document.render_rule(read)["match"] == {"codes": codes}
    assert rule(match={"codes": {"pod": ["a" * 128]}}).phrases["pod"] == ("a" * 128,)


@pytest.mark.parametrize(
    ("codes", "path", "code"),
    [
        ([], (), "match_codes_type"),
        ({}, (), "match_codes_type"),
        (None, (), "match_codes_type"),
        ({"xid": ["62"]}, ("xid",), "unknown_key"),
        ({"event": []}, ("event",), "list_empty"),
        ({"event": ["a", "a"]}, ("event", 1), "listed_twice"),
        ({"event": ["a" * 129]}, ("event", 0), "match_code_invalid"),
        ({"event": ["a\nb"]}, ("event", 0), "match_code_invalid"),
        ({"event": [7]}, ("event", 0), "match_code_invalid"),
        ({"preflight": ["Slow"]}, ("preflight", 0), "match_code_invalid"),
    ],
)
def test_invalid_codes_by_kind(codes: object, path: tuple[Any, ...], code: str) -> None:
    [problem] = rule_reasons(match={"codes": codes})
    assert (problem.path[-len(path) - 2 :], problem.reason.code) == (("match", "codes", *path), code)


def test_an_error_of_codes_names_the_accepted_values() -> None:
    [problem] = rule_reasons(match={"codes": []})
    assert problem.reason == reasons.of(
        "match_codes_type", known="pod, condition, alert, event, health, gpud, preflight, agent, other"
    )
    [problem] = rule_reasons(match={"codes": {"preflight": ["Slow"]}})
    form = fault.CODE_WORD.pattern
    assert problem.reason == reasons.of("match_code_invalid", code="'Slow'", kind="preflight", form=form)
