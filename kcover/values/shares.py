"""Equal shares for owners: one owner of many things takes no place from the owners of few."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turns(items: Iterable[T], owner: Callable[[T], Hashable]) -> list[T]:
    """The items in their order, but the first of every owner before the second of any."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(owner(item), []).append(item)
    numbered = [(number, item) for mine in found.values() for number, item in enumerate(mine)]
    return [item for _, item in sorted(numbered, key=lambda pair: pair[0])]


def rotated(items: Sequence[T], owner: Callable[[T], Hashable], *, most: int, turn: int) -> list[T]:
    """At most ``most`` items, as many of each owner. The next ``turn`` goes on where this one ended.

    All turns together are one endless round over the owners, and for each owner a round over its items.
    """
    if len(items) <= most:
        return list(items)
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(owner(item), []).append(item)
    owners = list(found.values())
    chosen: dict[tuple[int, int], T] = {}
    for place in range(turn * most, (turn + 1) * most):
        visit, which = divmod(place, len(owners))
        index = visit % len(owners[which])
        chosen[which, index] = owners[which][index]
    return list(chosen.values())
