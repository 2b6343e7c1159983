"""What came about since the last look: read from the ledger, cluster by cluster, and from the incidents.

The ledger's numbers have no gaps and are committed in their order, so a cursor misses nothing and tells nothing twice.
The opening of an incident is not in it; those are found by their ids. An id is given before it is committed, so ids
that are missing in between are asked for again for a while.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from kcover import decision, notices, paging, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.notify.models import Cursor
from kcover_portal.notify.services import facts
from kcover_portal.rescue.models import Rescue

AT_ONE_TIME = 500  # rows of one source in one look: the next one is a second away
GAPS_KEPT, MOST_GAPS = timedelta(minutes=10), 1000
INCIDENTS = "incidents"
SILENT = ("agent", "silent")

RESCUE_VERBS = {
    "rescue.held": "approval.waiting",
    "step.hold": "rescue.human",
    "rescue.failed": "rescue.failed",
    "rescue.approved": "approval.answered",
    "rescue.rejected": "approval.answered",
}
OTHER_VERBS = {
    "automation.paused": "automation.paused",
    "automation.resumed": "automation.resumed",
    "storm.opened": "storm.opened",
}
VERBS = (
    *(*RESCUE_VERBS, *OTHER_VERBS, "rescue.opened", "rescue.succeeded", "rescue.cancelled"),
    *("incident.closed", "decision.hold", "cluster.changed"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A happening, the name that it has for all time, and what it does to the alerts of pagers.

    ``late``: nobody is told of it any more, but for the pagers whose alerts it ends.
    """

    key: str
    happening: notices.Happening
    moves: tuple[paging.Move, ...] = ()
    late: bool = False


def news() -> bool:
    """Whether there is anything to read; asked each second, so without a lock or a transaction."""
    positions = dict(Cursor.objects.values_list("name", "position"))
    heads = Chain.objects.values_list("cluster", "sequence")
    if any(positions.get(f"ledger {cluster}", -1) < head for cluster, head in heads):
        return True
    cursor = Cursor.objects.filter(name=INCIDENTS).first()
    return cursor is None or bool(cursor.gaps) or cursor.position < _newest()


def look(*, first: bool, now: datetime) -> list[Found]:
    """What came about since the last look; moves the cursors, as part of the caller's transaction.

    ``first``: nobody ever looked, and what was before is nobody's news.
    """
    # In the order in which things happened, as far as each source tells it.
    sources = _incidents(first=first, now=now), _ledger(first=first, now=now)
    found = heapq.merge(*sources, key=lambda one: one.happening.at)
    weighed = (one if now - one.happening.at <= notices.STALE else _late(one) for one in found)
    return [one for one in weighed if one.moves or not one.late]


def _late(found: Found) -> Found:
    """What is left of it when it is found too late: the ends of alerts, or their pages would stay open for ever."""
    return replace(found, moves=tuple(move for move in found.moves if move.action == paging.RESOLVE), late=True)


def _ledger(*, first: bool, now: datetime) -> Iterator[Found]:
    cursors = {cursor.name: cursor for cursor in Cursor.objects.filter(name__startswith="ledger ")}
    for cluster, head in Chain.objects.values_list("cluster", "sequence"):
        name = f"ledger {cluster}"
        cursor = cursors.get(name)
        if cursor is None:
            # A chain that is new since we look is read from its beginning.
            cursor = Cursor.objects.create(name=name, position=head if first else 0, at=now)
        if cursor.position >= head:
            continue
        until = min(head, cursor.position + AT_ONE_TIME)
        rows = Entry.objects.filter(
            cluster=cluster, sequence__gt=cursor.position, sequence__lte=until, verb__in=VERBS
        ).order_by("sequence")
        yield from _told(list(rows), now=now)
        Cursor.objects.filter(name=name).update(position=until, at=now)


def _told(entries: Sequence[Entry], *, now: datetime) -> Iterator[Found]:
    known = facts.of(entries)
    for entry in entries:
        happening = _of_entry(entry, known, now=now)
        if happening is not None:
            key = f"entry-{entry.cluster}-{entry.sequence}"
            yield Found(key, happening, _moves(entry, happening, known, key=key))


