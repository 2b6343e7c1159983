"""What needs a person, one entry a cause; what people did about it; and the acts that a caller may do next."""

from kcover_portal.needs.queries.causes import Entry, entries, entry, urgency
from kcover_portal.needs.queries.items import MAX_LISTED, Item, parts
from kcover_portal.needs.queries.next_acts import NextAct, next_acts
from kcover_portal.needs.queries.responses import Handling

__all__ = [
    "MAX_LISTED",
    "Entry",
    "Handling",
    "Item",
    "NextAct",
    "entries",
    "entry",
    "next_acts",
    "parts",
    "urgency",
]
