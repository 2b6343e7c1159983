"""The filters above a list: fields with the values that the portal knows, and a chip for each filter that is set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _, gettext_lazy

from kcover.notify import events
from kcover_portal.console import presentation
from kcover_portal.console.access import Request
from kcover_portal.console.fault_names import KINDS
from kcover_portal.console.list_query import ListResult
from kcover_portal.console.reads import known_values

MAX_SELECT = 60  # values in a select; longer lists of values become suggestions of a text field
PRESETS = (
    ("1h", gettext_lazy("1 h")),
    ("24h", gettext_lazy("24 h")),
    ("7day", gettext_lazy("7 d")),
    ("30day", gettext_lazy("30 d")),
)
TIMES = ("since", "until")
LABELS = {  # of filters that are no fields of a form
    "q": gettext_lazy("Search"),
    "cluster": gettext_lazy("Cluster"),
    "namespace": gettext_lazy("Namespace"),
    "kind": gettext_lazy("Kind"),
    "state": gettext_lazy("State"),
}
Choices = list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter that is set: its label, its value for people, and the query string without it."""

    label: str
    value: str
    without: str


def shown(request: Request, found: ListResult, *names: str) -> Any:
    """The filters above a list, in order, as the template renders them. Lazy: fragments do not show them."""
    return SimpleLazyObject(lambda: [_field(request, found, name) for name in names])


def of_computed(asked: Mapping[str, str], choices: Mapping[str, Choices]) -> list[dict[str, Any]]:
    """The same for a list that no table has: the filters of the address, and what some of them offer."""
    return [
        {
            "name": name,
            "label": LABELS[name],
            "kind": "search" if name == "q" else "select" if name in choices else "text",
            "choices": choices.get(name, ()),
            "value": value,
            "errors": (),
        }
        for name, value in asked.items()
    ]


def _field(request: Request, found: ListResult, name: str) -> dict[str, Any]:
    field = found.filter.form[name]
    value = ",".join(found.parameters.getlist(name))
    kind, choices = "text", _choices(found, name)
    if choices:
        kind = "select"
    elif name in TIMES:
        kind = "time"
    elif known := known_values.of(request.user, name, kind_in_code=found.listing.name == "rescues"):
        kind, choices = ("datalist" if len(known) > MAX_SELECT or name in known_values.FREE else "select"), known
        if kind == "select" and value and value not in dict(choices):
            choices = [(value, value), *choices]
    return {
        "name": name,
        "label": field.label,
        "kind": "search" if name == "q" else kind,
        "choices": choices,
        "value": value,
        "presets": PRESETS if name == "since" else (),
        "errors": field.errors,
    }


def _choices(found: ListResult, name: str) -> Choices:
    """The choices of a filter that has a fixed set of values; none for the others."""
    field = found.filter.form.fields[name]
    if isinstance(field, forms.NullBooleanField):
        return [("true", _("yes")), ("false", _("no"))]
    offered: Any = field.choices if isinstance(field, forms.ChoiceField) else ()
    return [(str(value), _label(name, value, label)) for value, label in offered if str(value) not in ("", "unknown")]


def _label(name: str, value: Any, label: Any) -> Any:
    """The label of a filter's choice, as the pages show that value."""
    if name == "kind":
        return presentation.event_kind(value) if value in events.KINDS else KINDS.get(value, label)
    return presentation.of(name, value).label if value and name in ("severity", "mode") else label


def chips(found: ListResult) -> Sequence[Chip]:
    """A chip for each value of each filter in the address, also of filters that have no field on the page."""
    drawn = []
    for name, field in found.filter.form.fields.items():
        labels = dict(PRESETS if name in TIMES else _choices(found, name))
        for value in found.parameters.getlist(name):
            if not value:
                continue
            without = found.parameters.copy()
            without.pop("page", None)
            without.setlist(name, [one for one in without.getlist(name) if one not in ("", value)])
            text = str(labels.get(value, value))
            drawn.append(Chip(str(field.label), text, without.urlencode()))
    return drawn