def _moves(entry: Entry, happening: notices.Happening, known: facts.Facts, *, key: str) -> tuple[paging.Move, ...]:
    """What the entry does to alerts: what its happening does, and what only the entry and the rows behind it tell."""
    if entry.verb == "decision.hold" and happening.kind == "rescue.human":
        row = known.decisions[entry.data["decision"]]
        return (paging.Move(paging.TRIGGER, paging.name("asked", row.incident_id or key)),)
    found = paging.moves(happening, key=key)
    if entry.verb == "incident.closed":
        rescues = known.settled.get(happening.record or 0, ())
        return (*found, *(paging.Move(paging.RESOLVE, paging.name("rescue", pk)) for pk in rescues))
    if entry.verb == "rescue.approved" and entry.data.get("granted"):
        about = Incident.objects.filter(rescues=entry.rescue).order_by("pk").values_list("pk", flat=True)
        return (
            *found,
            paging.Move(paging.RESOLVE, paging.name("question", entry.rescue or 0)),
            *(paging.Move(paging.ACKNOWLEDGE, paging.name("incident", pk)) for pk in about),
        )
    return found


def _of_entry(entry: Entry, known: facts.Facts, *, now: datetime) -> notices.Happening | None:
    if entry.verb == "incident.closed":
        return _closed(entry, known)
    if entry.verb == "storm.opened":
        return _storm(entry, known)
    if entry.verb == "decision.hold":
        return _asked(entry, known) or _breaker(entry, known, now=now)
    if entry.verb in ("automation.paused", "automation.resumed", "cluster.changed"):
        return _mode(entry)
    rescue = known.rescues.get(entry.rescue or 0)
    kind = _rescue_kind(entry)
    if rescue is None or kind is None:
        return None
    because = _because(entry)
    if kind == "approval.waiting" and rescue.expires_at is not None:
        because = f"{because}; " if because else ""
        because += f"an answer counts until {reasons.moment(rescue.expires_at)}"
    return _about(entry, kind, what=rescue.code, record=rescue.pk, because=because)


def _rescue_kind(entry: Entry) -> str | None:
    """What an entry about a rescue amounts to for people."""
    match entry.verb:
        case "rescue.opened":
            return "approval.waiting" if entry.data.get("state") == Rescue.State.HELD else "rescue.opened"
        case "rescue.succeeded" | "rescue.cancelled" if entry.data.get("needs_human"):
            return "rescue.human"
        case "rescue.succeeded" if entry.data.get("outcome") == "healed":
            return "rescue.healed"
        case "rescue.succeeded" | "rescue.cancelled":
            return "rescue.ended"
    return RESCUE_VERBS.get(entry.verb)


def _because(entry: Entry) -> str:
    said = entry.data.get("because") or entry.data.get("reason") or ""
    if isinstance(said, list):
        said = "; ".join(map(str, said))
    return f"{entry.actor}: {said}" if entry.verb in ("rescue.approved", "rescue.rejected") else str(said)


def _closed(entry: Entry, known: facts.Facts) -> notices.Happening | None:
    incident = known.incidents.get(facts.number(entry.subject) or 0)
    if incident is None:
        return None
    silent = (incident.kind, incident.code) == SILENT
    if incident.program and not silent:
        return None  # a program's fault is told of when it is seen, where it is asked for
    return _about(
        entry,
        "agent.back" if silent else "incident.closed",
        what=f"{incident.kind} {incident.code}",
        record=incident.pk,
        because=_because(entry),
        severity=incident.severity,
        drill=incident.drill,
        nodes=len(incident.scope),
    )


def _storm(entry: Entry, known: facts.Facts) -> notices.Happening | None:
    incident = known.incidents.get(facts.number(entry.subject) or 0)
    if incident is None:
        return None
    nodes = int(entry.data.get("nodes") or len(incident.scope))
    return _about(entry, "storm.opened", what=incident.code, record=incident.pk, nodes=nodes)


