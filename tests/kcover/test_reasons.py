"""Reasons: as data, as English, as any other language; what older versions kept stays readable."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kcover import reasons

PAUSED = reasons.of("paused_because", why="look first")
MISMATCH = reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("lists_others", listed="48, 63", code="62"))


def test_a_reason_is_said_in_english() -> None:
    assert str(PAUSED) == "everything is paused: look first"
    assert str(reasons.of("paused")) == "everything is paused"


def test_a_reason_may_name_another() -> None:
    assert str(MISMATCH) == "rule kce#1 does not match: it lists 48, 63, not 62"


def test_a_reason_is_said_in_the_callers_language() -> None:
    german = {
        "rule {rule} does not match: {why}": "Regel {rule} passt nicht: {why}",
        "it lists {listed}, not {code}": "sie nennt nicht {code}, nur {listed}",
    }
    assert MISMATCH.say(german.__getitem__) == "Regel kce#1 passt nicht: sie nennt nicht 62, nur 48, 63"


def test_what_a_parameter_holds_is_no_template() -> None:
    assert str(reasons.of("paused_because", why="{why} {0} %s")) == "everything is paused: {why} {0} %s"


def test_an_unknown_code_is_no_reason() -> None:
    with pytest.raises(KeyError):
        reasons.of("whim")


@pytest.mark.parametrize("params", [{}, {"why": "x", "who": "y"}, {"who": "y"}])
def test_a_reason_has_what_its_sentence_names(params: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"reason paused_because speaks of \['why'\], not of \["):
        reasons.of("paused_because", **params)


def test_reasons_are_values() -> None:
    one = reasons.of("rule_matches", rule="a", priority=1, kind="xid", code="62")
    other = reasons.of("rule_matches", code="62", kind="xid", priority=1, rule="a")
    assert one == other
    assert len({one, other, PAUSED}) == 2
    assert one.params == (("code", "62"), ("kind", "xid"), ("priority", 1), ("rule", "a"))


def test_a_reason_as_json() -> None:
    assert PAUSED.to_json() == {"code": "paused_because", "params": {"why": "look first"}}
    assert MISMATCH.to_json() == {
        "code": "rule_mismatch",
        "params": {"rule": "kce#1", "why": {"code": "lists_others", "params": {"listed": "48, 63", "code": "62"}}},
    }


@pytest.mark.parametrize("reason", [PAUSED, MISMATCH, reasons.of("plan_limit", limit=5), reasons.of("paused")])
def test_json_there_and_back(reason: reasons.Reason) -> None:
    assert reasons.from_json(json.loads(json.dumps(reason.to_json()))) == reason


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("everything is {paused}", "everything is {paused}"),
        ({"code": "whim", "params": {"a": 1, "b": "c"}}, "whim a=1 b=c"),
        ({"code": "whim", "params": {}}, "whim"),
        ({"code": "paused_because", "params": {"who": "anna"}}, "paused_because who=anna"),
        ({"code": "paused_because", "params": {"why": "x", "who": "anna"}}, "paused_because why=x who=anna"),
        ({"code": "paused_because", "params": {"why": None}}, "everything is paused: None"),
        ({"code": 7}, "{'code': 7}"),
        ({"code": "paused"}, "{'code': 'paused'}"),
        (None, "None"),
    ],
)
def test_what_another_version_kept_stays_readable(kept: object, said: str) -> None:
    assert str(reasons.from_json(kept)) == said


def test_reasons_that_differ_in_figures_are_alike() -> None:
    four, five = reasons.of("plan_limit", limit=4), reasons.of("plan_limit", limit=5)
    assert four != five
    assert reasons.alike([four], [five])
    assert reasons.alike([], [])


@pytest.mark.parametrize(
    "others",
    [
        [],
        [PAUSED],
        [MISMATCH, PAUSED],
        [PAUSED, PAUSED],
        [reasons.of("paused_because", why="no"), MISMATCH],
        [PAUSED, reasons.of("rule_mismatch", rule="kce#1", why="it lists 48, 63, not 62")],
        [PAUSED, reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("lists_others", listed="48", code="62"))],
    ],
)
def test_reasons_that_differ_in_names_or_order_are_not(others: list[reasons.Reason]) -> None:
    assert not reasons.alike([PAUSED, MISMATCH], others)


def test_a_reason_within_a_reason_is_compared_like_one() -> None:
    def why(rescues: int) -> reasons.Reason:
        return reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("plan_limit", limit=rescues))

    assert reasons.alike([why(4)], [why(5)])


def test_moments_are_named_in_utc() -> None:
    east = timezone(timedelta(hours=8))
    assert reasons.moment(datetime(2026, 11, 21, 16, 0, 5, 999, tzinfo=east)) == "2026-11-21 08:00:05 UTC"
    assert reasons.moment(datetime(2026, 11, 21, 8, tzinfo=UTC)) == "2026-11-21 08:00:00 UTC"
    with pytest.raises(ValueError, match="2026-11-21 00:00:00 has no zone"):
        reasons.moment(datetime(2026, 11, 21))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (90, "90 s"),
        (300, "5 min"),
        (3600, "1 h"),
        (5400, "90 min"),
        (86400, "1 d"),
        (90000, "25 h"),
        (604800, "7 d"),
    ],
)
def test_lengths_of_time_are_named_in_the_largest_whole_unit(seconds: int, said: str) -> None:
    assert reasons.span(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize("code", reasons.TEXTS)
def test_every_text_can_be_said(code: str) -> None:
    reason = reasons.of(code, **dict.fromkeys(reasons.FIELDS[code], "N"))
    assert "{" not in str(reason).replace("{N}", "")
    assert str(reason).count("N") >= len(reasons.FIELDS[code])
