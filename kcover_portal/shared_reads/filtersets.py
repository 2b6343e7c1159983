"""Filters that cross apps: nodes by faults and rescues, incidents by whether they need attention."""

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from kcover.plans import lifecycle
from kcover_portal.fleet import filtersets as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents import filtersets as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person
from kcover_portal.shared_reads import node_status

NODE_STATES = (
    ("healthy", _("Healthy")),
    ("faulty", _("Faulty")),
    ("rescue", _("In rescue")),
    ("cordoned", _("Cordoned")),
    ("not-ready", _("Not ready")),
    ("unknown", _("Not in the cluster")),
    ("gone", _("Removed from the cluster")),
)


class NodeFilter(fleet.NodeFilter):
    """Nodes by place, hardware and state; several values mean any of them."""

    state = filters.MultipleChoiceFilter(choices=NODE_STATES, method="by_state", label=_("Condition"))
    status = filters.MultipleChoiceFilter(
        choices=[*node_status.STATUSES.items(), *node_status.OFF_THE_MAP.items()],
        method="by_status",
        label=_("State"),
    )
    kind = filters.CharFilter(method="by_fault", label=_("Open fault kind"))
    code = filters.CharFilter(method="by_fault", label=_("Open fault code"))

    def by_state(self, rows: QuerySet[Node], name: str, value: list[str]) -> QuerySet[Node]:
        """Nodes in any of the states."""
        wanted = Q()
        for state in value:
            wanted |= _in_state(state)
        return rows.filter(wanted)

    def by_status(self, rows: QuerySet[Node], name: str, value: list[str]) -> QuerySet[Node]:
        """Nodes in any of the states of the column and of the overview; each node is in exactly one."""
        now, wanted = timezone.now(), Q(pk__in=())
        for status in value:
            wanted |= node_status.in_status(status, now=now)
        return rows.filter(wanted)

    def by_fault(self, rows: QuerySet[Node], name: str, value: str) -> QuerySet[Node]:
        """Nodes with one open incident of this kind and code."""
        wanted = {key: self.form.cleaned_data[key] for key in ("kind", "code") if self.form.cleaned_data.get(key)}
        faults = Incident.objects.filter(state=Incident.State.OPEN, node__isnull=False, **wanted)
        return rows.filter(pk__in=faults.values("node"))


def _in_state(state: str) -> Q:
    faults = Incident.objects.filter(state=Incident.State.OPEN, is_user_fault=False, node__isnull=False)
    faulty = Q(pk__in=faults.values("node"))
    in_rescue = Q(pk__in=Rescue.objects.filter(state__in=lifecycle.OPEN_RESCUE).values("node"))
    present = Q(in_cluster=True, gone_at=None)
    return {
        "healthy": present & Q(ready=True, unschedulable=False) & ~faulty & ~in_rescue,
        "faulty": faulty,
        "rescue": in_rescue,
        "cordoned": Q(unschedulable=True),
        "not-ready": present & Q(ready=False),
        "unknown": Q(in_cluster=False),
        "gone": Q(gone_at__isnull=False),
    }[state]


class IncidentFilter(incidents.IncidentFilter):
    """Incidents by place, fault and time, and by whether a person has to act on them."""

    needs_person = fleet.Flag(method="by_need", label=_("Needs attention"))

    def by_need(self, rows: QuerySet[Incident], name: str, value: bool) -> QuerySet[Incident]:
        """Incidents that need attention, or those that do not."""
        waiting = Q(pk__in=needs_person.unhandled_incidents().values("pk"))
        waiting |= Q(pk__in=needs_person.open_storms().values("pk"))
        waiting |= Q(pk__in=needs_person.open_ledger_incidents().values("pk"))
        return rows.filter(waiting if value else ~waiting)
