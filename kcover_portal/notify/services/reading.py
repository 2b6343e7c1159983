"""What came about since the last look: read from the ledger, cluster by cluster, and from the incidents.

The ledger's numbers have no gaps and are committed in their order, so a cursor misses nothing and tells nothing twice.
The opening of an incident is not in it; those are found by their ids. An id is given before it is committed, so ids
that are missing in between are asked for again for a while.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from kcover import decision, notices, reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.notify.models import Cursor
from kcover_portal.rescue.models import Decision, Rescue

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
    """A happening and the name that it has for all time."""

    key: str
    happening: notices.Happening


@dataclass(slots=True)
class _Facts:
    """What entries speak of, read together."""

    rescues: Mapping[int, Rescue] = field(default_factory=dict)
    incidents: Mapping[int, Incident] = field(default_factory=dict)
    decisions: Mapping[int, Decision] = field(default_factory=dict)


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
    found = [*_incidents(first=first, now=now), *_ledger(first=first, now=now)]
    return [one for one in found if now - one.happening.at <= notices.STALE]


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
    facts = _facts(entries)
    for entry in entries:
        happening = _of_entry(entry, facts, now=now)
        if happening is not None:
            yield Found(f"entry-{entry.cluster}-{entry.sequence}", happening)


def _facts(entries: Sequence[Entry]) -> _Facts:
    """Everything that the entries name, in a query for each kind of row."""
    if not entries:
        return _Facts()
    rescues = Rescue.objects.in_bulk([one.rescue for one in entries if one.rescue is not None])
    about = [_number(one.subject) for one in entries if one.verb in ("incident.closed", "storm.opened")]
    incidents = Incident.objects.in_bulk([pk for pk in about if pk is not None])
    held = [one.data.get("decision") for one in entries if one.verb == "decision.hold"]
    decisions = Decision.objects.select_related("cluster", "incident").in_bulk(
        [pk for pk in held if isinstance(pk, int)]
    )
    return _Facts(rescues=rescues, incidents=incidents, decisions=decisions)


def _of_entry(entry: Entry, facts: _Facts, *, now: datetime) -> notices.Happening | None:
    if entry.verb == "incident.closed":
        return _closed(entry, facts)
    if entry.verb == "storm.opened":
        return _storm(entry, facts)
    if entry.verb == "decision.hold":
        return _asked(entry, facts) or _breaker(entry, facts, now=now)
    if entry.verb in ("automation.paused", "automation.resumed", "cluster.changed"):
        return _mode(entry)
    rescue = facts.rescues.get(entry.rescue or 0)
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


def _closed(entry: Entry, facts: _Facts) -> notices.Happening | None:
    incident = facts.incidents.get(_number(entry.subject) or 0)
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


def _storm(entry: Entry, facts: _Facts) -> notices.Happening | None:
    incident = facts.incidents.get(_number(entry.subject) or 0)
    if incident is None:
        return None
    nodes = int(entry.data.get("nodes") or len(incident.scope))
    return _about(entry, "storm.opened", what=incident.code, record=incident.pk, nodes=nodes)


def _asked(entry: Entry, facts: _Facts) -> notices.Happening | None:
    """A fault that comes back whatever automation does: a person is asked, once for as long as it holds."""
    row = facts.decisions.get(entry.data.get("decision") or 0)
    reason = next((one for one in row.reasons if one.code in decision.ASKING), None) if row else None
    about = row.incident if row else None
    if about is None or reason is None:
        return None
    return _about(entry, kind="rescue.human", what=f"{about.kind} {about.code}", because=str(reason), drill=about.drill)


def _breaker(entry: Entry, facts: _Facts, *, now: datetime) -> notices.Happening | None:
    """A breaker holds back one node after the other: told once within its window."""
    row = facts.decisions.get(entry.data.get("decision") or 0)
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


def _number(subject: str) -> int | None:
    """The id in "incident 41"."""
    _, _, text = subject.partition(" ")
    return int(text) if text.isdecimal() else None


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
        yield Found(f"incident-{row.pk}-opened", happening)
