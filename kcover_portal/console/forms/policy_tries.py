"""The form that tries a policy: its text, and the incidents to try it on."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.console.forms import widgets
from kcover_portal.shared_reads import policy_tries

NOW, NODE, DAYS = "now", "node", "days"


class Trial(forms.Form):
    """The incidents to try the text on. The editor contains these fields, too."""

    scope = forms.ChoiceField(
        label=gettext_lazy("Try it on"),
        choices=[
            (DAYS, gettext_lazy("all incidents of the last N days")),
            (NOW, gettext_lazy("all open incidents")),
            (NODE, gettext_lazy("the open incidents of one node")),
        ],
        widget=widgets.select(),
    )
    days = forms.IntegerField(
        label=gettext_lazy("Days"),
        required=False,
        min_value=1,
        max_value=policy_tries.MAX_DAYS,
        initial=7,
        widget=widgets.number(),
    )
    node = forms.CharField(
        label=gettext_lazy("Node"),
        required=False,
        max_length=360,
        widget=widgets.line(placeholder="cluster/name"),
    )

    def clean(self) -> dict[str, Any]:
        """Requires the field that the scope names."""
        given: dict[str, Any] = super().clean() or {}
        scope = given.get("scope")
        if scope in (NODE, DAYS) and scope not in self.errors and not given.get(scope):
            self.add_error(scope, gettext_lazy("Required for this choice."))
        return given

    def incidents(self) -> dict[str, Any]:
        """The arguments of ``policy_tries.begin``."""
        scope = self.cleaned_data["scope"]
        return {scope: self.cleaned_data[scope]} if scope != NOW else {}
