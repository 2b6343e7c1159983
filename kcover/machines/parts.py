"""Hardware by serial number: who has a part that two nodes report, and whether faults follow the part or the slot."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from kcover import reasons

MAX_OPEN: Final = 8  # placements of a part; a number that more nodes report identifies nothing
MAX_NEW_A_DAY: Final = 300  # placements of one node: three times all parts that an inventory can have
MAX_OF_NODE: Final = 2000  # placements of one node; then the oldest ended ones are forgotten
# A node that had the part is asked for it for this long. Agents read their inventory every 60 s, and report every 30 s.
RECHECK_AFTER: Final = timedelta(minutes=2)
SILENT_FOR: Final = timedelta(minutes=10)  # a machine that is silent for so long no longer claims its parts
FAULTS_COUNT_FOR: Final = timedelta(days=28)  # before a part was removed
GRAVE: Final = ("degraded", "fatal")  # severities of the faults that count


class Kind(StrEnum):
    """The kinds of parts that have a passport."""

    GPU = "gpu"
    NIC = "nic"
    BOARD = "board"
    MACHINE = "machine"


class Claim(StrEnum):
    """What is known about a part that another node had when this one reported it."""

    OPEN = "open"
    MOVED = "moved"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A part in an inventory. ``slot``: its PCI address; ``device``: a GPU's UUID, the names of an adapter's ports."""

    kind: Kind
    serial: str
    slot: str = ""
    device: str = ""
    model: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies a part in a slot."""
        return self.kind, self.serial, self.slot


def claim(*, claimed_at: datetime, other_seen_at: datetime | None, now: datetime) -> Claim:
    """Whether the part moved here from the other node, whose last inventory still lists it.

    ``other_seen_at``: the other agent's last report; None if that node left the cluster. An agent that still reports
    some time after the claim has looked at its parts since. One that has been silent since before may have lost it.
    """
    if other_seen_at is None:
        return Claim.MOVED
    if other_seen_at >= claimed_at + RECHECK_AFTER:
        return Claim.CONFLICT
    return Claim.MOVED if now - other_seen_at >= SILENT_FOR else Claim.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultAt:
    """A part that failed in a slot; a slot is a place of one node."""

    serial: str
    slot: str


def follows(serial: str, faults: Collection[FaultAt]) -> reasons.Reason | None:
    """Whether faults follow this part or one of its slots, as a sentence; None if the data do not say so.

    ``faults``: of this part, and of other parts in the slots where it has been. One of them must rule out the other:
    a part that failed in two slots, neither of which failed another part, or a slot that failed two parts, of which
    this one failed nowhere else.
    """
    own = {one.slot for one in faults if one.serial == serial}
    others: Mapping[str, set[str]] = defaultdict(set)
    for one in faults:
        if one.serial != serial:
            others[one.slot].add(one.serial)
    bad_slots = [slot for slot in sorted(own) if others.get(slot)]
    if len(own) > 1 and not bad_slots:
        return reasons.of("fault_follows_part", count=len(own))
    if len(own) == 1 and bad_slots:
        (slot,) = bad_slots
        return reasons.of("fault_follows_slot", slot=slot, count=len(others[slot]) + 1)
    return None
