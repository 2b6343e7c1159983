"""Needs that no entry of the audit log announces: a watch or a source that fails, and a repair that is late.

Their start and end are events.

They are the items that the console shows (``needs``). A need is announced once, when it has lasted for STEADY_TIME. It
has ended when it has been absent for as long. So a short failure is no message, and one that comes and goes is a single
message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from kcover import reasons
from kcover.needs import Need
from kcover.notify import events, pager
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.needs import queries as needs
from kcover_portal.notify.models import OpenNeed
from kcover_portal.notify.services.new_event import NewEvent
from kcover_portal.repairs.models import Repair
from kcover_portal.sources.models import Source

STEADY_TIME = timedelta(minutes=1)
# The events at the start and at the end of a need.
EVENTS: Final[Mapping[Need, tuple[str, str]]] = {
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
    """The needs of all clusters that exist now. Three statements."""
    clusters = list(fleet.clusters())
    found = needs.parts(Scope.of(*clusters), clusters, kinds=EVENTS, limit=None, now=now)
    return {
        (item.kind, item.row.pk): _Present(
            cluster=item.cluster.name, name=_name(item), because=next(iter(item.why), None)
        )
        for _number, items in found.values()
        for item in items
    }


def _name(item: needs.Item) -> str:
    """What an event names besides its cluster."""
    match item.kind:
        case Need.WATCH:
            return ""
        case Need.REPAIR:
            title: str = item.row.title
            return title
        case _:
            return item.name


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
    begin, end = EVENTS[Need(row.kind)]
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
