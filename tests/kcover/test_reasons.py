"""Reasons: as data, as English, as any other language."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from kcover import reasons, sentences
from kcover.decisions import guards
from kcover.sentences import named_places

PAUSED = reasons.of("paused_because", why="look first")
MISMATCH = reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("lists_others", listed="48, 63", code="62"))


def test_a_reason_is_rendered_in_english() -> None:
    assert str(PAUSED) == "Automation is paused: look first"
    assert str(reasons.of("paused")) == "Automation is paused."


def test_a_reason_may_name_another() -> None:
    assert str(MISMATCH) == "Rule kce#1 does not apply. It covers 48, 63, not 62."


def test_a_reason_is_rendered_in_the_callers_language() -> None:
    german = {
        "Rule {rule} does not apply. {why}": "Regel {rule} passt nicht: {why}",
        "It covers {listed}, not {code}.": "sie nennt nicht {code}, nur {listed}",
    }
    assert MISMATCH.say(german.__getitem__) == "Regel kce#1 passt nicht: sie nennt nicht 62, nur 48, 63"


def test_text_in_a_parameter_is_not_rendered_as_a_template() -> None:
    assert str(reasons.of("paused_because", why="{why} {0} %s")) == "Automation is paused: {why} {0} %s"


def test_an_unknown_code_is_no_reason() -> None:
    with pytest.raises(KeyError):
        reasons.of("whim")


@pytest.mark.parametrize("params", [{}, {"why": "x", "who": "y"}, {"who": "y"}])
def test_the_parameters_of_a_reason_match_its_sentence(params: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"reason paused_because has the parameters \['why'\], not \["):
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
    "data",
    [
        "everything is paused",
        {"code": "whim", "params": {}},
        {"code": "paused_because", "params": {"who": "anna"}},
        {"code": "paused_because", "params": {"why": "x", "who": "anna"}},
        {"code": "paused_because", "params": {"why": None}},
        {"code": "paused"},
        {"code": 7},
        {},
        None,
    ],
)
def test_invalid_json_of_a_reason_is_an_error(data: object) -> None:
    with pytest.raises(ValueError, match="not a reason: "):
        reasons.from_json(data)


def test_an_empty_column_has_no_reason() -> None:
    assert (reasons.kept({}), reasons.text({})) == (None, "")
    assert (reasons.kept(PAUSED.to_json()), reasons.text(PAUSED.to_json())) == (PAUSED, str(PAUSED))


def test_several_reasons_in_a_row() -> None:
    isolated = reasons.of("nothing_done")
    both = reasons.both(PAUSED, None, isolated)
    assert str(both) == "Automation is paused: look first. Nothing was done."
    assert (both.parts, isolated.parts) == ((PAUSED, isolated), (isolated,))
    assert reasons.both(both, isolated).parts == (PAUSED, isolated, isolated)
    assert reasons.both(isolated) == isolated
    assert reasons.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_several_reasons_in_a_row_in_another_language() -> None:
    chinese = {"Automation is paused.": "自动化已暂停。", "Nothing was done.": "未执行任何操作。"}
    assert reasons.both(reasons.of("paused"), reasons.of("nothing_done")).say(chinese.__getitem__) == (
        "自动化已暂停。未执行任何操作。"
    )


def test_a_list_of_reasons_is_a_parameter() -> None:
    removed = reasons.of(
        "marks_removed", changes=(reasons.of("change_cordon"), reasons.of("change_label", label="a/b"))
    )
    assert str(removed) == "Removed: cordon, label a/b."
    assert reasons.from_json(json.loads(json.dumps(removed.to_json()))) == removed


@pytest.mark.parametrize(
    ("names", "said"), [([], ""), (["a"], "a"), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")]
)
def test_at_most_so_many_names(names: list[str], said: str) -> None:
    assert str(reasons.named(names, most=2)) == said


def test_free_text_is_a_parameter_where_there_is_some() -> None:
    assert reasons.with_why("cancelled_by", "no need", by="ann").code == "cancelled_by_because"
    assert reasons.with_why("cancelled_by", "", by="ann") == reasons.of("cancelled_by", by="ann")


def test_an_error_that_explains_itself() -> None:
    error = reasons.ExplainedError(PAUSED)
    assert (str(error), error.reason) == (str(PAUSED), PAUSED)


def test_reasons_that_differ_in_figures_are_alike() -> None:
    four, five = reasons.of("plan_limit", limit=4), reasons.of("plan_limit", limit=5)
    assert four != five
    assert reasons.same_but_for_numbers([four], [five])
    assert reasons.same_but_for_numbers([], [])


@pytest.mark.parametrize(
    "others",
    [
        [],
        [PAUSED],
        [MISMATCH, PAUSED],
        [PAUSED, PAUSED],
        [reasons.of("paused_because", why="no"), MISMATCH],
        [PAUSED, reasons.of("rule_mismatch", rule="kce#1", why="It covers 48, 63, not 62.")],
        [PAUSED, reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("lists_others", listed="48", code="62"))],
    ],
)
def test_reasons_that_differ_in_names_or_order_are_not_alike(others: list[reasons.Reason]) -> None:
    assert not reasons.same_but_for_numbers([PAUSED, MISMATCH], others)


def test_a_reason_within_a_reason_is_compared_like_one() -> None:
    def why(rescues: int) -> reasons.Reason:
        return reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("plan_limit", limit=rescues))

    assert reasons.same_but_for_numbers([why(4)], [why(5)])


def test_moments_are_named_in_utc() -> None:
    east = timezone(timedelta(hours=8))
    assert reasons.moment(datetime(2026, 11, 21, 16, 0, 5, 999, tzinfo=east)) == "2026-11-21 08:00:05 UTC"
    assert reasons.moment(datetime(2026, 11, 21, 8, tzinfo=UTC)) == "2026-11-21 08:00:00 UTC"
    with pytest.raises(ValueError, match="2026-11-21 00:00:00 has no time zone"):
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
    assert str(reasons.span(timedelta(seconds=seconds))) == said


@pytest.mark.parametrize(
    ("code", "params", "said"),
    [
        ("scope_rack", {"name": "A-14"}, "rack A-14"),
        ("scope_rack", {"name": "rack-05"}, "rack-05"),
        ("scope_rack", {"name": "Rack05, rack06"}, "Rack05, rack06"),
        ("scope_rack", {"name": "机架5"}, "机架5"),
        ("scope_rack", {"name": "rackable"}, "rack rackable"),
        ("scope_leaf", {"name": "leaf-2"}, "leaf-2"),
        ("scope_pool", {"name": "pool-a"}, "pool-a"),
        ("need_on_nodes_rack", {"n": 3, "value": "rack-05"}, "3 nodes in rack-05"),
        ("need_on_nodes_rack", {"n": 3, "value": "A-14"}, "3 nodes in rack A-14"),
        ("need_on_nodes_leaf", {"n": 3, "value": "leaf-2"}, "3 nodes on leaf-2"),
    ],
)
def test_a_place_is_named_once(code: str, params: dict[str, reasons.Value], said: str) -> None:
    assert str(reasons.of(code, **params)) == said


def test_a_place_is_named_once_in_other_languages() -> None:
    chinese = {"rack {name}": "机架 {name}"}
    racks = [reasons.of("scope_rack", name=name) for name in ("A-14", "rack-05")]
    assert [rack.say(lambda text: chinese.get(text, text)) for rack in racks] == ["机架 A-14", "rack-05"]


def test_sentences_about_named_places_have_the_same_fields() -> None:
    for code, (field, _words, text) in named_places.NAMED.items():
        assert set(re.findall(r"{(\w+)}", text)) == reasons.FIELDS[code]
        assert field in reasons.FIELDS[code]


def test_alternatives_and_sums_are_one_parameter() -> None:
    assert reasons.either(["a"]) == "a"
    assert str(reasons.either(["a", "b", "c"])) == "a or b or c"
    assert str(reasons.together(["a", "b"])) == "a and b"


def test_every_sentence_can_be_rendered() -> None:
    for code in sentences.SENTENCES:
        reason = reasons.of(code, **dict.fromkeys(reasons.FIELDS[code], "N"))
        assert "{" not in str(reason).replace("{N}", ""), code
        assert str(reason).count("N") >= len(reasons.FIELDS[code]), code


@pytest.mark.parametrize("trait", guards.TRAITS)
def test_each_kind_of_storm_has_a_sentence(trait: str) -> None:
    assert reasons.FIELDS[f"storm_of_{trait}"] == {"value"}


def test_an_unknown_code_in_a_lookup_is_an_error() -> None:
    assert reasons.says(PAUSED, "paused_because", "shadow")
    assert reasons.says(reasons.both(reasons.of("shadow"), PAUSED), "shadow")
    assert not reasons.says(PAUSED, "shadow")
    assert not reasons.says(None, "shadow")
    assert reasons.known("shadow", "paused_because") == ("shadow", "paused_because")
    asked: tuple[Callable[[], object], ...] = (
        lambda: reasons.says(None, "shadow", "renamed"),
        lambda: reasons.stored_saying({}, "renamed"),
        lambda: reasons.known("renamed"),
    )
    for ask in asked:
        with pytest.raises(KeyError):
            ask()


def test_the_part_of_a_reason_with_a_code_is_found() -> None:
    joined = reasons.both(reasons.of("shadow"), PAUSED)
    assert reasons.saying(joined, "paused_because") == (PAUSED,) == reasons.stored_saying(joined.to_json(), PAUSED.code)
    assert reasons.saying(None, "shadow") == ()


def test_a_stored_reason_of_a_newer_version_has_no_known_code() -> None:
    newer = {"code": "of_a_newer_version", "params": {}}
    joined = {"code": "all", "params": {"reasons": [reasons.of("shadow").to_json(), newer]}}
    assert [reasons.stored_saying(stored, "shadow") for stored in ({}, newer, joined)] == [(), (), ()]
