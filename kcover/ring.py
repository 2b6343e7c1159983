"""A ring of nodes, each measured against each other in both directions, as Autopilot's iperf (semantics section 3).

Of n nodes there are n - 1 time steps. In step s each node sends to the one s places further on, all at the same time:
nobody sends to two, nobody is sent to by two, and after the last step every pair was measured.
"""

from collections.abc import Sequence
from typing import TypeVar

Member = TypeVar("Member")


def steps(size: int) -> int:
    """How many time steps a ring of so many nodes has."""
    return max(size - 1, 0)


def pairs(members: Sequence[Member], step: int) -> list[tuple[Member, Member]]:
    """Who sends to whom in a step, which counts from 1."""
    return [(one, members[(place + step) % len(members)]) for place, one in enumerate(members)]
