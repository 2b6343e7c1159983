"""Which lines of a kernel log tell no fault of their own: a log store has each of them as an entry.

An agent reads the lines of a node in their order, and folds them. Here only the time and the GPU tell which belong
together.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover.faults import driver_line, xid
from kcover.faults.driver_line import TOLD_WITHIN
from kcover.sources.observation import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsupported:
    """A line that says that the driver cannot run a card. ``slot``: the card, None if it names none."""

    node: str
    slot: str | None
    at: datetime


def own(found: Sequence[Observation], cards: Iterable[Unsupported]) -> list[Observation]:
    """The observations without those that others tell: each fault once."""
    by_node: defaultdict[str, list[Observation]] = defaultdict(list)
    for one in found:
        by_node[one.node].append(one)
    kept = {id(one) for alike in by_node.values() for one in _own_of_node(alike)}
    listed = list(cards)
    return [one for one in found if id(one) in kept and not any(_is_explained(one, card) for card in listed)]


def _own_of_node(found: Sequence[Observation]) -> list[Observation]:
    xids = [one for one in found if one.kind == "xid"]
    told = [one for one in found if not any(_is_told_by(one, seen) for seen in xids)]
    adds = [_is_companion(one) for one in told]
    kept = [one for one, only_adds in zip(told, adds, strict=True) if not only_adds]
    for one in itertools.compress(told, adds):
        if not any(_is_added_to(one, seen) for seen in kept):
            kept.append(one)
    return kept


def _is_companion(one: Observation) -> bool:
    line = xid.parse_line(one.message) if one.kind in ("xid", "sxid") else None
    return line is not None and xid.is_companion(line)


def _is_added_to(one: Observation, seen: Observation) -> bool:
    """Returns whether the line only adds to the fault of the other one."""
    slots = {it.device.slot for it in (one, seen) if it.device.slot}
    return (one.kind, one.code) == (seen.kind, seen.code) and len(slots) < 2 and _is_near(one, seen)


def _is_near(one: Observation, seen: Observation) -> bool:
    return one.seen_at is None or seen.seen_at is None or abs(one.seen_at - seen.seen_at) < TOLD_WITHIN


def _is_told_by(one: Observation, seen: Observation) -> bool:
    """Returns whether the Xid says all that the other line says, as for the lines that an agent reads."""
    if one.kind != driver_line.KIND:
        return False
    line, by = (driver_line.Told(it.code, it.device.slot, it.seen_at) for it in (one, seen))
    return driver_line.is_told(line, by)


def _is_explained(one: Observation, card: Unsupported) -> bool:
    """Returns whether the GPU did not start because the driver cannot run it: a setting, not a fault."""
    if (one.kind, one.code, one.node) != (driver_line.KIND, driver_line.INIT_FAILED, card.node):
        return False
    is_other = bool(one.device.slot and card.slot and one.device.slot != card.slot)
    return not is_other and one.seen_at is not None and abs(one.seen_at - card.at) < TOLD_WITHIN
