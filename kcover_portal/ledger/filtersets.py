"""The filters of the audit log, and the period filter of every list; pages, REST and exports share them.

``Period`` is here because every app with a list may import the ledger.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import django_filters as filters
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_filters import fields

from kcover.values import durations
from kcover_portal.ledger.models import Entry
from kcover_portal.ledger.queries import titles


class MomentField(fields.IsoDateTimeField):
    """A time, or a duration back from now (``24h``, ``7day``), converted to UTC.

    Databases reject offsets beyond 16 hours and times outside UTC's range.
    """

    def to_python(self, value: Any) -> datetime | None:
        """Converts the time to UTC. Raises ValidationError."""
        if isinstance(value, str) and (length := _length(value)) is not None:
            return timezone.now() - length
        moment: datetime | None = super().to_python(value)
        try:
            return moment and moment.astimezone(UTC)
        except OverflowError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


def _length(value: str) -> timedelta | None:
    try:
        return durations.read(value.strip())
    except durations.DurationError:
        return None


class Moment(filters.IsoDateTimeFilter):
    """A point in time, with or without an offset."""

    field_class = MomentField


class RowNumber(filters.NumberFilter):
    """The number of a row. A number that no row can have is an error, because SQLite rejects it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(min_value=0, max_value=2**63 - 1, **settings)


class Period(filters.FilterSet):
    """Rows between ``since`` (inclusive) and ``until`` (exclusive).

    A row with a duration matches if it overlaps the period.
    """

    began = "at"
    ended = "at"

    since = Moment(method="from_then_on", label=_("Since"))
    until = Moment(method="before_then", label=_("Until"))

    def from_then_on(self, rows: QuerySet[Any], name: str, value: datetime) -> QuerySet[Any]:
        """Keeps rows that had not ended before the time."""
        return rows.filter(**{f"{self.ended}__gte": value})

    def before_then(self, rows: QuerySet[Any], name: str, value: datetime) -> QuerySet[Any]:
        """Keeps rows that had begun before the time."""
        return rows.filter(**{f"{self.began}__lt": value})


class EntryFilter(Period):
    """Entries by actor (substring), verb (prefix), subject, place and time."""

    cluster = filters.CharFilter(field_name="cluster", label=_("Cluster"))
    node = filters.CharFilter(field_name="node", label=_("Node"))
    rescue = RowNumber(field_name="rescue", label=_("Rescue"))
    actor = filters.CharFilter(field_name="actor", lookup_expr="icontains", label=_("Actor"))
    verb = filters.CharFilter(field_name="verb", lookup_expr="startswith", label=_("Action"))
    subject = filters.CharFilter(field_name="subject", label=_("Target"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Entry
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        """Keeps entries whose actor, verb, its title, subject or node contains the text."""
        return rows.filter(
            Q(actor__icontains=value)
            | Q(verb__icontains=value)
            | Q(subject__icontains=value)
            | Q(node__icontains=value)
            | Q(verb__in=titles.verbs_titled(value))
        )
