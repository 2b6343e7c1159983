"""The filter of lists of repairs; pages, REST and exports share it."""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kcover_portal.fleet.filtersets import Flag
from kcover_portal.ledger.filtersets import Period
from kcover_portal.repairs.models import Repair
from kcover_portal.repairs.queries import needs


class RepairFilter(Period):
    """Repairs, by the time at which they were reported."""

    began = ended = "reported_at"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node_name", label=_("Node"))
    state = filters.MultipleChoiceFilter(choices=Repair.State.choices, label=_("State"))
    part = filters.CharFilter(field_name="part_kind", label=_("Part"))
    serial = filters.CharFilter(method="by_serial", label=_("Serial number"))
    vendor = filters.CharFilter(field_name="vendor", label=_("Vendor"))
    assignee = filters.CharFilter(field_name="assignee", label=_("Owner"))
    ticket = filters.CharFilter(field_name="ticket", label=_("Ticket"))
    overdue = Flag(method="by_date", label=_("Overdue"))
    needs_person = Flag(method="by_need", label=_("Needs attention"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Repair
        fields: tuple[str, ...] = ()

    def by_serial(self, rows: QuerySet[Repair], name: str, value: str) -> QuerySet[Repair]:
        """Repairs of the part or machine with this serial number."""
        return rows.filter(Q(part_serial=value) | Q(machine_serial=value))

    def by_date(self, rows: QuerySet[Repair], name: str, value: bool) -> QuerySet[Repair]:
        """Open repairs that are overdue, or the others."""
        late = needs.late(now=timezone.now())
        return rows.filter(late) if value else rows.exclude(late)

    def by_need(self, rows: QuerySet[Repair], name: str, value: bool) -> QuerySet[Repair]:
        """Repairs that need attention, or the others."""
        waiting = needs.needing_person(now=timezone.now())
        return rows.filter(waiting) if value else rows.exclude(waiting)

    def search(self, rows: QuerySet[Repair], name: str, value: str) -> QuerySet[Repair]:
        """Repairs whose node, part, vendor, ticket or owner contains the text."""
        columns = ("node_name", "part_kind", "part_serial", "machine_serial", "vendor", "ticket", "assignee")
        wanted = Q()
        for column in columns:
            wanted |= Q((f"{column}__icontains", value))
        return rows.filter(wanted)
