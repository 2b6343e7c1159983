"""The life cycle of a repair: every move in every state, the validation before the end, what needs attention."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from kcover.repairs import repairs
from kcover.repairs.repairs import Move, State, Validation

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ALLOWED = {
    (Move.ACCEPT, State.REPORTED): State.ACCEPTED,
    (Move.ACCEPT, State.REFUSED): State.ACCEPTED,
    (Move.HAND_OVER, State.ACCEPTED): State.IN_REPAIR,
    (Move.RETURN, State.IN_REPAIR): State.RETURNED,
    (Move.CLOSE, State.RETURNED): State.CLOSED,
    (Move.CLOSE, State.VALIDATING): State.CLOSED,
    (Move.REFUSE, State.REPORTED): State.REFUSED,
    (Move.REFUSE, State.ACCEPTED): State.REFUSED,
    (Move.REFUSE, State.IN_REPAIR): State.REFUSED,
    (Move.REFUSE, State.RETURNED): State.REFUSED,
    (Move.REFUSE, State.VALIDATING): State.REFUSED,
    (Move.CLOSE, State.REFUSED): State.CLOSED,
}


@pytest.mark.parametrize(("move", "state"), list(itertools.product(Move, State)))
def test_every_move_in_every_state(move: Move, state: State) -> None:
    refusal = repairs.refusal(state, move, Validation.PASSED)
    assert (refusal is None) == ((move, state) in ALLOWED)
    assert (move in repairs.possible(state)) == (refusal is None)
    if refusal is None:
        target = repairs.TRANSITIONS[move].target
        assert target == ALLOWED[move, state]
        assert target in repairs.REPAIR[state]
    else:
        assert refusal.code == ("repair_closed_already" if state is State.CLOSED else "repair_verb_not_now")
        assert str(refusal)


@pytest.mark.parametrize(("state", "validation"), list(itertools.product(repairs.AT_THE_DESK, Validation)))
def test_only_a_passed_validation_closes_a_repair(state: State, validation: Validation) -> None:
    refusal = repairs.refusal(state, Move.CLOSE, validation)
    codes = {
        Validation.MISSING: "repair_not_validated",
        Validation.RUNNING: "repair_validation_runs",
        Validation.FAILED: "repair_validation_failed",
        Validation.OTHER_MACHINE: "repair_other_machine",
    }
    assert (refusal.code if refusal else None) == codes.get(validation)


@pytest.mark.parametrize(("move", "state", "validation"), list(itertools.product(Move, State, Validation)))
def test_other_moves_ignore_the_validation(move: Move, state: State, validation: Validation) -> None:
    if move is not Move.CLOSE:
        assert repairs.refusal(state, move, validation) == repairs.refusal(state, move, Validation.PASSED)


@pytest.mark.parametrize(("state", "validation"), list(itertools.product(State, Validation)))
def test_the_portal_moves_only_machines_that_are_back(state: State, validation: Validation) -> None:
    after = repairs.after_validation(state, validation)
    moved = {Validation.MISSING: State.RETURNED, Validation.FAILED: State.ACCEPTED}
    moved[Validation.OTHER_MACHINE] = State.RETURNED
    assert after is (moved.get(validation, State.VALIDATING) if state in repairs.AT_THE_DESK else state)
    assert after is state or after in repairs.REPAIR[state]


def test_the_table_has_the_moves_of_people_and_of_the_portal_and_no_others() -> None:
    moves = {(state, target) for (_verb, state), target in ALLOWED.items()}
    moves |= {
        (state, repairs.after_validation(state, validation))
        for state, validation in itertools.product(repairs.AT_THE_DESK, Validation)
        if repairs.after_validation(state, validation) is not state
    }
    assert {(old, new) for old, targets in repairs.REPAIR.items() for new in targets} == moves
    assert repairs.REPAIR.keys() == set(State)
    assert set(repairs.OPEN) == {state for state in State if repairs.REPAIR[state]}


def test_each_state_is_reached_from_the_first() -> None:
    reached, left = {State.REPORTED}, [State.REPORTED]
    while left:
        new = {State(one) for one in repairs.REPAIR[left.pop()]} - reached
        reached |= new
        left += new
    assert reached == set(State)


@pytest.mark.parametrize(
    ("assignee", "due", "age", "code"),
    [
        ("ann", NOW + MINUTE, timedelta(days=9), None),
        ("ann", NOW, timedelta(days=9), None),
        ("ann", NOW - MINUTE, MINUTE, "repair_overdue"),
        ("", NOW - MINUTE, timedelta(days=9), "repair_overdue"),
        ("", None, repairs.UNATTENDED_AFTER - MINUTE, None),
        ("", None, repairs.UNATTENDED_AFTER, "repair_without_owner"),
        ("", NOW + MINUTE, repairs.UNATTENDED_AFTER, "repair_without_owner"),
        ("ann", None, repairs.UNATTENDED_AFTER, "repair_without_date"),
    ],
)
def test_an_overdue_unassigned_or_old_repair_needs_a_person(
    assignee: str, due: datetime | None, age: timedelta, code: str | None
) -> None:
    why = repairs.need(assignee=assignee, due=due, opened_at=NOW - age, now=NOW)
    assert (why.code if why else None) == code


def test_a_part_in_words() -> None:
    assert str(repairs.Part()) == "node"
    assert str(repairs.Part(kind="gpu", slot="3", serial="165")) == "gpu 3 165"


def test_the_terms_of_a_vendor_name_two_dates() -> None:
    terms = repairs.Terms(accept_days=1, return_days=3)
    dates = {state: terms.due(state, now=NOW) for state in State}
    assert {state: date - NOW for state, date in dates.items() if date} == {
        State.REPORTED: timedelta(days=1),
        State.IN_REPAIR: timedelta(days=3),
    }
    assert [repairs.Terms().due(state, now=NOW) for state in State] == [None] * len(State)
