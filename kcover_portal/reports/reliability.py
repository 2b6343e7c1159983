"""The report about reliability, and the list of lemons, in the part of the fleet that somebody sees."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kcover import reasons
from kcover.machines import risk
from kcover.reports import downtime, lemons, report, rescues
from kcover.reports.lemons import Lemon
from kcover.reports.records import By
from kcover_portal.accounts.queries import Scope
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.reports import records
from kcover_portal.reports.records import Part

LONGEST: Final = timedelta(days=5 * 366)
DEFAULT: Final = timedelta(days=30)
EARLIEST_YEAR: Final = 2000


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a report is about."""

    since: datetime
    until: datetime


def period(since: datetime | None, until: datetime | None, *, now: datetime) -> Period:
    """The period between two times; by default it ends now and lasts DEFAULT.

    It ends now at the latest. Raises FieldError for one that has not begun, is empty, too long or too early.
    """
    end = min(until or now, now)
    for name, moment in (("from", since), ("to", end)):
        if moment is not None and moment.year < EARLIEST_YEAR:
            raise FieldError(name, reasons.of("report_too_early", year=EARLIEST_YEAR))
    begin = since or end - DEFAULT
    if begin >= now:
        raise FieldError("from", reasons.of("report_in_future"))
    if begin >= end:
        raise FieldError("to", reasons.of("report_is_empty"))
    if end - begin > LONGEST:
        raise FieldError("from", reasons.of("report_too_long", days=LONGEST.days))
    return Period(begin, end)


def reliability(scope: Scope, cluster: Cluster | None, by: By, asked: Period) -> report.Report:
    """The report about the nodes that the scope covers, in one cluster or in all."""
    since = asked.since - (asked.until - asked.since) - rescues.AGAIN  # of the reboots at the beginning
    found = records.read(Part(scope, cluster), since=since, until=asked.until)
    return report.make(found, by, since=asked.since, until=asked.until)


def nodes_that_fail(scope: Scope, cluster: Cluster | None, *, now: datetime) -> list[Lemon]:
    """The lemons among the nodes that the scope covers. The chances are learned from these nodes."""
    part = Part(scope, cluster)
    faults = records.read(part, since=now - risk.LEARNS - risk.WINDOW, until=now, works=False)
    lately = records.read(part, since=now - lemons.LONG, until=now)
    return lemons.lemons(faults, downtime.lost(lately, since=now - lemons.LONG, until=now), now=now)
