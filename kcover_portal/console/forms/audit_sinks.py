"""The form of a sink of the audit stream."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal import localization
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.services import sinks
from kcover_portal.errors import FieldError

ADDRESSES = {
    Sink.Kind.FILE: gettext_lazy("The name of a file in KCOVER_AUDIT_FOLDER, e.g. audit.jsonl."),
    Sink.Kind.SYSLOG: gettext_lazy("tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT. UDP may lose records."),
    Sink.Kind.WEBHOOK: gettext_lazy(
        "Receives signed JSON by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."
    ),
}
KEEP_VALUE_HINT = gettext_lazy("Leave blank to keep the current value.")
CHOICES = [("yes", gettext_lazy("yes")), ("no", gettext_lazy("no"))]


def _line() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "form-control", "autocomplete": "off", "spellcheck": "false"})


def _choice(label: Any, text: Any = "") -> forms.ChoiceField:
    return forms.ChoiceField(
        label=label, choices=CHOICES, widget=forms.Select(attrs={"class": "form-select"}), help_text=text
    )


class SinkForm(forms.Form):
    """A sink of one kind; new if ``sink`` is None. Secrets are never shown."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=63, widget=_line())
    address = forms.CharField(label=gettext_lazy("Address"), max_length=sinks.LONGEST_ADDRESS, widget=_line())
    secret = forms.CharField(
        label=gettext_lazy("Secret"),
        max_length=sinks.LONGEST_SECRET,
        widget=forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"}),
        help_text=gettext_lazy("Used to sign messages."),
    )
    whole = _choice(gettext_lazy("Include past entries"), gettext_lazy("All existing entries are sent first."))
    enabled = _choice(gettext_lazy("Enabled"))
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=_line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )

    def __init__(self, data: Any = None, *, kind: str, sink: Sink | None = None) -> None:
        super().__init__(data, initial={"whole": "no", "enabled": "yes" if sink is None or sink.enabled else "no"})
        dropped = ["enabled", "reason"] if sink is None else ["name", "whole"]
        dropped += [] if kind == Sink.Kind.WEBHOOK else ["secret"]
        for name in dropped:
            del self.fields[name]
        self.fields["address"].help_text = ADDRESSES[Sink.Kind(kind)]
        if sink is not None:
            for name in {"address", "secret"} & set(self.fields):
                self.fields[name].required, self.fields[name].help_text = False, KEEP_VALUE_HINT

    def settings(self) -> dict[str, Any]:
        """The settings for the service; a blank address or secret keeps its current value."""
        given = {name: self.cleaned_data[name] for name in ("address", "secret") if self.cleaned_data.get(name)}
        return given | ({"enabled": self.cleaned_data["enabled"] == "yes"} if "enabled" in self.cleaned_data else {})

    def refuse(self, error: FieldError) -> None:
        """Attach a service's error to its field."""
        self.add_error(error.field if error.field in self.fields else None, localization.say(error.reason))
