"""Filters of check runs and of validations."""

import django_filters as filters
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.validation import profiles
from kcover_portal.checks.models import CheckRun, CheckTarget, ValidatedNode, Validation


class CheckRunFilter(filters.FilterSet):
    """Check runs by cluster, state, node and requester."""

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    state = filters.MultipleChoiceFilter(choices=CheckRun.State.choices, label=_("State"))
    node = filters.CharFilter(method="of_node", label=_("Node"))
    q = filters.CharFilter(field_name="requested_by", lookup_expr="icontains", label=_("Requested by"))

    class Meta:
        model = CheckRun
        fields: tuple[str, ...] = ()

    def of_node(self, rows: QuerySet[CheckRun], name: str, value: str) -> QuerySet[CheckRun]:
        """Runs that include the node."""
        return rows.filter(pk__in=CheckTarget.objects.filter(node__name=value).values("run"))


class ValidationFilter(filters.FilterSet):
    """Validations by cluster, state, profile, node and requester."""

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    state = filters.MultipleChoiceFilter(choices=Validation.State.choices, label=_("State"))
    profile = filters.MultipleChoiceFilter(choices=[(name, name) for name in profiles.DEFAULTS], label=_("Profile"))
    node = filters.CharFilter(method="of_node", label=_("Node"))
    q = filters.CharFilter(field_name="requested_by", lookup_expr="icontains", label=_("Requested by"))

    class Meta:
        model = Validation
        fields: tuple[str, ...] = ()

    def of_node(self, rows: QuerySet[Validation], name: str, value: str) -> QuerySet[Validation]:
        """Validations that include the node."""
        return rows.filter(pk__in=ValidatedNode.objects.filter(node__name=value).values("validation"))
