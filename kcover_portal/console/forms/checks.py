"""The form that starts a check run."""

from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover import autopilot
from kcover_portal.fleet.models import Cluster

OFFERED = tuple(autopilot.CHECKS)


def _line() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"})


class Checks(forms.Form):
    """The checks to run, and the nodes of a cluster to run them on."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.none(),
        label=_("Cluster"),
        to_field_name="name",
        empty_label=None,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    checks = forms.MultipleChoiceField(
        choices=[(name, name) for name in OFFERED],
        initial=list(autopilot.PERIODIC_CHECKS),
        label=_("Checks"),
        widget=forms.SelectMultiple(attrs={"class": "form-select", "size": len(OFFERED)}),
    )
    level = forms.TypedChoiceField(
        choices=[(level, level) for level in autopilot.DCGM_LEVELS],
        coerce=int,
        label=_("DCGM level"),
        help_text=_("Level 2 and above needs idle GPUs, as gpumem does."),
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    host = forms.CharField(
        required=False,
        max_length=10_000,
        label=_("Nodes"),
        help_text=_("Comma-separated names. Leave this and the label blank for every GPU node."),
        widget=_line(),
    )
    nodelabel = forms.CharField(required=False, max_length=400, label=_("Label (key=value)"), widget=_line())
    batch = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=100_000,
        label=_("Nodes at a time"),
        help_text=_("Leave blank for all at once."),
        widget=forms.NumberInput(attrs={"class": "form-control"}),
    )

    def __init__(self, data: Any, *, clusters: QuerySet[Cluster], initial: dict[str, Any]) -> None:
        super().__init__(data, initial=initial)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = clusters.order_by("name")

    def clean_host(self) -> list[str]:
        """The node names without duplicates."""
        return list(dict.fromkeys(name for part in self.cleaned_data["host"].split(",") if (name := part.strip())))
