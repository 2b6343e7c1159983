"""Repairs that a rescue opens. The app of the repairs is above this one, so it registers its desk here."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from kcover.reasons import Reason
from kcover_portal.rescue.models import Rescue


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A repair of the node of a rescue. ``vendor`` and ``queue``: "" leaves them to people."""

    rescue: Rescue
    vendor: str
    queue: str
    because: Reason


class RepairDesk(Protocol):
    """What a step asks of the app of the repairs."""

    def open(self, order: Order, *, now: datetime) -> int:
        """Opens a repair, and returns its number. Part of the caller's transaction.

        If a repair of the same part is open, that is the one.
        """

    def state(self, repair: int) -> str:
        """The state of a repair; "" if it does not exist any more."""


_desks: list[RepairDesk] = []


def repair_with(desk: RepairDesk) -> None:
    """Registers the desk."""
    _desks[:] = [desk]


def registered() -> RepairDesk:
    """The desk. Every process of the portal registers one when it starts."""
    return _desks[0]
