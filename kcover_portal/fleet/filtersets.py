"""Filters of nodes, GPUs, maintenance windows and checks; shared by pages, REST and exports."""

from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils.translation import gettext_lazy as _

from kcover.faults import fault
from kcover_portal.fleet.models import CheckResult, Gpu, Maintenance, Node
from kcover_portal.ledger.filtersets import Moment


class Flag(filters.TypedChoiceFilter):
    """``true`` or ``false``; any other value is an error. django-filter's own filter would ignore it."""

    def __init__(self, **settings: Any) -> None:
        choices = (("true", _("Yes")), ("false", _("No")))
        super().__init__(choices=choices, coerce=lambda text: text == "true", **settings)


class NodeFilter(filters.FilterSet):
    """Nodes by place, hardware and state in the cluster."""

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="name", label=_("Node"))
    pool = filters.CharFilter(field_name="pool", label=_("Pool"))
    model = filters.CharFilter(field_name="model", label=_("GPU model"))
    driver = filters.CharFilter(field_name="driver", label=_("Driver"))
    ready = Flag(field_name="ready", label=_("Ready"))
    cordoned = Flag(field_name="unschedulable", label=_("Cordoned"))
    probation = Flag(field_name="probation_until", lookup_expr="isnull", exclude=True, label=_("On probation"))
    burn_in = Flag(field_name="not_ready_since", lookup_expr="isnull", exclude=True, label=_("Burn-in pending"))
    label = filters.CharFilter(method="by_label", label=_("Label (key or key=value)"))
    version = filters.CharFilter(field_name="agent__version", label=_("Agent version"))
    seen_before = Moment(field_name="agent__seen_at", lookup_expr="lt", label=_("Agent last seen before"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Node
        fields: tuple[str, ...] = ()

    def by_label(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        """Keeps nodes that have the label, with the given value if there is one."""
        key, equals, wanted = value.partition("=")
        if not equals:
            return rows.filter(labels__has_key=key)
        value_of = Cast(KeyTextTransform(key, "labels"), TextField())
        return rows.alias(label_value=value_of).filter(label_value=wanted)

    def search(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        """Keeps nodes whose name, pool, address or GPU model contains the text."""
        return rows.filter(
            Q(name__icontains=value)
            | Q(pool__icontains=value)
            | Q(address__icontains=value)
            | Q(model__icontains=value)
        )


class GpuFilter(filters.FilterSet):
    """GPUs by place and hardware."""

    cluster = filters.CharFilter(field_name="node__cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    model = filters.CharFilter(field_name="model", label=_("GPU model"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Gpu
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Gpu], name: str, value: str) -> QuerySet[Gpu]:
        """Keeps GPUs whose UUID, serial number, PCI address or node contains the text."""
        return rows.filter(
            Q(uuid__icontains=value)
            | Q(serial__icontains=value)
            | Q(pci__icontains=value)
            | Q(node__name__icontains=value)
        )


class MaintenanceFilter(filters.FilterSet):
    """Maintenance windows by scope and end."""

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    pool = filters.CharFilter(field_name="pool", label=_("Pool"))
    node = filters.CharFilter(field_name="node", label=_("Node"))
    ends_after = Moment(field_name="ends_at", lookup_expr="gt", label=_("Ends after"))

    class Meta:
        model = Maintenance
        fields: tuple[str, ...] = ()


class CheckFilter(filters.FilterSet):
    """Latest check results by place, check and status; several statuses match any of them."""

    cluster = filters.CharFilter(field_name="node__cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    check = filters.CharFilter(field_name="name", label=_("Check"))
    device = filters.CharFilter(field_name="device", label=_("Device"))
    status = filters.MultipleChoiceFilter(choices=[(value, value) for value in fault.CHECK_STATUSES], label=_("Status"))

    class Meta:
        model = CheckResult
        fields: tuple[str, ...] = ()
