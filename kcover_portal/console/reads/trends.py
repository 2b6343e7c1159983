"""Trends over hours to months: time to recovery, and new faults by code."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import Avg, Count, DurationField, ExpressionWrapper, F, Q
from django.db.models.functions import TruncDay, TruncHour
from django.utils.functional import Promise
from django.utils.translation import gettext as _, gettext_lazy

from kcover_portal.accounts.queries import Scope
from kcover_portal.console.fault_names import incident_name
from kcover_portal.incidents.models import Incident

DAY: Final = timedelta(days=1)
MAX_SERIES = 5  # faults with their own series; the others share one
FAULT = ("kind", "code", "trait", "symptom_kind", "symptom")  # the columns that name an incident's fault

Fault = tuple[str, ...]  # the values of these columns


@dataclass(frozen=True, slots=True)
class Span:
    """How far a trend reaches back, and the length of its bars."""

    label: str | Promise
    length: timedelta
    bucket: timedelta


SPANS: Final[Mapping[str, Span]] = {
    "24h": Span(gettext_lazy("24 h"), DAY, timedelta(hours=1)),
    "7day": Span(gettext_lazy("7 d"), 7 * DAY, timedelta(hours=6)),
    "30day": Span(gettext_lazy("30 d"), 30 * DAY, DAY),
    "90day": Span(gettext_lazy("90 d"), 90 * DAY, 3 * DAY),
    "365day": Span(gettext_lazy("12 months"), 364 * DAY, 14 * DAY),
}
USUAL: Final = "7day"


@dataclass(frozen=True, slots=True)
class Recovery:
    """Mean time to recovery of the span and of the one before, with the number of faults of each."""

    last: timedelta | None
    before: timedelta | None
    faults: int
    faults_before: int

    @property
    def change(self) -> int | None:
        """The change in per cent; lower is better."""
        return round(self.last / self.before * 100 - 100) if self.last is not None and self.before else None


@dataclass(frozen=True, slots=True)
class Trend:
    """New faults by time: ``starts`` of the buckets in seconds of the epoch, and a count per bucket for each series."""

    starts: Sequence[int]
    series: Sequence[tuple[str, Sequence[int]]]

    @property
    def rows(self) -> list[tuple[datetime, list[int]]]:
        """The trend as table rows, newest first, without empty buckets."""
        counts = [[values[index] for _name, values in self.series] for index in range(len(self.starts))]
        moments = [datetime.fromtimestamp(start, UTC) for start in self.starts]
        return [(moment, row) for moment, row in zip(moments, counts, strict=True) if any(row)][::-1]


def buckets(span: str, *, now: datetime) -> range:
    """The starts of the bars in seconds of the epoch, the last one around ``now``."""
    size = int(SPANS[span].bucket.total_seconds())
    end = (int(now.timestamp()) // size + 1) * size
    return range(end - int(SPANS[span].length.total_seconds()), end, size)


def recovery(scope: Scope, *, now: datetime, span: str = USUAL) -> Recovery:
    """Mean time from the first event of a fault until it was closed, without application faults."""
    took = ExpressionWrapper(F("closed_at") - F("opened_at"), output_field=DurationField())
    length = SPANS[span].length
    lately, since = Q(closed_at__gte=now - length), now - 2 * length
    rows = Incident.objects.filter(scope.where(), is_user_fault=False, closed_at__gte=since, closed_at__lt=now)
    found = rows.aggregate(
        last=Avg(took, filter=lately),
        before=Avg(took, filter=~lately),
        faults=Count("pk", filter=lately),
        faults_before=Count("pk", filter=~lately),
    )
    return Recovery(**found)


def faults(scope: Scope, *, now: datetime, span: str = USUAL) -> Trend:
    """New incidents of the span by code, the most frequent codes by name; one query."""
    starts = buckets(span, now=now)
    size = starts.step
    rounded = TruncDay if SPANS[span].bucket >= DAY else TruncHour
    since = datetime.fromtimestamp(starts[0], UTC)
    rows = (
        Incident.objects.filter(scope.where(), opened_at__gte=since)
        .annotate(hour=rounded("opened_at", tzinfo=UTC))
        .order_by()
        .values_list("hour", *FAULT)
        .annotate(n=Count("pk"))
    )
    counted: Counter[tuple[Fault, int]] = Counter()
    totals: Counter[Fault] = Counter()
    for hour, *columns, number in rows:
        fault = tuple(columns)
        counted[fault, (int(hour.timestamp()) - starts[0]) // size] += number
        totals[fault] += number
    named = [fault for fault, _number in totals.most_common(MAX_SERIES)]
    series = [
        (
            incident_name(Incident(**dict(zip(FAULT, fault, strict=True)))),
            [counted[fault, index] for index in range(len(starts))],
        )
        for fault in named
    ]
    if len(totals) > MAX_SERIES:
        others = [0] * len(starts)
        for (fault, index), number in counted.items():
            if fault not in named and 0 <= index < len(others):
                others[index] += number
        series.append((_("others"), others))
    return Trend(list(starts), series)
