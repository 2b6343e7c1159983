"""The life cycle of a repair: its states, the moves of people, and what it needs before it may be closed.

A repair is about one part of one machine. People take it from ``reported`` to ``returned``. The portal sees when the
returned machine is validated. Only a passed validation closes the repair.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from kcover import reasons
from kcover.plans import lifecycle

MAX_DUE_YEARS: Final = 10  # from now to the next date of a repair
UNATTENDED_AFTER: Final = timedelta(hours=24)  # without an owner or a date, a repair needs attention


ROLE_OWNER: Final = "role:"  # before the name of a role that owns a repair: its members see to it


class State(StrEnum):
    """The states, in the order in which a repair takes them."""

    REPORTED = "reported"
    ACCEPTED = "accepted"
    IN_REPAIR = "in_repair"
    RETURNED = "returned"
    VALIDATING = "validating"
    CLOSED = "closed"
    REFUSED = "refused"


class Move(StrEnum):
    """The moves by which people change the state of a repair. (REST: ``verb``.)"""

    ACCEPT = "accept"
    HAND_OVER = "hand-over"
    RETURN = "return"
    CLOSE = "close"
    REFUSE = "refuse"


class Validation(StrEnum):
    """The states of the validation of a machine since it was returned."""

    MISSING = "missing"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    OTHER_MACHINE = "other_machine"  # only another machine was validated under the node's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The sick part of a machine. ``kind``: ``gpu``, ``nic`` ...; ``node``: the machine as a whole."""

    kind: str = "node"
    serial: str = ""
    slot: str = ""

    def __str__(self) -> str:
        return " ".join(value for value in (self.kind, self.slot, self.serial) if value)


# The kinds of parts that forms offer. Another word in lower case is accepted as well.
PART_KINDS: Final = (
    *("node", "gpu", "board", "nvswitch", "nic", "cable", "disk", "memory", "cpu", "power-supply", "cooling"),
)

# A machine that fails its validation goes back to ``accepted``: it must be handed over again.
REPAIR: Final[lifecycle.Table] = {
    State.REPORTED: frozenset({State.ACCEPTED, State.REFUSED}),
    State.ACCEPTED: frozenset({State.IN_REPAIR, State.REFUSED}),
    State.IN_REPAIR: frozenset({State.RETURNED, State.REFUSED}),
    State.RETURNED: frozenset({State.VALIDATING, State.ACCEPTED, State.REFUSED, State.CLOSED}),
    State.VALIDATING: frozenset({State.RETURNED, State.ACCEPTED, State.REFUSED, State.CLOSED}),
    State.CLOSED: frozenset(),
    State.REFUSED: frozenset({State.ACCEPTED, State.CLOSED}),
}
AT_THE_DESK: Final = (State.RETURNED, State.VALIDATING)  # the machine is back and awaits its validation
OPEN: Final = tuple(state for state in State if state is not State.CLOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The states in which a move is possible, and the state that follows."""

    sources: tuple[State, ...]
    target: State


TRANSITIONS: Final[Mapping[Move, Transition]] = {
    Move.ACCEPT: Transition(sources=(State.REPORTED, State.REFUSED), target=State.ACCEPTED),
    Move.HAND_OVER: Transition(sources=(State.ACCEPTED,), target=State.IN_REPAIR),
    Move.RETURN: Transition(sources=(State.IN_REPAIR,), target=State.RETURNED),
    Move.CLOSE: Transition(sources=(*AT_THE_DESK, State.REFUSED), target=State.CLOSED),
    Move.REFUSE: Transition(
        sources=(State.REPORTED, State.ACCEPTED, State.IN_REPAIR, *AT_THE_DESK), target=State.REFUSED
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a vendor: days until a repair is accepted, and until a machine is returned; None: not agreed."""

    accept_days: int | None = None
    return_days: int | None = None

    def due(self, state: State, *, now: datetime) -> datetime | None:
        """The next date of a repair that enters the state now; None if the terms name none."""
        days = {State.REPORTED: self.accept_days, State.IN_REPAIR: self.return_days}.get(state)
        return now + timedelta(days=days) if days is not None else None


MAX_TERM_DAYS: Final = 365
_NOT_VALIDATED: Final[Mapping[Validation, str]] = {
    Validation.MISSING: "repair_not_validated",
    Validation.RUNNING: "repair_validation_runs",
    Validation.FAILED: "repair_validation_failed",
    Validation.OTHER_MACHINE: "repair_other_machine",
}


def possible(state: State) -> tuple[Move, ...]:
    """The moves that are possible in a state, in the order of ``Move``."""
    return tuple(move for move, transition in TRANSITIONS.items() if state in transition.sources)


def refusal(state: State, move: Move, validation: Validation) -> reasons.Reason | None:
    """The reason why the move is not possible now; None if it is. ``validation`` matters to ``close`` only."""
    if state not in TRANSITIONS[move].sources:
        known = ", ".join(possible(state))
        if not known:
            return reasons.of("repair_closed_already")
        return reasons.of("repair_verb_not_now", verb=move.value, state=state.value, possible=known)
    if move is Move.CLOSE and validation is not Validation.PASSED:
        return reasons.of(_NOT_VALIDATED[validation])
    return None


def after_validation(state: State, validation: Validation) -> State:
    """The state of a repair once the portal has looked at the validation of its machine; the same if nothing changed.

    A passed validation is shown as ``validating`` until a person closes the repair. One that was cancelled or that
    proved nothing leaves the machine ``returned``, as does one of another machine.
    """
    if state not in AT_THE_DESK:
        return state
    if validation in (Validation.MISSING, Validation.OTHER_MACHINE):
        return State.RETURNED
    return State.ACCEPTED if validation is Validation.FAILED else State.VALIDATING


def need(*, assignee: str, due: datetime | None, opened_at: datetime, now: datetime) -> reasons.Reason | None:
    """The reason why an open repair needs attention: it is overdue, or has no owner or no date; None if it does not."""
    if due is not None and due < now:
        return reasons.of("repair_overdue", due=reasons.moment(due))
    if now - opened_at < UNATTENDED_AFTER or (assignee and due is not None):
        return None
    span = reasons.span(UNATTENDED_AFTER)
    return reasons.of("repair_without_date" if assignee else "repair_without_owner", span=span)
