"""The filters of lists of parts and placements; pages, REST and exports share them.

What a filter matches must not depend on rows that the caller may not see. So parts are filtered by what they are, and
places are filters of placements.
"""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_lazy as _

from kcover_portal.fleet.filtersets import Flag
from kcover_portal.ledger.filtersets import Period
from kcover_portal.parts import queries
from kcover_portal.parts.models import Part, Placement


class PartFilter(filters.FilterSet):
    """Parts by serial number and kind."""

    serial = filters.CharFilter(field_name="serial", label=_("Serial number"))
    kind = filters.ChoiceFilter(field_name="kind", choices=Part.Kind.choices, label=_("Part"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Part
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Part], name: str, value: str) -> QuerySet[Part]:
        """Parts whose serial number or model contains the text."""
        return rows.filter(Q(serial__icontains=value) | Q(model__icontains=value))


class PlacementFilter(Period):
    """Placements, by the time at which they began."""

    began = ended = "since"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node_name", label=_("Node"))
    slot = filters.CharFilter(field_name="slot", label=_("Slot"))
    kind = filters.ChoiceFilter(field_name="part__kind", choices=Part.Kind.choices, label=_("Part"))
    serial = filters.CharFilter(field_name="part__serial", label=_("Serial number"))
    present = Flag(method="by_end", label=_("Still there"))
    needs_person = Flag(method="by_need", label=_("Needs attention"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Placement
        fields: tuple[str, ...] = ()

    def by_end(self, rows: QuerySet[Placement], name: str, value: bool) -> QuerySet[Placement]:
        """Placements of parts that are still there, or the others."""
        there = Q(until=None) & (Q(node=None) | Q(node__gone_at=None))
        return rows.filter(there) if value else rows.exclude(there)

    def by_need(self, rows: QuerySet[Placement], name: str, value: bool) -> QuerySet[Placement]:
        """Placements that need attention, or the others."""
        waiting = Q(pk__in=queries.left_to_people().values("pk"))
        return rows.filter(waiting) if value else rows.exclude(waiting)

    def search(self, rows: QuerySet[Placement], name: str, value: str) -> QuerySet[Placement]:
        """Placements whose node, serial number or model contains the text."""
        return rows.filter(
            Q(node_name__icontains=value) | Q(part__serial__icontains=value) | Q(part__model__icontains=value)
        )
