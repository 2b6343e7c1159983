"""Forms about a need."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _, ngettext_lazy

from kcover_portal.accounts.models import User

CONTROL = {"class": "form-control", "autocomplete": "off"}
HOURS = (1, 4, 8, 24, 72, 168)


class Words(forms.Form):
    """A person's own words, if there are any."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=500,
        widget=forms.TextInput(attrs=CONTROL),
        help_text=_("Recorded in the audit log."),
    )


class Assign(Words):
    """Whose it is; nobody if the field is empty."""

    assignee = forms.ChoiceField(
        label=_("Assign to"), required=False, widget=forms.Select(attrs={"class": "form-select"})
    )
    field_order = ("assignee", "reason")

    def __init__(self, data: Any = None, *, people: Sequence[User], chosen: str) -> None:
        super().__init__(data, initial={"assignee": chosen})
        field = self.fields["assignee"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("nobody")), *((user.get_username(), user.get_username()) for user in people)]


class Snooze(Words):
    """How long it is out of sight; 0 brings it back."""

    hours = forms.TypedChoiceField(
        label=_("Snooze for"),
        coerce=int,
        choices=[
            *(
                (hours, ngettext_lazy("%(n)d hour", "%(n)d hours", hours) % {"n": hours})
                for hours in HOURS
                if hours < 72
            ),
            *(
                (hours, ngettext_lazy("%(n)d day", "%(n)d days", hours // 24) % {"n": hours // 24})
                for hours in HOURS[4:]
            ),
            (0, _("End the snooze now")),
        ],
        initial=4,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    field_order = ("hours", "reason")

    def until(self, now: datetime) -> datetime | None:
        """Until when; None brings it back."""
        hours: int = self.cleaned_data["hours"]
        return now + timedelta(hours=hours) if hours else None


class Note(forms.Form):
    """A note for whoever looks next."""

    text = forms.CharField(
        label=_("Note"),
        max_length=500,
        widget=forms.TextInput(attrs=CONTROL),
        help_text=_("Shown with this entry, and recorded in the audit log."),
    )
