"""The form of a source of faults."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _, gettext_lazy

from kcover.sources import settings
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources.models import Source

KEEP_VALUE_HINT = gettext_lazy("Leave blank to keep the current value.")
CHOICES = [("yes", gettext_lazy("yes")), ("no", gettext_lazy("no"))]
MAX_SETTINGS = 20_000  # characters


def _line() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "form-control", "autocomplete": "off", "spellcheck": "false"})


class SourceForm(forms.Form):
    """A source of one kind; new if ``source`` is None. Its token is never shown."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=63, widget=_line())
    cluster = forms.ChoiceField(label=gettext_lazy("Cluster"), widget=forms.Select(attrs={"class": "form-select"}))
    url = forms.CharField(label=gettext_lazy("Address"), max_length=1000, required=False, widget=_line())
    token = forms.CharField(
        label=gettext_lazy("Token"),
        max_length=4000,
        required=False,
        widget=forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"}),
        help_text=gettext_lazy("Sent as a bearer token. Never shown again."),
    )
    settings = forms.CharField(
        label=gettext_lazy("Settings"),
        max_length=MAX_SETTINGS,
        required=False,
        widget=forms.Textarea(attrs={"class": "form-control mono", "rows": 4, "spellcheck": "false"}),
    )
    enabled = forms.ChoiceField(
        label=gettext_lazy("Enabled"), choices=CHOICES, widget=forms.Select(attrs={"class": "form-select"})
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=_line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )

    def __init__(
        self, data: Any = None, *, kind: str, clusters: Iterable[Cluster] = (), source: Source | None = None
    ) -> None:
        given = source.settings if source is not None else {}
        initial = {"settings": _lines(given), "enabled": "yes" if source is None or source.enabled else "no"}
        super().__init__(data, initial=initial)
        self._given = given
        for name in ("enabled", "reason") if source is None else ("name", "cluster"):
            del self.fields[name]
        if kind not in settings.ADDRESSED:
            del self.fields["url"], self.fields["token"]
        elif source is not None:
            self.fields["url"].help_text = self.fields["token"].help_text = KEEP_VALUE_HINT
        if source is None:
            field = self.fields["cluster"]
            assert isinstance(field, forms.ChoiceField)
            field.choices = [(cluster.name, cluster.name) for cluster in clusters]
        names = ", ".join(settings.SETTINGS[kind])
        if names:
            self.fields["settings"].help_text = _("One key=value in each line. Keys: %(names)s") % {"names": names}
        else:
            del self.fields["settings"]

    def clean_settings(self) -> dict[str, str | None]:
        """The settings as given, with None for those that were removed. Raises ValidationError."""
        found: dict[str, str | None] = dict.fromkeys(self._given)
        for line in self.cleaned_data["settings"].splitlines():
            key, sign, value = line.partition("=")
            if not line.strip():
                continue
            if not sign or not key.strip():
                raise forms.ValidationError(_("%(line)s is not key=value.") % {"line": line[:60]})
            found[key.strip()] = value.strip()
        return found

    def given(self) -> dict[str, Any]:
        """The columns for the service; a blank address or token keeps its current value."""
        found = {name: self.cleaned_data[name] for name in ("url", "token") if self.cleaned_data.get(name)}
        if "settings" in self.cleaned_data:
            found["settings"] = self.cleaned_data["settings"]
        if "enabled" in self.cleaned_data:
            found["enabled"] = self.cleaned_data["enabled"] == "yes"
        return found

    def refuse(self, error: FieldError) -> None:
        """Attach a service's error to its field, with the name of the setting."""
        field, _slash, setting = error.field.partition("/")
        text = localization.say(error.reason)
        shown = f"{setting}: {text}" if setting else text
        self.add_error(field if field in self.fields else None, shown)


def _lines(given: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}={_text(value)}" for key, value in given.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
