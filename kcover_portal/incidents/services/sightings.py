"""Sightings: a bounded number of rows for an incident, however often its fault is seen."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import F

from kcover import fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Event, Incident

KEPT = 50  # per incident: enough to see the story, bounded in a storm
FIRST = 10  # of them how it began; the others are joined where they are nearest to each other


def keep(
    node: Node, incident: Incident, fresh: Sequence[fault.Fault], *, new: bool, boot_id: str, now: datetime
) -> None:
    """Keeps the first sightings one by one, and what follows as one row a report, in the place of older ones.

    So the beginning of the story stays, and so does what rules that ask how often need: when, and how many. Of each
    boot one row stays, by which a fault of the present boot is known as such.
    """
    kept = [] if new else list(incident.events.order_by("pk").values_list("pk", "boot_id", "at", "count"))
    room = max(1, KEPT - len(kept))
    alone, together = (fresh, ()) if len(fresh) <= room else (fresh[: room - 1], fresh[room - 1 :])
    if together:
        count, drill = sum(one.count for one in together), all(one.drill for one in together)
        alone = [*alone, replace(together[-1], sequence=None, count=count, drill=drill)]
    rows = [
        Event(
            incident=incident,
            node=node,
            boot_id=boot_id,
            source=one.source,
            sequence=one.sequence,
            message=one.message,
            drill=one.drill,
            count=one.count,
            seen_at=one.seen_at,
            at=now,
        )
        for one in alone
    ]
    # Of two agents on the node one may show a line that the other showed for fewer.
    Event.objects.bulk_create(rows, ignore_conflicts=True)
    if len(kept) + len(rows) > KEPT:
        _make_room(kept)


def _make_room(kept: Sequence[tuple[int, str, datetime, int]]) -> None:
    """Joins the two rows, neither among the first, that are nearest to each other in time, and of one boot.

    Their count stands at the earlier time: a rule that asks how often is never told more than there was. ``kept``: key,
    boot, time and count of each row, the oldest first.
    """
    later = kept[FIRST:]
    pairs = [(one, next_) for one, next_ in itertools.pairwise(later) if one[1] == next_[1]]
    if not pairs and len(kept) >= 2 * KEPT:  # whoever names a boot of its own with each report
        pairs = list(itertools.pairwise(later))
    if pairs:
        earlier, other = min(pairs, key=lambda pair: pair[1][2] - pair[0][2])
        Event.objects.filter(pk=earlier[0]).update(count=F("count") + other[3])
        Event.objects.filter(pk=other[0]).delete()
