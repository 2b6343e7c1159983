"""The mark of a probation: what a node's annotation says, and what is no mark."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kcover.nodes import probation_mark
from kcover.nodes.probation_mark import ProbationMark

MARK = ProbationMark(
    probation=3,
    rescue=7,
    until=datetime(2026, 11, 22, 8, 0, tzinfo=UTC),
    tainted=False,
    label_before="soon",
    state_before="theirs",
)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert probation_mark.parse(MARK.render()) == MARK
    assert probation_mark.read(MARK.to_json()) == MARK
    bare = replace(MARK, tainted=True, label_before=None, state_before=None)
    assert probation_mark.parse(bare.render()) == bare


def test_the_text_is_short_and_always_the_same() -> None:
    assert MARK.render() == (
        '{"before":{"label":"soon","state":"theirs"},"probation":3,"rescue":7,"tainted":false,'
        '"until":"2026-11-22T08:00:00+00:00"}'
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '"x"', "not json", '{"probation": 1}', "[" * 100_000])
def test_other_texts_are_no_mark(text: str) -> None:
    assert probation_mark.parse(text) is None


CHANGES: tuple[dict[str, object], ...] = (
    {"until": "soon"},
    {"until": 3},
    {"until": "2026-11-22T08:00:00"},  # no time zone
    {"before": []},
    {"rescue": "x"},
    {"tainted": 1},
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_mark_with_another_value_is_not_guessed(change: dict[str, object]) -> None:
    found = probation_mark.parse(json.dumps({**MARK.to_json(), **change}))
    assert found is None or (change == {"tainted": None} and not found.tainted)
