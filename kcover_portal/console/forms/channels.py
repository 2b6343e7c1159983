"""Forms of notifications: a channel of one kind, and a route to a channel."""

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy

from kcover.notify import events
from kcover_portal.console import presentation
from kcover_portal.console.forms import Somewhere, widgets
from kcover_portal.fleet.models import Cluster
from kcover_portal.notify.models import Channel, Route


class NamespaceRouteForm(forms.Form):
    """The namespaces of a cluster whose jobs a channel for owners hears of."""

    channel = forms.ModelChoiceField(
        Channel.objects.filter(for_owners=True).order_by("name"),
        label=gettext_lazy("Channel"),
        to_field_name="name",
        widget=widgets.select(),
        help_text=gettext_lazy("Only channels that owners of jobs may use."),
    )
    cluster = forms.ModelChoiceField(
        Cluster.objects.order_by("name"),
        label=gettext_lazy("Cluster"),
        to_field_name="name",
        widget=widgets.select(),
    )
    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        max_length=63,
        widget=widgets.line(),
        help_text=gettext_lazy("A name, or a pattern such as team-*. The most specific one counts."),
    )


class RouteForm(Somewhere):
    """The events that go to a channel."""

    channel = forms.ModelChoiceField(
        Channel.objects.order_by("name"),
        label=gettext_lazy("Channel"),
        to_field_name="name",
        widget=widgets.select(),
    )
    kinds = forms.MultipleChoiceField(label=gettext_lazy("Events"), initial=list(events.URGENT_KINDS))
    least = forms.ChoiceField(
        label=gettext_lazy("Incidents from severity"),
        choices=[
            ("", gettext_lazy("any")),
            *((name, presentation.of("severity", name).label) for name, _label in Route.SEVERITIES),
        ],
        required=False,
        widget=widgets.select(),
    )
    field_order = ("channel", "kinds", "cluster", "least")

    def __init__(self, data: Any = None, *, clusters: QuerySet[Cluster], channel: str = "") -> None:
        super().__init__(data, initial={"channel": channel})
        field, kinds = self.fields["cluster"], self.fields["kinds"]
        assert isinstance(field, forms.ModelChoiceField)
        assert isinstance(kinds, forms.MultipleChoiceField)
        field.queryset = clusters.order_by("name")
        kinds.choices = [(kind, kind) for kind in events.KINDS]

    def offered(self) -> list[tuple[str, Any, bool]]:
        """Every kind of event: (name, title, selected)."""
        chosen = self["kinds"].value() or []
        return [(kind, presentation.event_kind(kind), kind in chosen) for kind in events.KINDS]