def _asked(entry: Entry, known: facts.Facts) -> notices.Happening | None:
    """A fault that comes back whatever automation does: a person is asked, once for as long as it holds."""
    row = known.decisions.get(entry.data.get("decision") or 0)
    reason = next((one for one in row.reasons if one.code in decision.ASKING), None) if row else None
    about = row.incident if row else None
    if about is None or reason is None:
        return None
    return _about(entry, kind="rescue.human", what=f"{about.kind} {about.code}", because=str(reason), drill=about.drill)


def _breaker(entry: Entry, known: facts.Facts, *, now: datetime) -> notices.Happening | None:
    """A breaker holds back one node after the other: told once within its window."""
    row = known.decisions.get(entry.data.get("decision") or 0)
    reason = next((one for one in row.reasons if one.code == "breaker"), None) if row else None
    if row is None or reason is None:
        return None
    window = fleet.guards_of(row.cluster).breaker.window
    cursor, new = Cursor.objects.get_or_create(name=f"breaker {entry.cluster}", defaults={"at": entry.at})
    if not new:
        if entry.at - cursor.at < window:
            return None
        Cursor.objects.filter(name=cursor.name).update(at=entry.at)
    return _about(entry, "breaker.tripped", because=str(reason), node="")


def _mode(entry: Entry) -> notices.Happening | None:
    """A pause or its end, by its own act or by a change of the cluster's mode."""
    because = f"{entry.actor}: {entry.data.get('reason') or '–'}"
    if entry.verb in OTHER_VERBS:
        return _about(entry, OTHER_VERBS[entry.verb], because=because)
    moved = entry.data.get("changed", {}).get("mode")
    if not moved or "paused" not in (moved["from"], moved["to"]):
        return None
    kind = "automation.paused" if moved["to"] == "paused" else "automation.resumed"
    return _about(entry, kind, because=because)


def _about(entry: Entry, kind: str, **more: Any) -> notices.Happening:
    return notices.Happening(**{"kind": kind, "at": entry.at, "cluster": entry.cluster, "node": entry.node, **more})


def _incidents(*, first: bool, now: datetime) -> Iterator[Found]:
    newest = _newest()
    cursor, _ = Cursor.objects.get_or_create(name=INCIDENTS, defaults={"position": newest if first else 0, "at": now})
    gaps = {int(pk): at for pk, at in cursor.gaps.items() if now - datetime.fromisoformat(at) <= GAPS_KEPT}
    if newest <= cursor.position and not cursor.gaps:
        return
    rows = Incident.objects.select_related("node", "cluster").order_by("pk")
    fresh = list(rows.filter(Q(pk__gt=cursor.position, pk__lte=newest) | Q(pk__in=list(gaps)))[:AT_ONE_TIME])
    seen = {row.pk for row in fresh}
    until = max([cursor.position, *seen])
    missing = set(range(max(cursor.position, until - MOST_GAPS) + 1, until + 1)) - seen
    gaps = {pk: at for pk, at in gaps.items() if pk not in seen} | dict.fromkeys(missing, now.isoformat())
    kept = {str(pk): gaps[pk] for pk in sorted(gaps)[-MOST_GAPS:]}
    if until != cursor.position or kept != cursor.gaps:
        Cursor.objects.filter(name=INCIDENTS).update(position=until, gaps=kept, at=now)
    yield from _opened(fresh)


def _newest() -> int:
    """The highest id of an incident that is committed."""
    return Incident.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _opened(rows: Iterable[Incident]) -> Iterator[Found]:
    for row in rows:
        if row.node is None:
            continue  # a storm: the ledger tells of it
        silent = (row.kind, row.code) == SILENT
        happening = notices.Happening(
            kind="agent.silent" if silent else "program.fault" if row.program else "incident.opened",
            at=row.opened_at,
            cluster=row.cluster.name,
            node=row.node.name,
            what=f"{row.kind} {row.code}",
            severity=row.severity,
            record=row.pk,
            because=row.message if silent else "",
            drill=row.drill,
        )
        key = f"incident-{row.pk}-opened"
        # Its end may have been read already, out of the ledger: then nobody is woken for what is over.
        over = row.state == Incident.State.CLOSED
        yield Found(key, happening, () if over else paging.moves(happening, key=key))
