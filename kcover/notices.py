"""What is told to people: which happenings a route wants, and how a burst of them becomes a few lines.

A happening is one thing that came about: an incident opened, a question was put, a rescue failed. Routes say which of
them a channel gets. Whatever gathers for a channel meanwhile is one message: alike happenings are one line of it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover import catalog

# Every kind of happening, the most urgent first: the order of lines in a message and of choices on pages.
KINDS = (
    "approval.waiting",
    "rescue.human",
    "rescue.failed",
    "storm.opened",
    "breaker.tripped",
    "automation.paused",
    "rule.notify",
    "incident.opened",
    "agent.silent",
    "program.fault",
    "rescue.opened",
    "approval.answered",
    "automation.resumed",
    "rescue.healed",
    "rescue.ended",
    "incident.closed",
    "agent.back",
)
# What somebody has to do something about: a good choice for a channel that wakes people.
URGENT = KINDS[:7]
GRADED = frozenset({"incident.opened", "incident.closed", "program.fault"})  # those that have a severity
NAMED = 8  # nodes that one line names

BACK_OFF = tuple(
    timedelta(seconds=seconds) for seconds in (5, 20, 60, 300, 900, 1800)
)  # between tries: seven in all, in about an hour; a pager's go on as the last until it is too late
STALE = timedelta(days=1)  # older than this nothing is told any more: it would only bury what is new


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One thing that came about.

    ``what``: the fault in short ("xid 79"), ``record``: the id of the incident or rescue it is about, ``because``: why,
    in words. ``cluster`` is empty for what is about the whole installation. ``nodes``: how many, where it is many.
    ``again``: a reminder of what was told before.
    """

    kind: str
    at: datetime
    cluster: str = ""
    node: str = ""
    what: str = ""
    severity: str = ""
    record: int | None = None
    because: str = ""
    drill: bool = False
    nodes: int = 0
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which happenings a channel gets: of these kinds, of one cluster (or any), incidents from a severity on."""

    kinds: Collection[str]
    cluster: str = ""
    least: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Alike happenings, told as one: the first of them, how many there were, and on which nodes (some by name)."""

    first: Happening
    count: int
    nodes: tuple[str, ...]
    more: int  # nodes beyond those named

    @property
    def alone(self) -> bool:
        """Whether it tells of a single happening, so that its record can be named."""
        return self.count == 1


def wanted(route: Route, happening: Happening) -> bool:
    """Whether the route wants it.

    What is about the whole installation goes to the routes of every cluster: whoever looks after one is concerned.
    """
    if happening.kind not in route.kinds:
        return False
    if route.cluster and happening.cluster not in ("", route.cluster):
        return False
    return happening.kind not in GRADED or at_least(happening.severity, route.least)


def at_least(severity: str, least: str) -> bool:
    """Whether a severity reaches a bound; one that no table knows always does, because it must not be lost."""
    known = catalog.SEVERITIES
    if severity not in known or least not in known:
        return True
    return known.index(severity) >= known.index(least)


def lines(happenings: Iterable[Happening]) -> list[Line]:
    """Alike ones (same kind, cluster, fault, severity and reality) as one line each, the most urgent first."""
    groups: dict[tuple[object, ...], list[Happening]] = {}
    for one in happenings:
        groups.setdefault(alike(one), []).append(one)
    found = [_line(group) for group in groups.values()]
    return sorted(found, key=lambda line: (KINDS.index(line.first.kind), line.first.at))


def alike(one: Happening) -> tuple[object, ...]:
    """What those have in common that are told as one."""
    # A word of a rule and a question are each their own: people are to act on every one of them.
    own = one.because if one.kind == "rule.notify" else ""
    return (one.kind, one.cluster, one.what, one.severity, one.drill, one.again, own)


def _line(group: list[Happening]) -> Line:
    names = tuple(dict.fromkeys(one.node for one in group if one.node))
    return Line(first=group[0], count=len(group), nodes=names[:NAMED], more=max(0, len(names) - NAMED))


def remind_at(told_at: datetime, expires_at: datetime, *, after: int | None) -> datetime | None:
    """When to remind of a question that was told then and can be answered until it expires; None: not at all.

    ``after``: seconds; None: half of the time that was left, so that there is as much again to act in; 0: never.
    """
    left = expires_at - told_at
    wait = left / 2 if after is None else timedelta(seconds=after)
    return told_at + wait if timedelta(0) < wait < left else None


def next_try(tries: int, *, now: datetime, wait: float = 0) -> datetime | None:
    """When to try again after so many tries that failed; None: not any more.

    ``wait``: how many seconds the other side asks for; it gets them, but not more than the longest time between tries.
    """
    if not 1 <= tries <= len(BACK_OFF):
        return None
    asked = min(timedelta(seconds=wait), BACK_OFF[-1])
    return now + max(BACK_OFF[tries - 1], asked)
