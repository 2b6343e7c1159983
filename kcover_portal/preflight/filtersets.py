"""Filters of preflight runs and of plans of pair tests, shared by pages and REST."""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from kcover_portal.ledger.filtersets import Period
from kcover_portal.preflight.models import PairPlan, PreflightRun


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


class PairPlanFilter(filters.FilterSet):
    """Plans of pair tests by cluster, state, node and requester."""

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    state = filters.MultipleChoiceFilter(choices=PairPlan.State.choices, label=_("State"))
    node = filters.CharFilter(method="of_node", label=_("Node"))
    q = filters.CharFilter(field_name="requested_by", lookup_expr="icontains", label=_("Requested by"))

    class Meta:
        model = PairPlan
        fields: tuple[str, ...] = ()

    def of_node(self, rows: QuerySet[PairPlan], name: str, value: str) -> QuerySet[PairPlan]:
        """Plans that test the node."""
        return rows.filter(Q(tests__first__name=value) | Q(tests__second__name=value)).distinct()
