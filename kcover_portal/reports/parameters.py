"""The parameters of a report, as people write them in an address."""

from datetime import UTC, datetime, time
from typing import Final

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from kcover import reasons
from kcover.reports.records import By
from kcover.values.quote import short_repr
from kcover_portal.lib.errors import FieldError

EXAMPLE: Final = "2026-01-31T08:00:00Z"


def moment(name: str, text: str) -> datetime | None:
    """A date (its beginning, in the reader's zone) or a time; None for "". Raises FieldError."""
    if not text:
        return None
    try:
        day, found = parse_date(text), parse_datetime(text)
        if day is not None and len(text) <= len("2026-01-31"):
            return timezone.make_aware(datetime.combine(day, time.min)).astimezone(UTC)
        if found is not None and found.tzinfo is None:
            found = timezone.make_aware(found)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise FieldError(name, reasons.of("report_bad_moment", value=short_repr(text)[1:-1], example=EXAMPLE))
    return found


def by(text: str) -> By:
    """By what the sums are grouped. Raises FieldError."""
    try:
        return By(text or By.CODE)
    except ValueError as error:
        known = ", ".join(By)
        raise FieldError("by", reasons.of("report_bad_by", value=short_repr(text)[1:-1], known=known)) from error
