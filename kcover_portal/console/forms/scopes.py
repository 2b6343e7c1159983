"""The scope of an act in a form: how the nodes are selected, and their names. Both are text fields without scripts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from kcover.nodes import scopes
from kcover_portal.console.forms import widgets
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization

MAX_CHARACTERS = 200_000
# The values of the field ``by``: a kind of scope, or a domain.
WAYS = (
    ("nodes", _("Nodes by name")),
    ("labels", _("Nodes by label")),
    ("pools", _("Pools")),
    ("rack", _("Racks")),
    ("leaf", _("Leaf switches")),
    ("nvlink", _("NVLink domains")),
)
OLDER_NAMES = {"node": "nodes", "host": "nodes", "pool": "pools", "nodelabel": "labels"}
# The field of this form at which an error about a kind of scope is shown.
FIELDS = dict.fromkeys(scopes.KINDS, "which") | {"": "by"}


class ScopeFields(forms.Form):
    """A scope of the cluster that another field of the form names.

    ``whole``: the label of the empty choice. ``ways``: the other choices. ``must_select``: the empty one is refused.
    """

    by = forms.ChoiceField(label=_("Select nodes by"), required=False, widget=widgets.select())
    which = forms.CharField(
        label=_("Names"),
        required=False,
        max_length=MAX_CHARACTERS,
        help_text=_("Names of nodes, pools, racks or switches, or labels as key=value, with commas between them."),
        widget=forms.Textarea(
            attrs={"class": "form-control mono", "rows": 2, "autocomplete": "off", "spellcheck": "false"}
        ),
    )
    whole: Any = _("The whole cluster")
    ways: Sequence[tuple[str, Any]] = WAYS
    must_select = False

    def __init__(self, data: Any = None, **settings: Any) -> None:
        super().__init__(_with_older_names(data), **settings)
        field = self.fields["by"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", self.whole), *self.ways]
        field.required = self.fields["which"].required = self.must_select

    def clean(self) -> dict[str, Any] | None:
        """Adds ``scope`` to the cleaned data."""
        super().clean()
        given = self.cleaned_data
        by, names = given.get("by", ""), split(given.get("which", ""))
        try:
            given["scope"] = scopes.parse(document(by, names))
        except scopes.ScopeError as error:
            self.add_error("which", localization.say(error.reason))
        if names and not by:
            self.add_error("by", _("Select what these names are."))
        return given


class OnNodes(ScopeFields):
    """A scope with its cluster."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.none(),
        label=_("Cluster"),
        to_field_name="name",
        empty_label=None,
        widget=widgets.select(),
    )
    field_order: Sequence[str] = ("cluster", "by", "which")

    def __init__(self, data: Any, *, clusters: QuerySet[Cluster], initial: Mapping[str, Any]) -> None:
        super().__init__(data, initial=dict(initial))
        field = self.fields["cluster"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = clusters.order_by("name")


class SomeNodes(OnNodes):
    """A scope that is not the whole cluster: an act on nodes must name them."""

    whole = _("Select one")
    must_select = True


def _with_older_names(data: Any) -> Any:
    """The data of a form with the names of its fields before there were scopes.

    A page that was open during an upgrade still sends them. They must not turn into the whole cluster.
    """
    given = {name: data[name] for name in OLDER_NAMES if data.get(name)} if data else {}
    if not given or data.get("by") or data.get("which"):
        return data
    by = OLDER_NAMES[next(iter(given))] if len(given) == 1 else ""  # of several, none is selected
    found = data.copy()
    found["by"], found["which"] = by, ", ".join(given.values())
    return found


def split(text: str) -> list[str]:
    """The names in a text with commas, spaces or line breaks between them."""
    return list(dict.fromkeys(name for name in re.split(r"[\s,]+", text) if name))


def document(by: str, names: list[str]) -> dict[str, Any]:
    """What ``scopes.parse`` reads. ``by``: a value of the field, "" for the whole cluster."""
    if not by:
        return {}
    return {"domains": {by: names}} if by in scopes.DOMAINS else {by: names}
