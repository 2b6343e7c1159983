"""The history of a node in days: marks of what happened on the node and its GPUs, and when they were out of service."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from kcover.reasons import Reason

DAY: Final = timedelta(days=1)
DAYS: Final = 30
MAX_NAMED: Final = 5  # happenings that a mark names; the rest are only counted
MERGED_GAP: Final = timedelta(hours=1)  # shorter gaps between two times out of service are not shown
NODE: Final = ""  # the lane of what no GPU is named in


class Kind(StrEnum):
    """What a mark is about, in the order of a lane's rows."""

    FAULT = "fault"
    PORTAL = "portal"  # a rescue was opened
    PERSON = "person"  # a person or a program acted
    PROOF = "proof"  # a validation ended, or a rescue verified the node
    REPAIR = "repair"


class Out(StrEnum):
    """Why a node or a GPU was out of service."""

    FAULT = "fault"  # a fault that stops it was open
    ISOLATED = "isolated"  # the portal kept work away
    REPAIR = "repair"  # it was at the repair desk
    OTHERS = "others"  # somebody else had cordoned it


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that happened. ``lane``: the GPU's UUID, or NODE. ``about``, ``id``: the record that tells more.

    ``code``: the fault, the verb of the audit log, the profile or the part. ``state``: how it ended or was changed.
    ``by``: who did it. ``title``: of an entry of the audit log, if its verb is known.
    """

    at: datetime
    lane: str
    kind: Kind
    about: str
    id: int
    code: str = ""
    state: str = ""
    by: str = ""
    rescue: int | None = None
    title: Reason | None = None
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """What happened on one lane in one day. ``day``: 0 is the oldest. ``named``: the newest happenings."""

    lane: str
    kind: Kind
    day: int
    count: int
    named: Sequence[Happening]

    @property
    def bad(self) -> bool:
        """True if one of the named happenings went wrong."""
        return any(one.bad for one in self.named)


@dataclass(frozen=True, slots=True)
class Span:
    """A time out of service; ``until`` None: it has not ended."""

    lane: str
    why: Out
    since: datetime
    until: datetime | None

    def share(self, *, since: datetime, until: datetime) -> tuple[float, float]:
        """Where it begins and how long it is, in per cent of the time between ``since`` and ``until``."""
        whole = until - since
        begins = max(self.since, since)
        ends = min(self.until or until, until)
        return 100 * ((begins - since) / whole), 100 * (max(ends - begins, timedelta(0)) / whole)


def window(now: datetime) -> tuple[datetime, datetime]:
    """The last DAYS days. They end with the current hour, so that a page does not change at each look."""
    until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return until - DAYS * DAY, until


def marks(happenings: Iterable[Happening], *, since: datetime) -> list[Mark]:
    """At most one mark for each lane, kind and day, in the order of lanes, kinds and days."""
    found: dict[tuple[str, Kind, int], list[Happening]] = {}
    for one in happenings:
        day = (one.at - since) // DAY
        if 0 <= day < DAYS:
            found.setdefault((one.lane, one.kind, day), []).append(one)
    return [
        Mark(lane, kind, day, len(ones), sorted(ones, key=lambda one: (one.at, one.id), reverse=True)[:MAX_NAMED])
        for (lane, kind, day), ones in sorted(
            found.items(), key=lambda item: (item[0][0], _PLACES[item[0][1]], item[0][2])
        )
    ]


def spans(times: Iterable[Span], *, since: datetime, until: datetime) -> list[Span]:
    """The times that overlap the window, with those of the same lane and reason joined."""
    found: list[Span] = []
    for one in sorted(times, key=lambda one: (one.lane, one.why, one.since)):
        if one.since >= until or (one.until is not None and one.until <= since):
            continue
        last = found[-1] if found else None
        if last is None or (last.lane, last.why) != (one.lane, one.why):
            found.append(one)
        elif last.until is None or one.since <= last.until + MERGED_GAP:
            ends = None if last.until is None or one.until is None else max(last.until, one.until)
            found[-1] = replace(last, until=ends)
        else:
            found.append(one)
    return found


def isolations(events: Iterable[tuple[datetime, bool]]) -> list[Span]:
    """The times in which the portal kept work away, from the events that began (True) and ended (False) them."""
    found: list[Span] = []
    since: datetime | None = None
    for at, isolates in sorted(events):
        if isolates:
            since = since or at
        elif since is not None:
            found.append(Span(NODE, Out.ISOLATED, since, at))
            since = None
    return found if since is None else [*found, Span(NODE, Out.ISOLATED, since, None)]


_PLACES: Final = {kind: place for place, kind in enumerate(Kind)}
