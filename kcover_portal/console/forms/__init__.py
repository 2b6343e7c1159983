"""Forms of the console: a reason for every action, and the filters of lists."""

from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.utils.translation import gettext as _, gettext_lazy

from kcover_portal.accounts.models import User
from kcover_portal.console.forms import widgets
from kcover_portal.console.forms.list_filters import shown as shown
from kcover_portal.fleet.models import Cluster

CONFIRM_FROM_PODS = 10  # number of evicted pods from which on the node's name must be typed


class Act(forms.Form):
    """The reason for an action; with ``typed`` the person must also type that name to confirm."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
        help_text=gettext_lazy("Recorded in the audit log."),
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
        """The typed name; raises ValidationError unless it is the expected one."""
        name: str = self.cleaned_data["name"]
        if name != self.typed:
            raise forms.ValidationError(_("Does not match %(name)s.") % {"name": self.typed})
        return name


class Pause(Act):
    """An Act whose reason may follow later, because a pause must not wait for it."""

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.fields["reason"].required = False


class NodeAct(Act):
    """An action on a node; ``passable`` are the guards that the person may override."""

    override = forms.MultipleChoiceField(required=False)

    def __init__(self, data: Any = None, *, typed: str = "", passable: Collection[str] = ()) -> None:
        super().__init__(data, typed=typed)
        field = self.fields["override"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(guard, guard) for guard in passable]


def hits_much(pods: Sequence[Any] | None) -> bool:
    """Returns whether an action affects so many pods, or an unknown number, that the name must be typed."""
    return pods is not None and len(pods) >= CONFIRM_FROM_PODS


class Somewhere(forms.Form):
    """A form for one cluster, or for all clusters if the person's role covers all."""

    cluster = forms.ModelChoiceField(
        Cluster.objects.order_by("name"),
        label=gettext_lazy("Cluster"),
        required=False,
        empty_label=gettext_lazy("all clusters"),
        to_field_name="name",
        widget=widgets.select(),
    )


class Approver(forms.Form):
    """The person for whom an approval link is created."""

    approver = forms.ChoiceField(label=gettext_lazy("Person"), widget=widgets.select())

    def __init__(self, data: Any, *, people: Sequence[User]) -> None:
        super().__init__(data)
        self.people = {person.get_username(): person for person in people}
        field = self.fields["approver"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in self.people]

    def clean_approver(self) -> User:
        return self.people[self.cleaned_data["approver"]]


# The faults that the demo offers: two that a reboot cures, one that needs hands, and one that a user's program causes.
DEMO_CODES = (48, 62, 64, 79, 31)


class Inject(forms.Form):
    """A fault for the simulator: without a node, a random healthy one."""

    code = forms.TypedChoiceField(choices=[(code, f"Xid {code}") for code in DEMO_CODES], coerce=int, initial=62)
    node = forms.CharField(max_length=253, required=False)
    gpu = forms.IntegerField(min_value=0, max_value=63, required=False)


def query(**parts: str) -> str:
    """A query string without empty parameters."""
    return urlencode({key: value for key, value in parts.items() if value})
