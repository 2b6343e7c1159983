"""The form of a saved view."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.accounts.models import SavedView
from kcover_portal.console.forms import widgets


class ViewForm(forms.Form):
    """Name, and who sees the view when; ``shares``: the person may share it."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=60, widget=widgets.line())
    opens_first = forms.BooleanField(label=gettext_lazy("Open the list with this view"), required=False)
    shared = forms.BooleanField(
        label=gettext_lazy("Share with everybody"),
        required=False,
        help_text=gettext_lazy("Everybody can read the filters. The rows stay limited to what each person may see."),
    )

    def __init__(self, data: Any, *, shares: bool, view: SavedView | None = None) -> None:
        initial = {name: getattr(view, name) for name in self.base_fields} if view else {}
        super().__init__(data, initial=initial)
        self.shares = shares
        if not shares:
            del self.fields["shared"]

    def clean(self) -> dict[str, Any]:
        """The fields, with ``shared`` also for a person who may not share."""
        given = super().clean() or self.cleaned_data
        return {"shared": False, **given}
