"""Occurrences of a fault: a bounded number of rows per incident."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from django.db.models import F

from kcover.faults import fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services.doubtful_states import doubt_of
from kcover_portal.incidents.services.portal_fault import because_of
from kcover_portal.incidents.services.source_fault import witness_of
from kcover_portal.incidents.services.timed_fault import TimedFault, earliest_of, late_seconds_of

MAX_ROWS = 50  # per incident
MAX_FIRST_ROWS = 10  # of these from the beginning; the others are merged with their nearest neighbour


def keep(node: Node, incident: Incident, fresh: Sequence[fault.Fault], *, boot_id: str, now: datetime) -> None:
    """Stores the first occurrences one by one, and later ones as one row per report, merging older rows.

    This preserves the beginning, and the times and counts that rules with a frequency need. One row per boot is always
    kept, so that faults of the present boot can be recognised.
    """
    columns = ("pk", "boot_id", "at", "count", "witness", "earliest_at")
    kept = list(incident.occurrences.filter(doubt_until=None).order_by("pk").values_list(*columns))
    rows = _rows(node, incident, fresh, room=max(1, MAX_ROWS - len(kept)), boot_id=boot_id, now=now)
    _store(rows)
    if len(kept) + len(rows) > MAX_ROWS:
        _make_room(kept)


def keep_first(
    node: Node, opened: Iterable[tuple[Incident, Sequence[fault.Fault]]], *, boot_id: str, now: datetime
) -> None:
    """Stores the occurrences of incidents that were just opened; one statement for all."""
    _store(
        [
            row
            for incident, fresh in opened
            for row in _rows(node, incident, fresh, room=MAX_ROWS, boot_id=boot_id, now=now)
        ]
    )


def _rows(
    node: Node, incident: Incident, fresh: Sequence[fault.Fault], *, room: int, boot_id: str, now: datetime
) -> list[Occurrence]:
    alone, together = (fresh, ()) if len(fresh) <= room else (fresh[: room - 1], fresh[room - 1 :])
    if together:
        count, drill = sum(seen.count for seen in together), all(seen.drill for seen in together)
        alone = [*alone, replace(together[-1], sequence=None, count=count, drill=drill)]
    return [
        Occurrence(
            incident=incident,
            node=node,
            boot_id=boot_id,
            source=seen.source,
            witness=witness_of(seen),
            sequence=seen.sequence,
            message=seen.message,
            lines_before=seen.lines_before,
            because=because_of(seen),
            drill=seen.drill,
            count=seen.count,
            seen_at=seen.seen_at,
            at=now,
            earliest_at=earliest_of(seen),
            late_seconds=late_seconds_of(seen),
            doubt_until=seen.doubt_until if isinstance(seen, TimedFault) else None,
            doubt=doubt_of(seen),
        )
        for seen in alone
    ]


def _store(rows: Sequence[Occurrence]) -> None:
    # Two agents on a node may report the same line, grouped in different ways.
    Occurrence.objects.bulk_create(rows, ignore_conflicts=True)


def _make_room(kept: Sequence[tuple[int, str, datetime, int, str, datetime | None]]) -> None:
    """Merges the two rows of one boot and one witness that are nearest in time. The first rows are kept.

    The merged row has the earlier time, so that a rule with a frequency never counts too much. The newest fault of each
    witness is not merged: it shows a fault after a GPU reset. ``kept``: key, boot, time, count, witness and earliest
    time of each row, oldest first.
    """
    later = kept[MAX_FIRST_ROWS:]
    of_witness = [[row for row in later if row[4] == witness] for witness in sorted({row[4] for row in later})]
    newest = {max(rows, key=lambda row: row[5] or row[2])[0] for rows in of_witness}
    pairs = [
        (row, next_)
        for rows in of_witness
        for row, next_ in itertools.pairwise(rows)
        if row[1] == next_[1] and next_[0] not in newest
    ]
    if not pairs and len(kept) >= 2 * MAX_ROWS:  # an agent that reports a new boot id each time
        pairs = list(itertools.pairwise(later))
    if pairs:
        earlier, other = min(pairs, key=lambda pair: pair[1][2] - pair[0][2])
        Occurrence.objects.filter(pk=earlier[0]).update(count=F("count") + other[3])
        Occurrence.objects.filter(pk=other[0]).delete()
