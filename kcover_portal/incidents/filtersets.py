"""The filters of lists of incidents and occurrences; pages, REST and exports use the same ones."""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.faults import fault
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.ledger.filtersets import Period, RowNumber

KINDS = [(kind, kind) for kind in fault.INCIDENT_KINDS]


class AnyOf(filters.BaseInFilter, filters.CharFilter):
    """One value, or several separated by commas."""


class IncidentFilter(Period):
    """Incidents, by the time between their first and last occurrence."""

    began, ended = "opened_at", "last_at"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    state = filters.MultipleChoiceFilter(choices=Incident.State.choices, label=_("State"))
    kind = filters.MultipleChoiceFilter(choices=KINDS, label=_("Kind"))
    code = AnyOf(field_name="code", lookup_expr="in", label=_("Code"))
    severity = AnyOf(field_name="severity", lookup_expr="in", label=_("Severity"))
    device = filters.CharFilter(field_name="device", label=_("Device"))
    gpu = filters.CharFilter(field_name="gpu_uuid", label=_("GPU UUID"))
    drill = Flag(field_name="drill", label=_("Drill"))
    program = Flag(field_name="is_user_fault", label=_("Application fault"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Incident
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Incident], name: str, value: str) -> QuerySet[Incident]:
        """Incidents whose node, code, device or message contains the text."""
        return rows.filter(
            Q(node__name__icontains=value)
            | Q(code__iexact=value)
            | Q(device__icontains=value)
            | Q(gpu_uuid__icontains=value)
            | Q(message__icontains=value)
        )


class OccurrenceFilter(Period):
    """Occurrences, by the time at which the portal stored them."""

    cluster = filters.CharFilter(field_name="node__cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    incident = RowNumber(field_name="incident_id", label=_("Incident"))
    kind = filters.MultipleChoiceFilter(field_name="incident__kind", choices=KINDS, label=_("Kind"))
    code = AnyOf(field_name="incident__code", lookup_expr="in", label=_("Code"))
    source = filters.CharFilter(field_name="source", label=_("Source"))
    drill = Flag(field_name="drill", label=_("Drill"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Occurrence
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Occurrence], name: str, value: str) -> QuerySet[Occurrence]:
        """Occurrences whose node or message contains the text."""
        return rows.filter(Q(node__name__icontains=value) | Q(message__icontains=value))
