"""Forms for API tokens."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.console.forms import Somewhere, widgets
from kcover_portal.fleet.models import Cluster

NARROWING = [(verb.value, verb.label) for verb in Verb if verb in queries.verbs_of_kind(ApiToken.Kind.OPERATOR)]
# A source's token needs its source: the page of sources says how to create one.
KINDS = [(kind, label) for kind, label in ApiToken.Kind.choices if kind != ApiToken.Kind.SOURCE]
OVERLAPS = (
    (0, gettext_lazy("Revoke it now")),
    (3_600, gettext_lazy("1 hour")),
    (86_400, gettext_lazy("1 day")),
    (604_800, gettext_lazy("7 days")),
)


class NewToken(Somewhere):
    """The kind, the rights and the expiry of a new token."""

    kind = forms.ChoiceField(choices=KINDS, label=gettext_lazy("Kind"), widget=widgets.select())
    node = forms.CharField(
        label=gettext_lazy("Node"),
        required=False,
        max_length=253,
        widget=widgets.line(),
        help_text=gettext_lazy("For agent tokens. A token without a node can only enrol agents."),
    )
    name = forms.CharField(label=gettext_lazy("Name"), required=False, max_length=120, widget=widgets.line())
    days = forms.IntegerField(
        label=gettext_lazy("Expires after (days)"),
        required=False,
        min_value=1,
        max_value=3650,
        widget=widgets.number(),
        help_text=gettext_lazy("Default: 90 days; agent tokens do not expire."),
    )
    networks = forms.CharField(
        label=gettext_lazy("Allowed networks"),
        required=False,
        max_length=1000,
        widget=widgets.line(),
        help_text=gettext_lazy("For example 192.0.2.0/24. Leave blank for any address."),
    )
    verbs = forms.MultipleChoiceField(
        choices=NARROWING,
        label=gettext_lazy("Allowed actions"),
        required=False,
        widget=widgets.checkboxes(),
        help_text=gettext_lazy("Select none to allow everything that the kind allows."),
    )
    scopes = forms.MultipleChoiceField(
        choices=[("override", gettext_lazy("Override guards for one action"))],
        label=gettext_lazy("Additional rights"),
        required=False,
        widget=widgets.checkboxes(),
        help_text=gettext_lazy("For tokens of operators and decision systems. Each use is in the audit log."),
    )
    field_order = ("kind", "cluster", "node", "name", "days", "networks", "verbs", "scopes")

    def __init__(self, data: Any, *, clusters: QuerySet[Cluster], everywhere: bool) -> None:
        super().__init__(data)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = clusters.order_by("name")
        if not everywhere:
            field.required, field.empty_label = True, None

    def begin_with(self, given: Mapping[str, str]) -> None:
        """Fills in the kind and the cluster that a link names."""
        self.initial.update({name: given[name] for name in ("kind", "cluster") if name in given})

    def rights(self, *, now: datetime) -> dict[str, Any]:
        """The arguments of ``services.make_token``."""
        given = {name: self.cleaned_data[name] for name in ("cluster", "node", "name", "verbs", "scopes")}
        days, kind = self.cleaned_data["days"], self.cleaned_data["kind"]
        expires_at = now + timedelta(days=days) if days else services.default_expiry(kind, now=now)
        return {**given, "expires_at": expires_at, "networks": self.cleaned_data["networks"].replace(",", " ").split()}


class Rotation(forms.Form):
    """The validity of the old secret after the rotation."""

    overlap = forms.TypedChoiceField(
        choices=OVERLAPS,
        coerce=int,
        initial=round(services.DEFAULT_OVERLAP.total_seconds()),
        label=gettext_lazy("The old secret stays valid for"),
        widget=widgets.select(),
    )
