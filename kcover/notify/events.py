"""Notification events: their selection by routes, and the batching of a burst into a few lines.

An event is, for example: an incident opened, an approval was requested, a rescue failed. Routes select the events that
a channel receives. Events that wait for a channel are batched into one message, in which similar events share a line.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.faults import catalog
from kcover.reasons import Reason

# Every kind of event, the most urgent first: the order of lines in a message and of choices on pages.
KINDS = (
    "approval.waiting",
    "rescue.human",
    "rescue.failed",
    "job.human",
    "ledger.diverged",
    "storm.opened",
    "breaker.tripped",
    "automation.paused",
    "watch.failing",
    "source.failing",
    "repair.overdue",
    "rule.notify",
    "part.flagged",
    "incident.opened",
    "agent.silent",
    "preflight.expired",
    "program.fault",
    "job.moving",
    "rescue.opened",
    "approval.answered",
    "automation.resumed",
    "rescue.healed",
    "rescue.ended",
    "job.ended",
    "job.moved",
    "incident.closed",
    "agent.back",
    "watch.cleared",
    "source.cleared",
    "repair.cleared",
)
URGENT_KINDS = KINDS[:12]  # somebody has to act on these: a good choice for a channel that wakes people
KINDS_WITH_SEVERITY = frozenset({"incident.opened", "incident.closed", "program.fault"})
MAX_NAMED_NODES = 8  # nodes named in one line

MAX_AGE = timedelta(days=1)  # older events are not sent: they would only bury what is new


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One notification event.

    ``what``: the fault in short ("xid 79"). ``record``: the id of the incident or rescue. ``because``: why it
    happened, or what a rule says. ``cluster`` is empty for an event of the whole installation. ``nodes``: how many
    nodes, if there are many. ``again``: it is a reminder of an earlier event. ``channel``: the one that the owner of a
    job names; it gets the event without a route.
    """

    kind: str
    at: datetime
    cluster: str = ""
    node: str = ""
    what: str = ""
    severity: str = ""
    record: int | None = None
    because: Reason | None = None
    drill: bool = False
    nodes: int = 0
    again: bool = False
    channel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The events that a channel receives: the kinds, the cluster ("" for any), and the lowest severity of incidents."""

    kinds: Collection[str]
    cluster: str = ""
    least: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Similar events as one line: the first event, the number of events, and the nodes (some of them by name)."""

    first: Event
    count: int
    nodes: tuple[str, ...]
    more: int  # nodes beyond those named

    @property
    def is_single(self) -> bool:
        """True if the line stands for a single event, so that its record can be named."""
        return self.count == 1


def matches(route: Route, event: Event) -> bool:
    """Return whether the route selects the event.

    An event of the whole installation matches the routes of every cluster, because it concerns all of them.
    """
    if event.kind not in route.kinds:
        return False
    if route.cluster and event.cluster not in ("", route.cluster):
        return False
    return event.kind not in KINDS_WITH_SEVERITY or reaches(event.severity, route.least)


def reaches(severity: str, least: str) -> bool:
    """Return whether a severity is at least ``least``; an unknown severity always is, because it must not be lost."""
    known = catalog.SEVERITIES
    if severity not in known or least not in known:
        return True
    return known.index(severity) >= known.index(least)


def lines(events: Iterable[Event]) -> list[Line]:
    """One line for each group of similar events (see ``group_key``), the most urgent first."""
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        groups.setdefault(group_key(event), []).append(event)
    merged = [_line(group) for group in groups.values()]
    return sorted(merged, key=lambda line: (KINDS.index(line.first.kind), line.first.at))


def group_key(event: Event) -> tuple[object, ...]:
    """The common properties of events on one line: kind, cluster, fault, severity, drill and reminder."""
    # Each message of a rule keeps its own line: people are to act on every one of them.
    message = event.because if event.kind == "rule.notify" else None
    return (event.kind, event.cluster, event.what, event.severity, event.drill, event.again, message)


def _line(group: list[Event]) -> Line:
    names = tuple(dict.fromkeys(event.node for event in group if event.node))
    more = max(0, len(names) - MAX_NAMED_NODES)
    return Line(first=group[0], count=len(group), nodes=names[:MAX_NAMED_NODES], more=more)


def reminder_at(sent_at: datetime, expires_at: datetime, *, after: int | None) -> datetime | None:
    """The time of the reminder of an approval request that can be answered until it expires; None for none.

    ``after``: seconds since the request was sent. None: half of the time that was left, so that as much is left to
    act in. 0: never.
    """
    left = expires_at - sent_at
    wait = left / 2 if after is None else timedelta(seconds=after)
    return sent_at + wait if timedelta(0) < wait < left else None
