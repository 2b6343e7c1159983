"""A ring of nodes that measures every pair in both directions, as Autopilot's iperf does.

A ring of n nodes has n - 1 time steps. In step s, each node sends to the node s places further on, all at the same
time. So each node sends to one node and receives from one node, and after the last step every pair was measured.
"""

from collections.abc import Sequence
from typing import TypeVar

Member = TypeVar("Member")


def step_count(size: int) -> int:
    """The number of time steps of a ring of ``size`` nodes."""
    return max(size - 1, 0)


def pairs(members: Sequence[Member], step: int) -> list[tuple[Member, Member]]:
    """The (sender, receiver) pairs of a step; steps count from 1."""
    return [(sender, members[(index + step) % len(members)]) for index, sender in enumerate(members)]
