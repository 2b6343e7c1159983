"""Sharing out a limited number of places."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_turns(queues: Sequence[Sequence[Item]], *, limit: int) -> list[Item]:
    """The first ``limit`` items, one of each queue in turn, so that a long queue does not keep the others waiting."""
    rows = min(max(map(len, queues), default=0), limit)
    return [queue[row] for row in range(rows) for queue in queues if row < len(queue)][:limit]
