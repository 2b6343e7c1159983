"""Sums of a period, whole and by group, and the figures of its beginning and end."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, TypeVar

from kcover.reports import parts
from kcover.reports.downtime import Lost, Phase
from kcover.reports.intervals import Between, Share
from kcover.reports.records import HOUR, NO_TIME, By, Fault, Place, Records, Span, Work
from kcover.reports.rescues import ended_in, is_success
from kcover.reports.survival import NONE, Lasted, Times, times

MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS_AN_HOUR: Final = HOUR // MICROSECOND
T = TypeVar("T")


@dataclass(slots=True)
class Sum:
    """The sums of one group. ``gpu_time``: GPUs times the time in which they did no work.

    ``priced``: the same in microseconds, by the price of a GPU hour; None: without a price.
    """

    key: str
    faults: int = 0
    recovered: int = 0
    recovery: Times = NONE
    gpu_time: timedelta = NO_TIME
    priced: Counter[Decimal | None] = field(default_factory=Counter)
    ended: int = 0
    succeeded: int = 0
    exposure: timedelta = NO_TIME

    def add(self, piece: Lost) -> None:
        """Adds lost GPU time."""
        self.gpu_time += piece.gpu_time
        self.priced[piece.place.price] += piece.gpu_time // MICROSECOND

    @property
    def cost(self) -> Decimal | None:
        """The price of the lost GPU time; None if a part of it has no price."""
        priced = [(price, time) for price, time in self.priced.items() if time]
        if any(price is None for price, _ in priced):
            return None
        return sum((price * time for price, time in priced if price is not None), Decimal(0)) / MICROSECONDS_AN_HOUR

    @property
    def success(self) -> Share:
        """The share of the rescues that ended which returned the node to work."""
        return Share(self.succeeded, self.ended)

    @property
    def between_faults(self) -> Between:
        """Hours of GPUs (of nodes, if the group is a part other than the GPU) between two faults."""
        return Between(self.exposure / HOUR, self.faults)


def by_group(records: Records, pieces: Iterable[Lost], by: By, *, since: datetime, until: datetime) -> list[Sum]:
    """The sums of each group, most lost GPU time first. ``pieces``: of ``downtime.lost`` for the same period.

    Faults count by when they were opened, rescues by when they ended. Neither belongs to a phase.
    """
    places = {place.node: place for place in records.places}
    of = _Keys(by, places)
    groups: dict[str, Sum] = {}

    def group(key: str) -> Sum:
        found = groups.get(key)
        if found is None:
            found = groups[key] = Sum(key)
        return found

    for piece in pieces:
        group(of.piece(piece)).add(piece)
    if by is not By.PHASE:
        for key, faults in _grouped(opened_in(records.faults, since, until), of.fault).items():
            found = group(key)
            found.faults = len(faults)
            found.recovery = recovery(faults, until=until)
            found.recovered = found.recovery.ended
        for key, works in _grouped(ended_in(records.works, since, until), of.work).items():
            found = group(key)
            found.ended, found.succeeded = len(works), sum(map(is_success, works))
    for found in groups.values():
        found.exposure = of.exposure(records.places, found.key, since=since, until=until)
    return sorted(groups.values(), key=lambda one: (-one.gpu_time, -one.faults, one.key))


def total(records: Records, pieces: Iterable[Lost], *, since: datetime, until: datetime) -> Sum:
    """The sums of everything."""
    faults = opened_in(records.faults, since, until)
    works = ended_in(records.works, since, until)
    found = Sum("", faults=len(faults), recovery=recovery(faults, until=until), ended=len(works))
    found.recovered, found.succeeded = found.recovery.ended, sum(map(is_success, works))
    for piece in pieces:
        found.add(piece)
    found.exposure = _exposure(records.places, since=since, until=until)
    return found


def opened_in(faults: Iterable[Fault], since: datetime, until: datetime) -> list[Fault]:
    """The faults that were opened in the period."""
    return [fault for fault in faults if since <= fault.open.since < until]


def recovery(faults: Iterable[Fault], *, until: datetime) -> Times:
    """How long recovery took, from the opening of a fault. Faults that are open at ``until`` are censored."""
    return times(_lasted(fault.open, until) for fault in faults)


def cut(pieces: Iterable[Lost], starts: Sequence[datetime], until: datetime) -> list[Counter[Phase]]:
    """Lost GPU microseconds by phase in each bucket, which lasts until the next one's start."""
    ends = [*starts[1:], until]
    found: list[Counter[Phase]] = [Counter() for _ in starts]
    for piece in pieces:
        for index in range(max(0, bisect_right(starts, piece.since) - 1), len(starts)):
            if starts[index] >= piece.until:
                break
            inside = Span(piece.since, piece.until).within(starts[index], ends[index])
            found[index][piece.phase] += piece.gpus * (inside // MICROSECOND)
    return found


def _lasted(span: Span, until: datetime) -> Lasted:
    if span.until is None or span.until > until:
        return Lasted(until - span.since, False)
    return Lasted(span.until - span.since)


def _exposure(places: Iterable[Place], *, since: datetime, until: datetime, nodes: bool = False) -> timedelta:
    """GPUs (or nodes) times the time in which their clusters listed them."""
    found = (place.listed.within(since, until) * (1 if nodes else place.gpus) for place in places if place.gpus)
    return sum(found, NO_TIME)


def _grouped(rows: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


class _Keys:
    """The group that each record belongs to."""

    def __init__(self, by: By, places: Mapping[int, Place]) -> None:
        self._by, self._places = by, places

    def piece(self, piece: Lost) -> str:
        if self._by is By.PHASE:
            return piece.phase
        return self._of(piece.place.node, piece.cause, piece.policy, piece.rule)

    def fault(self, fault: Fault) -> str:
        return self._of(fault.node, fault.cause, fault.policy, fault.rule)

    def work(self, work: Work) -> str:
        return self._of(work.node, work.cause, work.policy, work.rule)

    def exposure(self, places: Sequence[Place], key: str, *, since: datetime, until: datetime) -> timedelta:
        if self._by is By.POOL:
            places = [place for place in places if _pool(place) == key]
        elif self._by is By.CLUSTER:
            places = [place for place in places if place.cluster == key]
        nodes = self._by is By.PART and key != parts.GPU
        return _exposure(places, since=since, until=until, nodes=nodes)

    def _of(self, node: int, cause: str, policy: str, rule: str) -> str:
        if self._by is By.CODE:
            return cause
        if self._by is By.PART:
            return parts.of_cause(cause)
        if self._by is By.POLICY:
            return policy
        if self._by is By.RULE:
            return rule
        place = self._places[node]
        return place.cluster if self._by is By.CLUSTER else _pool(place)


def _pool(place: Place) -> str:
    """Pools of one name in several clusters are different pools."""
    return f"{place.cluster}/{place.pool}"
