"""The bars and charts of a report."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.utils.translation import gettext as _

from kcover.reports.records import HOUR, By
from kcover.reports.report import Bucket, Report
from kcover.reports.sums import MICROSECONDS_AN_HOUR, Sum
from kcover.reports.survival import Times
from kcover_portal.console.reads.report_words import PHASES, cause, count, duration, group_name, percent

MAX_SERIES: Final = 5
# The upper ends of the classes in which times to recovery are counted.
CLASSES: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 4 * 60, 24 * 60, 7 * 24 * 60))


@dataclass(frozen=True, slots=True)
class BarRow:
    """A row of a table with a bar. ``percent``: of the longest."""

    label: str
    value: str
    percent: int
    share: str = ""
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Stacked bars over time, and the same as rows, newest first."""

    name: str
    title: str
    starts: Sequence[int]
    series: Sequence[tuple[str, Sequence[float]]]
    rows: Sequence[tuple[datetime, Sequence[str]]]

    @property
    def starts_json(self) -> str:
        return json.dumps(self.starts)

    @property
    def series_json(self) -> str:
        return json.dumps(self.series)


def bars(rows: Iterable[Sum], by: By) -> list[BarRow]:
    """The lost GPU hours of each group that lost any, with bars."""
    lost = [row for row in rows if row.gpu_time]
    whole = sum((row.gpu_time for row in lost), timedelta(0))
    longest = max((row.gpu_time for row in lost), default=whole)
    return [
        BarRow(
            group_name(by, row.key),
            count(row.gpu_time / HOUR),
            round(100 * row.gpu_time / longest),
            percent(row.gpu_time / whole),
            "" if row.cost is None else count(float(row.cost)),
        )
        for row in lost
    ]


def distribution(recovery: Times) -> list[BarRow]:
    """The share of faults that recovered within each class of time, longer than the class before, and of the rest."""
    if not recovery.number:
        return []
    before, shares = 0.0, list[tuple[str, float]]()
    for end in CLASSES:
        reached = next((share for time, share in reversed(recovery.curve) if time <= end), 0.0)
        shares.append((_("within %(time)s") % {"time": duration(end)}, reached - before))
        before = reached
    shares.append((_("later, or not yet"), 1 - before))
    longest = max(share for _label, share in shares)
    return [BarRow(label, percent(share), round(100 * share / longest)) for label, share in shares]


def charts(report: Report) -> list[Chart]:
    """Faults by code, GPUs out of service by phase, and the median time to recovery, over time."""
    buckets = report.buckets
    hours = [(bucket.until - bucket.since) / HOUR for bucket in buckets]

    def gpus(bucket: Bucket, length: float) -> dict[str, float]:
        return {str(PHASES[phase]): lost / MICROSECONDS_AN_HOUR / length for phase, lost in bucket.lost.items()}

    medians = [bucket.recovery.median for bucket in buckets]
    minutes = [{_("minutes"): median / timedelta(minutes=1)} if median is not None else {} for median in medians]
    faults = [{cause(key): float(count) for key, count in bucket.faults.items()} for bucket in buckets]
    out = [gpus(bucket, length) for bucket, length in zip(buckets, hours, strict=True)]
    return [
        _chart("out", _("GPUs out of service by phase, on average"), buckets, out),
        _chart("faults", _("New faults by code"), buckets, faults),
        _chart("recovery", _("Median time to recovery, in minutes"), buckets, minutes),
    ]


def _chart(name: str, title: str, buckets: Sequence[Bucket], values: Sequence[Mapping[str, float]]) -> Chart:
    totals: Counter[str] = Counter()
    for each in values:
        totals.update(each)
    named = [label for label, _sum in totals.most_common(MAX_SERIES)]
    series = [(label, [round(each.get(label, 0), 2) for each in values]) for label in named]
    if len(totals) > MAX_SERIES:
        rest = [round(sum(value for label, value in each.items() if label not in named), 2) for each in values]
        series.append((_("others"), rest))
    rows = [
        (bucket.since, [count(numbers[index]) for _label, numbers in series])
        for index, bucket in enumerate(buckets)
        if any(numbers[index] for _label, numbers in series)
    ]
    return Chart(name, title, [int(bucket.since.timestamp()) for bucket in buckets], series, rows[::-1])
