"""New events since the last read: from the ledger, cluster by cluster, and from the incidents.

The ledger's sequence numbers have no gaps and are committed in order, so a cursor neither misses an entry nor reads it
twice. The ledger has no entry when an incident is opened; new incidents are found by their ids. An id is assigned
before it is committed, so missing ids are looked up again for a while.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import Q

from kcover.notify import events, pager
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.lib.prepared import any_row
from kcover_portal.notify import queries
from kcover_portal.notify.models import Channel, Cursor
from kcover_portal.notify.services import entry_events
from kcover_portal.notify.services.new_event import NewEvent

MAX_ROWS = 500  # of one source in one read; the next read is a second away
GAP_RETENTION, MAX_GAPS = timedelta(minutes=10), 1000  # missing ids


def has_news() -> bool:
    """Returns whether there is anything to read. Called in each sweep, so it uses no lock and no transaction."""
    return _UNREAD() or not Cursor.objects.filter(name=queries.INCIDENTS).exists()


_UNREAD = any_row(queries.unread)


def read_new(*, first: bool, now: datetime) -> list[NewEvent]:
    """The events since the last read. Moves the cursors, as part of the caller's transaction.

    ``first``: this is the first read ever, so everything is skipped that is older than the first channel.
    """
    since = _first_channel_at(now=now) if first else None
    # Sorted by time, as far as each source is.
    sources = _incidents(since=since, now=now), _ledger(since=since, now=now)
    found = heapq.merge(*sources, key=lambda event: event.event.at)
    recent = (event if now - event.event.at <= events.MAX_AGE else _late(event) for event in found)
    return [event for event in recent if event.moves or not event.late]


def _late(found: NewEvent) -> NewEvent:
    """Reduces an event that is too old to the ends of alerts, because their pages would stay open otherwise."""
    return replace(found, moves=tuple(move for move in found.moves if move.action == pager.RESOLVE), late=True)


def _first_channel_at(*, now: datetime) -> datetime:
    """When the first channel was created; now if there is none, as nobody could have been told of anything."""
    return Channel.objects.order_by("created_at").values_list("created_at", flat=True).first() or now


def _ledger(*, since: datetime | None, now: datetime) -> Iterator[NewEvent]:
    cursors = {cursor.name: cursor for cursor in Cursor.objects.filter(name__startswith="ledger ")}
    for cluster, head in Chain.objects.values_list("cluster", "sequence"):
        name = f"ledger {cluster}"
        cursor = cursors.get(name)
        if cursor is None:
            # A chain that is newer than the first read is read from its beginning.
            skipped = _skipped_entries(cluster, since=since) if since is not None else 0
            cursor = Cursor.objects.create(name=name, position=skipped, at=now)
        if cursor.position >= head:
            continue
        until = min(head, cursor.position + MAX_ROWS)
        rows = Entry.objects.filter(
            cluster=cluster, sequence__gt=cursor.position, sequence__lte=until, verb__in=entry_events.VERBS
        ).order_by("sequence")
        yield from entry_events.of_entries(list(rows), now=now)
        Cursor.objects.filter(name=name).update(position=until, at=now)


def _skipped_entries(cluster: str, *, since: datetime) -> int:
    """How many entries of the chain are not newer than ``since``."""
    old = Entry.objects.filter(cluster=cluster, at__lte=since).order_by("-sequence")
    return old.values_list("sequence", flat=True).first() or 0


def _incidents(*, since: datetime | None, now: datetime) -> Iterator[NewEvent]:
    newest = _newest()
    cursor = Cursor.objects.filter(name=queries.INCIDENTS).first()
    if cursor is None:
        skipped = _newest(opened_at__lte=since) if since is not None else 0
        cursor, _ = Cursor.objects.get_or_create(name=queries.INCIDENTS, defaults={"position": skipped, "at": now})
    gaps = {int(pk): at for pk, at in cursor.gaps.items() if now - datetime.fromisoformat(at) <= GAP_RETENTION}
    if newest <= cursor.position and not cursor.gaps:
        return
    rows = Incident.objects.select_related("node", "cluster").order_by("pk")
    fresh = list(rows.filter(Q(pk__gt=cursor.position, pk__lte=newest) | Q(pk__in=list(gaps)))[:MAX_ROWS])
    seen = {row.pk for row in fresh}
    until = max([cursor.position, *seen])
    missing = set(range(max(cursor.position, until - MAX_GAPS) + 1, until + 1)) - seen
    gaps = {pk: at for pk, at in gaps.items() if pk not in seen} | dict.fromkeys(missing, now.isoformat())
    kept = {str(pk): gaps[pk] for pk in sorted(gaps)[-MAX_GAPS:]}
    if until != cursor.position or kept != cursor.gaps:
        Cursor.objects.filter(name=queries.INCIDENTS).update(position=until, gaps=kept, at=now)
    yield from _opened(fresh)


def _newest(**only: datetime) -> int:
    """The highest id of a committed incident."""
    return Incident.objects.filter(**only).order_by("-pk").values_list("pk", flat=True).first() or 0


def _opened(rows: Iterable[Incident]) -> Iterator[NewEvent]:
    for row in rows:
        if row.node is None:
            continue  # a storm, which has an entry in the ledger
        silent = (row.kind, row.code) == entry_events.SILENT
        event = events.Event(
            kind="agent.silent" if silent else "program.fault" if row.is_user_fault else "incident.opened",
            at=row.opened_at,
            cluster=row.cluster.name,
            node=row.node.name,
            what=f"{row.kind} {row.code}",
            severity=row.severity,
            record=row.pk,
            because=row.message_reason if silent else None,
            drill=row.drill,
        )
        key = f"incident-{row.pk}-opened"
        # If its end may have been read from the ledger already, nobody is woken for it.
        over = row.state == Incident.State.CLOSED
        yield NewEvent(key, event, () if over else pager.alert_changes(event, key=key))
