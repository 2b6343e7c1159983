"""Filters of preflight runs, shared by pages and REST."""

import django_filters as filters
from django.utils.translation import gettext_lazy as _

from kcover_portal.ledger.filtersets import Period
from kcover_portal.preflight.models import PreflightRun


class PreflightRunFilter(Period):
    """Runs by workload, state, and the time between their first and last report."""

    began, ended = "first_at", "last_at"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    namespace = filters.CharFilter(field_name="namespace", label=_("Namespace"))
    workload = filters.CharFilter(field_name="workload", label=_("Workload"))
    uid = filters.CharFilter(field_name="uid", label=_("Workload UID"))
    state = filters.MultipleChoiceFilter(choices=PreflightRun.State.choices, label=_("State"))
    q = filters.CharFilter(field_name="workload", lookup_expr="icontains", label=_("Search"))

    class Meta:
        model = PreflightRun
        fields: tuple[str, ...] = ()
