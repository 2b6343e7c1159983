"""The report about a period: its figures, those of the period before, sums by group, and the trend."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kcover.reports import downtime, rescues, sums
from kcover.reports.downtime import Lost, Phase
from kcover.reports.intervals import Share
from kcover.reports.records import By, Fault, Records
from kcover.reports.rescues import StepEnds
from kcover.reports.sums import Sum
from kcover.reports.survival import Times

DAY: Final = timedelta(days=1)
# The longest period with buckets of this length, shortest first.
BUCKETS: Final = ((2 * DAY, timedelta(hours=6)), (45 * DAY, DAY), (200 * DAY, 7 * DAY))
LONGEST_BUCKET: Final = 30 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one period. ``total``: of everything; the others: see ``kcover.reports.rescues``."""

    since: datetime
    until: datetime
    total: Sum
    detection: Times
    approvals: Times
    restarts: Times
    automation: Share
    false_isolations: Share
    second_reboots: Share

    @property
    def availability(self) -> float | None:
        """The share of GPU time that was not lost; None without GPUs."""
        return 1 - self.total.gpu_time / self.total.exposure if self.total.exposure else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A part of the period: new faults by cause, lost GPU microseconds by phase, and recovery of its faults."""

    since: datetime
    until: datetime
    faults: Counter[str]
    lost: Counter[Phase]
    recovery: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report. ``rows``: sums by ``by``; ``phases``: sums by phase; ``buckets``: the trend."""

    by: By
    now: Figures
    before: Figures
    rows: Sequence[Sum]
    phases: Sequence[Sum]
    steps: Sequence[StepEnds]
    buckets: Sequence[Bucket]


def make(records: Records, by: By, *, since: datetime, until: datetime) -> Report:
    """The report. ``records``: of the period and of one as long before it."""
    pieces = downtime.lost(records, since=since, until=until)
    earlier = since - (until - since)
    return Report(
        by=by,
        now=_figures(records, pieces, since=since, until=until),
        before=_figures(records, downtime.lost(records, since=earlier, until=since), since=earlier, until=since),
        rows=sums.by_group(records, pieces, by, since=since, until=until),
        phases=sums.by_group(records, pieces, By.PHASE, since=since, until=until),
        steps=rescues.steps(records.works, since, until),
        buckets=_buckets(records, pieces, since=since, until=until),
    )


def bucket_length(period: timedelta) -> timedelta:
    """The length of the parts in which the trend of a period is shown."""
    return next((length for longest, length in BUCKETS if period <= longest), LONGEST_BUCKET)


def _figures(records: Records, pieces: Sequence[Lost], *, since: datetime, until: datetime) -> Figures:
    return Figures(
        since=since,
        until=until,
        total=sums.total(records, pieces, since=since, until=until),
        detection=rescues.detection(sums.opened_in(records.faults, since, until)),
        approvals=rescues.approval_waits(records.works, since, until),
        restarts=rescues.restart_times(records.restarts, since, until),
        automation=rescues.automation(records.works, since, until),
        false_isolations=rescues.false_isolations(records, since, until),
        second_reboots=rescues.second_reboots(records.works, since, until),
    )


def _buckets(records: Records, pieces: Sequence[Lost], *, since: datetime, until: datetime) -> list[Bucket]:
    length = bucket_length(until - since)
    starts = [since + index * length for index in range(-((since - until) // length))]
    faults = sums.opened_in(records.faults, since, until)
    grouped: dict[int, list[Fault]] = {}
    for fault in faults:
        grouped.setdefault((fault.open.since - since) // length, []).append(fault)
    found = []
    for index, (start, lost) in enumerate(zip(starts, sums.cut(pieces, starts, until), strict=True)):
        mine = grouped.get(index, [])
        found.append(
            Bucket(
                since=start,
                until=min(start + length, until),
                faults=Counter(fault.cause for fault in mine),
                lost=lost,
                recovery=sums.recovery(mine, until=until),
            )
        )
    return found
