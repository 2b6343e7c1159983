"""What the ledger can be narrowed by, and the span of time that every list can; pages, REST and exports use the same.

``Period`` is here because filter sets, too, import only downwards, and every app with a list stands on the ledger.
"""

from datetime import UTC, datetime
from typing import Any

import django_filters as filters
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _
from django_filters import fields

from kcover_portal.ledger.models import Entry


class MomentField(fields.IsoDateTimeField):
    """A time in UTC: databases take no offset beyond 16 hours, and no time that UTC does not have."""

    def to_python(self, value: Any) -> datetime | None:
        """Raises ValidationError."""
        found: datetime | None = super().to_python(value)
        try:
            return found and found.astimezone(UTC)
        except OverflowError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error


class Moment(filters.IsoDateTimeFilter):
    """A point in time, with or without its offset."""

    field_class = MomentField


class RowNumber(filters.NumberFilter):
    """The number of a row; one that no row can have is an error, as SQLite takes it for one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(min_value=0, max_value=2**63 - 1, **settings)


class Period(filters.FilterSet):
    """Rows of the time between ``since`` (included) and ``until`` (not).

    A row that lasts names its two ends: one that was going on at some time between them is kept.
    """

    began = "at"
    ended = "at"

    since = Moment(method="from_then_on", label=_("Since"))
    until = Moment(method="before_then", label=_("Until"))

    def from_then_on(self, rows: QuerySet[Any], name: str, value: datetime) -> QuerySet[Any]:
        """Rows that had not ended before the moment."""
        return rows.filter(**{f"{self.ended}__gte": value})

    def before_then(self, rows: QuerySet[Any], name: str, value: datetime) -> QuerySet[Any]:
        """Rows that had begun by the moment."""
        return rows.filter(**{f"{self.began}__lt": value})


class EntryFilter(Period):
    """Entries by who, what, where and when; an actor by a part of the name, a verb by its beginning."""

    cluster = filters.CharFilter(field_name="cluster", label=_("Cluster"))
    node = filters.CharFilter(field_name="node", label=_("Node"))
    rescue = RowNumber(field_name="rescue", label=_("Rescue"))
    actor = filters.CharFilter(field_name="actor", lookup_expr="icontains", label=_("Actor"))
    verb = filters.CharFilter(field_name="verb", lookup_expr="startswith", label=_("Verb"))
    subject = filters.CharFilter(field_name="subject", label=_("Subject"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Entry
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        """Entries whose actor, verb, subject or node contains the text."""
        return rows.filter(
            Q(actor__icontains=value)
            | Q(verb__icontains=value)
            | Q(subject__icontains=value)
            | Q(node__icontains=value)
        )
