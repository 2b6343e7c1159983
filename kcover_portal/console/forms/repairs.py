"""The forms of the repair desk: a new repair, a move, a change of details."""

from collections.abc import Callable, Mapping
from datetime import datetime, tzinfo
from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _, gettext_lazy

from kcover.repairs.repairs import Move, Part, Terms
from kcover_portal.console import part_names
from kcover_portal.console.forms import Act, widgets
from kcover_portal.repairs.models import Repair

MINUTES: Final = "%Y-%m-%dT%H:%M"


def _text(label: Any, most: int) -> Callable[[], forms.Field]:
    return lambda: forms.CharField(label=label, required=False, max_length=most, widget=widgets.line())


FIELDS: Final[Mapping[str, Callable[[], forms.Field]]] = {
    "part_kind": lambda: forms.ChoiceField(label=gettext_lazy("Part"), widget=widgets.select()),
    "part_slot": _text(gettext_lazy("Slot"), 60),
    "part_serial": _text(gettext_lazy("Serial number of the part"), 120),
    "machine_serial": _text(gettext_lazy("Serial number of the machine"), 120),
    "action": _text(gettext_lazy("Action"), 200),
    "vendor": _text(gettext_lazy("Vendor"), 120),
    "queue": _text(gettext_lazy("Queue"), 120),
    "ticket": _text(gettext_lazy("Ticket"), 200),
    "assignee": _text(gettext_lazy("Owner"), 200),
    "due": lambda: forms.DateTimeField(
        required=False,
        input_formats=[MINUTES, f"{MINUTES}:%S"],
        widget=forms.DateTimeInput(attrs={"class": "form-control", "type": "datetime-local"}, format=MINUTES),
    ),
}
OF_MOVE: Final[Mapping[Move, tuple[str, ...]]] = {
    Move.ACCEPT: ("assignee", "due"),
    Move.HAND_OVER: ("action", "assignee", "due"),
    Move.RETURN: ("action", "part_serial", "machine_serial", "assignee", "due"),
    Move.CLOSE: (),
    Move.REFUSE: (),
}
OF_CHANGE: Final = tuple(name for name in FIELDS if name != "action")


class RepairForm(Act):
    """A reason, and some of FIELDS. ``initial``: their present values by column. ``zone``: the present time zone."""

    def __init__(self, data: Any = None, *, names: tuple[str, ...], initial: Mapping[str, Any], zone: tzinfo) -> None:
        super().__init__(data)
        for name in names:
            self.fields[name] = FIELDS[name]()
            self.initial[name] = initial.get(name, "")
        self.names = names
        if "due" in self.fields:
            due: datetime | None = initial.get("due")
            # The input has no seconds, so a date that nobody touches stays as it is.
            self.initial["due"] = due.replace(second=0, microsecond=0) if due else None
            self.fields["due"].label = _("Next date (%(zone)s)") % {"zone": zone}
        if "part_kind" in self.fields:
            kind = self.fields["part_kind"]
            assert isinstance(kind, forms.ChoiceField)
            kind.choices = _kinds(self.initial["part_kind"])
        self.order_fields([*names, "reason"])

    def changes(self) -> dict[str, Any]:
        """The columns that the person changed."""
        return {name: self.cleaned_data[name] for name in self.names if name in self.changed_data}

    def part(self) -> Part:
        """The part of a new repair."""
        given = self.cleaned_data
        return Part(kind=given["part_kind"], serial=given["part_serial"], slot=given["part_slot"])


class TermsForm(Act):
    """The terms of a vendor."""

    vendor = forms.CharField(label=gettext_lazy("Vendor"), max_length=120, widget=widgets.line())
    accept_days = forms.IntegerField(
        label=gettext_lazy("Days until a repair is accepted"), required=False, widget=widgets.number()
    )
    return_days = forms.IntegerField(
        label=gettext_lazy("Days until a machine is returned"), required=False, widget=widgets.number()
    )
    field_order = ("vendor", "accept_days", "return_days", "reason")

    def __init__(self, data: Any = None, *, initial: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.initial.update(initial)

    def terms(self) -> Terms:
        """The terms; a blank field is not agreed."""
        return Terms(accept_days=self.cleaned_data["accept_days"], return_days=self.cleaned_data["return_days"])


def of(repair: Repair) -> dict[str, Any]:
    """The present values of a repair."""
    return {name: getattr(repair, name) for name in FIELDS}


def _kinds(present: str) -> list[tuple[str, Any]]:
    """The kinds to choose from, and the present one if it is another word."""
    known = list(part_names.NAMES.items())
    return known if present in part_names.NAMES or not present else [*known, (present, present)]
