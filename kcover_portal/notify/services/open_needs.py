"""Needs that no entry of the audit log announces: a watch or a source that fails, and a repair that is late.

Their start and end are events.

The definitions are those of ``needs_person``, which the console shows. A need is announced once, when it has lasted for
STEADY_TIME. It has ended when it has been absent for as long. So a short failure is no message, and one that comes and
goes is a single message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from kcover import reasons
from kcover.needs import Need
from kcover.notify import events, pager
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.notify.models import OpenNeed
from kcover_portal.notify.services.new_event import NewEvent
from kcover_portal.repairs import queries as repairs
from kcover_portal.repairs.models import Repair
from kcover_portal.sources import queries as sources
from kcover_portal.sources.models import Source

STEADY_TIME = timedelta(minutes=1)
# The events at the start and at the end of a need.
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    Need.WATCH: ("watch.failing", "watch.cleared"),
    Need.SOURCE: ("source.failing", "source.cleared"),
    Need.REPAIR: ("repair.overdue", "repair.cleared"),
}
Key = tuple[str, int]  # kind and record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    """A need that exists now."""

    cluster: str
    name: str = ""
    because: reasons.Reason | None


class _Change(Enum):
    """A change of the row of a need."""

    BEGIN = auto()
    ANNOUNCE = auto()
    RETURN = auto()  # before its absence was an end
    FORGET = auto()  # it was too short to be announced
    ABSENT = auto()
    END = auto()


def _present(*, now: datetime) -> dict[Key, _Present]:
    """The needs of all clusters that exist now, by the definitions that ``needs_person`` uses. Three statements."""
    clusters = fleet.clusters()
    found: dict[Key, _Present] = {}
    for cluster in fleet.unwatched(clusters):
        found[Need.WATCH, cluster.pk] = _Present(cluster=cluster.name, because=cluster.watch_failure)
    for source in sources.failing(clusters):
        found[Need.SOURCE, source.pk] = _Present(cluster=source.cluster.name, name=source.name, because=source.why)
    for repair in repairs.left_to_people(now=now).select_related("cluster", "node"):
        because = repair.need(now=now)
        found[Need.REPAIR, repair.pk] = _Present(cluster=repair.cluster.name, name=repair.title, because=because)
    return found


def has_changes(*, now: datetime) -> bool:
    """Returns whether a need has begun or ended. Called in each sweep, so it uses no lock and no transaction."""
    return any(_changes(_present(now=now), now=now))


def read_new(*, now: datetime) -> list[NewEvent]:
    """The events of needs that began or ended. Moves their rows, as part of the caller's transaction."""
    present = _present(now=now)
    found = (_apply(change, row, present, now=now) for change, row in list(_changes(present, now=now)))
    return [event for event in found if event is not None]


def _changes(present: Mapping[Key, _Present], *, now: datetime) -> Iterator[tuple[_Change, OpenNeed]]:
    rows = {(row.kind, row.record): row for row in OpenNeed.objects.all()}
    for (kind, record), need in present.items():
        if (kind, record) not in rows:
            yield _Change.BEGIN, OpenNeed(kind=kind, record=record, cluster=need.cluster, name=need.name, since=now)
    for key, row in rows.items():
        change = _change(row, is_present=key in present, now=now)
        if change is not None:
            yield change, row


def _change(row: OpenNeed, *, is_present: bool, now: datetime) -> _Change | None:
    if is_present:
        if row.absent_since is not None:
            return _Change.RETURN
        steady = now - row.since >= STEADY_TIME
        return _Change.ANNOUNCE if row.announced_at is None and steady else None
    if row.announced_at is None:
        return _Change.FORGET
    if row.absent_since is None:
        return _Change.ABSENT
    return _Change.END if now - row.absent_since >= STEADY_TIME else None


def _apply(change: _Change, row: OpenNeed, present: Mapping[Key, _Present], *, now: datetime) -> NewEvent | None:
    begin, end = EVENTS[row.kind]
    match change:
        case _Change.BEGIN:
            row.save(force_insert=True)
        case _Change.ANNOUNCE:
            OpenNeed.objects.filter(pk=row.pk).update(announced_at=now)
            return _event(row, begin, because=present[row.kind, row.record].because, now=now)
        case _Change.RETURN | _Change.ABSENT:
            absent_since = now if change is _Change.ABSENT else None
            OpenNeed.objects.filter(pk=row.pk).update(absent_since=absent_since)
        case _Change.FORGET | _Change.END:
            event = _event(row, end, because=_withdrawn(row), now=now) if change is _Change.END else None
            OpenNeed.objects.filter(pk=row.pk).delete()
            return event
    return None


def _event(row: OpenNeed, kind: str, *, because: reasons.Reason | None, now: datetime) -> NewEvent:
    event = events.Event(kind=kind, at=now, cluster=row.cluster, what=row.name, record=row.record, because=because)
    key = f"need-{row.pk}-{kind}"
    return NewEvent(key, event, pager.alert_changes(event, key=key))


def _withdrawn(row: OpenNeed) -> reasons.Reason | None:
    """The reason of an end that is no repair: what the need was about is gone."""
    if row.kind == Need.WATCH:
        there = Cluster.objects.filter(pk=row.record).exists()
    elif row.kind == Need.REPAIR:
        there = Repair.objects.filter(pk=row.record).exists()
    else:
        there = Source.objects.filter(pk=row.record, enabled=True).exists()
    return None if there else reasons.of("need_withdrawn", name=row.name or row.cluster)
