"""Filters of decisions, rescues and approvals; pages, REST and exports use the same ones."""

import django_filters as filters
from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Concat, Trim
from django.utils.translation import gettext_lazy as _

from kcover.policy import modes
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.ledger.filtersets import Period, RowNumber
from kcover_portal.rescue.models import Approval, Decision, Rescue
from kcover_portal.rescue.queries import needs_person

FAULT = Trim(Concat("fault_kind", Value(" "), "fault_code"))  # as ``Rescue.code`` has it: xid 62
NEEDS = (("approval", _("An approval")), ("people", _("A decision on the node")))
STATUSES = (
    ("approval", _("Awaiting approval")),
    ("people", _("Needs attention")),
    *((state, label) for state, label in Rescue.State.choices if state != Rescue.State.HELD),
    ("held", _("On hold")),
)
MODES = [(mode, mode) for mode in modes.MODES]


class DecisionFilter(Period):
    """Decisions, by the period in which they were current."""

    ended = "last_at"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    incident = RowNumber(field_name="incident_id", label=_("Incident"))
    answer = filters.MultipleChoiceFilter(choices=Decision.Answer.choices, label=_("Answer"))
    mode = filters.MultipleChoiceFilter(choices=MODES, label=_("Mode"))
    policy = filters.CharFilter(field_name="policy", label=_("Policy"))
    rule = filters.CharFilter(field_name="rule", label=_("Rule"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Decision
        fields: tuple[str, ...] = ()

    def search(self, rows: QuerySet[Decision], name: str, value: str) -> QuerySet[Decision]:
        """Decisions whose node or rule contains the text."""
        return rows.filter(Q(node__name__icontains=value) | Q(rule__icontains=value))


class RescueFilter(Period):
    """Rescues, by the time at which they were opened."""

    began = ended = "opened_at"

    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node__name", label=_("Node"))
    pool = filters.CharFilter(field_name="node__pool", label=_("Pool"))
    incident = RowNumber(field_name="incidents", label=_("Incident"))
    state = filters.MultipleChoiceFilter(choices=Rescue.State.choices, label=_("State"))
    status = filters.MultipleChoiceFilter(choices=STATUSES, method="by_status", label=_("State"))
    outcome = filters.CharFilter(field_name="outcome", label=_("Outcome"))
    origin = filters.MultipleChoiceFilter(choices=Rescue.Origin.choices, label=_("Origin"))
    verified = Flag(field_name="verified", label=_("Verified healthy"))
    needs_human = Flag(field_name="needs_human", label=_("Needs attention"))
    needs_person = filters.MultipleChoiceFilter(choices=NEEDS, method="by_need", label=_("Needs attention"))
    code = filters.CharFilter(method="of_fault", label=_("Fault (e.g. xid 62)"))
    policy = filters.CharFilter(field_name="policy", label=_("Policy"))
    rule = filters.CharFilter(field_name="rule", label=_("Rule"))
    requested_by = filters.CharFilter(field_name="requested_by", label=_("Requested by"))
    q = filters.CharFilter(method="search", label=_("Search"))

    class Meta:
        model = Rescue
        fields: tuple[str, ...] = ()

    def of_fault(self, rows: QuerySet[Rescue], name: str, value: str) -> QuerySet[Rescue]:
        """Rescues that are about the fault, given as kind and code: ``xid 62``."""
        kind, _, code = value.partition(" ")
        return rows.filter(fault_kind=kind, fault_code=code)

    def by_status(self, rows: QuerySet[Rescue], name: str, value: list[str]) -> QuerySet[Rescue]:
        """Rescues in any of the states as people see them; each rescue is in exactly one."""
        wanted = Q(pk__in=())
        for status in value:
            wanted |= needs_person.STATUSES[status]
        return rows.filter(wanted)

    def by_need(self, rows: QuerySet[Rescue], name: str, value: list[str]) -> QuerySet[Rescue]:
        """Rescues that need attention for any of these."""
        wanted = Q()
        for kind in value:
            wanted |= needs_person.KINDS[kind]
        return rows.filter(wanted)

    def search(self, rows: QuerySet[Rescue], name: str, value: str) -> QuerySet[Rescue]:
        """Rescues whose node, fault, rule, reason or the parameters of whose outcome contain the text."""
        return rows.annotate(fault=FAULT).filter(
            Q(node__name__icontains=value)
            | Q(fault__icontains=value)
            | Q(rule__icontains=value)
            | Q(reason__icontains=value)
            | Q(opened_because__icontains=value)
            | Q(because__icontains=value)
        )


class ApprovalFilter(Period):
    """Answers that people gave to rescues."""

    cluster = filters.CharFilter(field_name="rescue__cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="rescue__node__name", label=_("Node"))
    rescue = RowNumber(field_name="rescue_id", label=_("Rescue"))
    approved = Flag(field_name="approved", label=_("Approved"))

    class Meta:
        model = Approval
        fields: tuple[str, ...] = ()
