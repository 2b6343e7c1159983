"""Forms of the console: a reason for every act, and the filters of lists."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import django_filters as filters
from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kcover_portal.console import looks

MUCH = 10  # pods hit; from here on the node's name is typed


class Act(forms.Form):
    """Why a person does something; with ``typed`` also the name of what it hits, letter by letter."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
        help_text=gettext_lazy("Goes into the audit log."),
    )
    name = forms.CharField(
        required=False,
        max_length=253,
        widget=forms.TextInput(attrs={"class": "form-control mono", "autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, data: Any = None, *, typed: str = "") -> None:
        super().__init__(data)
        self.typed = typed
        if not typed:
            del self.fields["name"]
        else:
            self.fields["name"].label = _("Type %(name)s to confirm") % {"name": typed}

    def clean_name(self) -> str:
        """Refuses anything but the name."""
        name: str = self.cleaned_data["name"]
        if name != self.typed:
            raise forms.ValidationError(_("This is not %(name)s.") % {"name": self.typed})
        return name


def hits_much(pods: Sequence[Any] | None) -> bool:
    """Whether so many pods are hit, or nobody knows how many, that a second thought is asked for."""
    return pods is not None and len(pods) >= MUCH


# The faults that the demo offers: two that reboot heals, one that needs hands, and one that is a program's own doing.
DEMO_CODES = (48, 62, 64, 79, 31)


class Inject(forms.Form):
    """A fault for the simulator: without a node, a random healthy one."""

    code = forms.TypedChoiceField(choices=[(code, f"Xid {code}") for code in DEMO_CODES], coerce=int, initial=62)
    node = forms.CharField(max_length=253, required=False)
    gpu = forms.IntegerField(min_value=0, max_value=63, required=False)


def shown(chosen: filters.FilterSet, *names: str, clusters: Iterable[str]) -> list[dict[str, Any]]:
    """The filters that a page offers above its list, in order, ready to be drawn."""
    drawn = []
    for name in names:
        field = chosen.form[name]
        kind = "select" if isinstance(field.field, forms.ChoiceField | forms.NullBooleanField) else "text"
        choices: list[tuple[str, Any]] = []
        if kind == "select":
            choices = [(str(value), _label(name, value, label)) for value, label in getattr(field.field, "choices", ())]
        if isinstance(field.field, forms.NullBooleanField):
            choices = [("true", _("yes")), ("false", _("no"))]
        if name == "cluster":
            kind, choices = "select", [(cluster, cluster) for cluster in clusters]
        given = chosen.data.getlist(name) if hasattr(chosen.data, "getlist") else []
        drawn.append(
            {
                "name": name,
                "label": field.label,
                "kind": "search" if name == "q" else kind,
                "choices": [choice for choice in choices if choice[0] not in ("", "unknown")],
                "value": ",".join(given),
                "errors": field.errors,
            }
        )
    return drawn


def _label(name: str, value: Any, label: Any) -> Any:
    return looks.of("severity", value).label if name == "severity" else label


def query(**parts: str) -> str:
    """A query string without empty parts."""
    return urlencode({key: value for key, value in parts.items() if value})
