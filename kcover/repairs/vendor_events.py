"""What a vendor may do with its repairs through signed events, and in which states.

A vendor never closes a repair: that needs a passed validation. It cannot take up a repair that was refused, because
that one is back with the role that reported it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kcover import reasons
from kcover.repairs.repairs import OPEN, Move, State

MAX_DUE_DAYS: Final = 365  # a vendor cannot silence a reminder for longer
PLANS: Final = frozenset({"ticket", "due", "assignee", "part", "action"})
IN_HAND: Final = (State.REPORTED, State.ACCEPTED, State.IN_REPAIR)  # the vendor's turn


class VendorEvent(StrEnum):
    """What happened, as the vendor says it."""

    ACCEPT = "accept"
    HAND_OVER = "hand-over"
    RETURN = "return"
    REFUSE = "refuse"
    UPDATE = "update"
    COMMENT = "comment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One event: the states in which it is possible, the details that it may give, and whether it needs a comment.

    ``move``: of the repair; None if its state stays.
    """

    sources: tuple[State, ...]
    move: Move | None = None
    details: frozenset[str] = frozenset()
    comment: bool = False


SCOPES: Final[Mapping[VendorEvent, Scope]] = {
    VendorEvent.ACCEPT: Scope(sources=(State.REPORTED,), move=Move.ACCEPT, details=PLANS),
    VendorEvent.HAND_OVER: Scope(sources=(State.ACCEPTED,), move=Move.HAND_OVER, details=PLANS),
    VendorEvent.RETURN: Scope(
        sources=(State.IN_REPAIR,), move=Move.RETURN, details=frozenset({"ticket", "part", "action", "machine"})
    ),
    VendorEvent.REFUSE: Scope(sources=IN_HAND, move=Move.REFUSE, details=frozenset({"ticket"}), comment=True),
    VendorEvent.UPDATE: Scope(sources=IN_HAND, details=PLANS),
    VendorEvent.COMMENT: Scope(sources=OPEN, comment=True),
}


_STEPS: Final[Mapping[VendorEvent, State]] = {
    VendorEvent.ACCEPT: State.ACCEPTED,
    VendorEvent.HAND_OVER: State.IN_REPAIR,
    VendorEvent.RETURN: State.RETURNED,
}


def possible(state: State) -> tuple[VendorEvent, ...]:
    """The events that are possible in a state, in the order of ``VendorEvent``."""
    return tuple(event for event, scope in SCOPES.items() if state in scope.sources)


def refusal(state: State, event: VendorEvent) -> reasons.Reason | None:
    """The reason why the event is not possible now; None if it is."""
    if state in SCOPES[event].sources:
        return None
    known = ", ".join(possible(state))
    if not known:
        return reasons.of("repair_closed_already")
    return reasons.of("repair_verb_not_now", verb=event.value, state=state.value, possible=known)


def towards(state: State, target: State) -> tuple[VendorEvent, ...]:
    """The events that lead a repair to the target; none if it is there or beyond. Whether they are possible is open."""
    if target is State.REFUSED:
        return () if state in (State.REFUSED, State.CLOSED) else (VendorEvent.REFUSE,)
    if state is State.REFUSED:
        return (VendorEvent.ACCEPT,)  # never possible: it is back with the role that reported it
    passed = list(State).index(state)
    return tuple(
        event for event, reached in _STEPS.items() if passed < list(State).index(reached) <= list(State).index(target)
    )


def surplus(event: VendorEvent, details: Collection[str]) -> list[str]:
    """The details that the event may not give, in their order."""
    return [name for name in details if name not in SCOPES[event].details]
