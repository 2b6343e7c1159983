"""What needs attention, one entry a cause; what people did about it; and the acts that a caller may do next."""

from kcover_portal.needs.queries.causes import (
    Entry as Entry,
    entries as entries,
    entry as entry,
    narrowed as narrowed,
    urgency as urgency,
)
from kcover_portal.needs.queries.items import MAX_LISTED as MAX_LISTED, Item as Item, parts as parts
from kcover_portal.needs.queries.next_acts import NextAct as NextAct, next_acts as next_acts, verb_for as verb_for
from kcover_portal.needs.queries.responses import Handling as Handling
