"""The tables of legal transitions, repeated here so that no transition is added or lost by mistake."""

import itertools

import pytest

from kcover.plans import lifecycle

MOVES = {
    "incident": (lifecycle.INCIDENT, {("open", "closed")}),
    "rescue": (
        lifecycle.RESCUE,
        {
            *itertools.product(["held"], ["running", "waiting", "failed", "cancelled"]),
            *itertools.product(["waiting"], ["running", "held", "failed", "cancelled"]),
            *itertools.product(["running"], ["waiting", "held", "succeeded", "failed", "cancelled"]),
        },
    ),
    "step": (
        lifecycle.STEP,
        {
            *itertools.product(["pending"], ["running", "skipped", "cancelled"]),
            *itertools.product(["running"], ["waiting", "done", "failed", "skipped", "cancelled"]),
            *itertools.product(["waiting"], ["running", "failed", "skipped", "cancelled"]),
            *itertools.product(["failed"], ["running", "skipped", "cancelled"]),
        },
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_exactly_these_transitions_are_legal(name: str) -> None:
    table, moves = MOVES[name]
    assert {(old, new) for old in table for new in table if lifecycle.allows(table, old, new)} == moves


@pytest.mark.parametrize("name", MOVES)
def test_every_target_is_another_known_state(name: str) -> None:
    table, _ = MOVES[name]
    for old, targets in table.items():
        assert targets <= table.keys()
        assert old not in targets


@pytest.mark.parametrize("name", MOVES)
def test_sources_are_the_inverse_of_the_table(name: str) -> None:
    table, moves = MOVES[name]
    for new in table:
        assert lifecycle.sources(table, new) == tuple(old for old in table if (old, new) in moves)


def test_a_rescue_succeeds_only_while_it_runs() -> None:
    assert lifecycle.sources(lifecycle.RESCUE, "succeeded") == ("running",)
    assert lifecycle.sources(lifecycle.RESCUE, "held") == ("waiting", "running")


@pytest.mark.parametrize("state", ["", "Open", "done"])
def test_an_unknown_state_is_an_error(state: str) -> None:
    with pytest.raises(KeyError):
        lifecycle.allows(lifecycle.RESCUE, "running", state)
    with pytest.raises(KeyError):
        lifecycle.allows(lifecycle.RESCUE, state, "running")
    with pytest.raises(KeyError):
        lifecycle.sources(lifecycle.RESCUE, state)


def test_every_state_is_open_or_closed() -> None:
    assert lifecycle.OPEN_RESCUE == ("held", "waiting", "running")
    assert lifecycle.CLOSED_RESCUE == ("succeeded", "failed", "cancelled")
    assert {*lifecycle.OPEN_RESCUE, *lifecycle.CLOSED_RESCUE} == lifecycle.RESCUE.keys()
    for state in lifecycle.CLOSED_RESCUE:
        assert lifecycle.RESCUE[state] == frozenset()
    assert lifecycle.FINISHED_STEP == ("done", "skipped", "cancelled")
    for state in lifecycle.FINISHED_STEP:
        assert lifecycle.STEP[state] == frozenset()
