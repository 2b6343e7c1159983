"""The filters of a list of deliveries; pages, REST and exports share them."""

import django_filters as filters
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.notify import events
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.ledger.filtersets import Period
from kcover_portal.notify.models import Delivery


class DeliveryFilter(Period):
    """Deliveries by channel, state, kinds of events, cluster and time."""

    began = "opened_at"
    ended = "opened_at"

    channel = filters.CharFilter(field_name="name", label=_("Channel"))
    state = filters.MultipleChoiceFilter(choices=Delivery.State.choices, label=_("State"))
    kind = filters.MultipleChoiceFilter(
        choices=[(kind, kind) for kind in events.KINDS], method="telling", label=_("Events")
    )
    cluster = filters.CharFilter(method="about", label=_("Cluster"))
    test = Flag(field_name="test", label=_("Test"))

    class Meta:
        model = Delivery
        fields: tuple[str, ...] = ()

    def telling(self, rows: QuerySet[Delivery], name: str, value: list[str]) -> QuerySet[Delivery]:
        """Deliveries that contain an event of one of these kinds."""
        return rows.filter(notices__kind__in=value).distinct() if value else rows

    def about(self, rows: QuerySet[Delivery], name: str, value: str) -> QuerySet[Delivery]:
        """Deliveries that contain an event of the cluster."""
        return rows.filter(notices__cluster=value).distinct()
