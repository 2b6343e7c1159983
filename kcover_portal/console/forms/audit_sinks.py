"""The form of a sink of the audit stream."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import healing, topics
from kcover_portal.audit_stream.services import kinds, options
from kcover_portal.console.forms import widgets

ADDRESSES = {
    Sink.Kind.FILE: gettext_lazy("The name of a file in KCOVER_AUDIT_FOLDER, e.g. audit.jsonl."),
    Sink.Kind.SYSLOG: gettext_lazy("tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT. UDP may lose records."),
    Sink.Kind.WEBHOOK: gettext_lazy(
        "Receives signed JSON by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."
    ),
    Sink.Kind.CLOUDEVENTS: gettext_lazy(
        "Receives batches of CloudEvents 1.0 by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."
    ),
    Sink.Kind.LOKI: gettext_lazy("The address of Loki, e.g. https://loki.example. /loki/api/v1/push is appended."),
    Sink.Kind.BUCKET: gettext_lazy("https://HOST/BUCKET/PREFIX. Each batch becomes an object of JSON Lines."),
    Sink.Kind.MAIL: gettext_lazy("Recipients of the mails, separated by commas."),
    Sink.Kind.JIRA: gettext_lazy("The address of the Jira Cloud site, e.g. https://ops.atlassian.net."),
}
SECRETS = {
    Sink.Kind.LOKI: gettext_lazy("The bearer token, or the password of the user. Leave blank if Loki asks for none."),
    Sink.Kind.BUCKET: gettext_lazy("ACCESS_KEY:SECRET_KEY. The key needs the right to put objects."),
    Sink.Kind.JIRA: gettext_lazy("The API token of the user, or a bearer token without a user."),
}
_USER: dict[str, Any] = {
    Sink.Kind.JIRA: gettext_lazy(
        "The e-mail address of the account to which the token belongs. Blank: a bearer token."
    ),
}
OPTION_LABELS = {
    "project": (gettext_lazy("Project"), gettext_lazy("The key of the project in which issues are created, e.g. OPS.")),
    "issue_type": (gettext_lazy("Issue type"), gettext_lazy("Blank: Task.")),
    "labels": (gettext_lazy("More labels"), gettext_lazy("Separated by spaces. Each issue also has the label kcover.")),
    "close_transition": (
        gettext_lazy("Transition at the end"),
        gettext_lazy("The name of the transition that closes an issue, e.g. Done. Blank: issues are left open."),
    ),
    "reply_to": (
        gettext_lazy("Reply to"),
        gettext_lazy("The address that gets the replies. Blank: the sender of the mails."),
    ),
    "senders": (
        gettext_lazy("Allowed senders of replies"),
        gettext_lazy("Addresses, or domains such as @acme.example, with semicolons between them."),
    ),
    "states": (
        gettext_lazy("States"),
        gettext_lazy(
            "What a new state of an issue means for its repair, e.g. In Progress=accepted; Done=returned. "
            "States of repairs: accepted, in_repair, returned, refused."
        ),
    ),
    "tenant": (gettext_lazy("Tenant"), gettext_lazy("Sent as X-Scope-OrgID. Blank: none.")),
    "user": (gettext_lazy("User"), gettext_lazy("For HTTP basic authentication. Blank: the secret is a bearer token.")),
    "region": (gettext_lazy("Region"), gettext_lazy("Blank: us-east-1.")),
    "vendor": (
        gettext_lazy("Vendor"),
        gettext_lazy(
            "This vendor may send signed events about its repairs. Use the name as it is on the repairs. "
            "Leave blank for none."
        ),
    ),
    "vendors": (
        gettext_lazy("Only the repairs of"),
        gettext_lazy("Names of vendors with semicolons between them. Blank: the repairs of all vendors."),
    ),
}
TOPICS = [
    (topics.AUDIT, gettext_lazy("Audit log: every entry")),
    (healing.HEALING, gettext_lazy("Healing records: one record for each rescue that ended")),
    (topics.TICKETS, gettext_lazy("Tickets: one record for each act on a repair")),
]
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
    address = forms.CharField(label=gettext_lazy("Address"), max_length=kinds.LONGEST_ADDRESS, widget=_line())
    secret = forms.CharField(
        label=gettext_lazy("Secret"),
        max_length=kinds.LONGEST_SECRET,
        widget=forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"}),
        help_text=gettext_lazy("Used to sign messages."),
    )
    incoming_secret = forms.CharField(
        label=gettext_lazy("Secret for incoming messages"),
        max_length=kinds.LONGEST_SECRET,
        required=False,
        widget=forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"}),
        help_text=gettext_lazy(
            "Checks the signature of what arrives, at least 16 characters. Blank: nothing is accepted."
        ),
    )
    topics = forms.MultipleChoiceField(label=gettext_lazy("Records"), choices=TOPICS, widget=widgets.checkboxes())
    whole = _choice(gettext_lazy("Include past entries"), gettext_lazy("All existing entries are sent first."))
    enabled = _choice(gettext_lazy("Enabled"))
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=_line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )

    def __init__(self, data: Any = None, *, kind: str, sink: Sink | None = None) -> None:
        initial = {
            "whole": "no",
            "enabled": "yes" if sink is None or sink.enabled else "no",
            "topics": [topics.AUDIT] if sink is None else sink.topics,
            **({} if sink is None else sink.options),
        }
        super().__init__(data, initial=initial)
        self.kind = kind
        dropped = ["enabled", "reason"] if sink is None else ["name", "whole"]
        dropped += [] if kind in kinds.KINDS_WITH_SECRET else ["secret"]
        dropped += [] if kind in kinds.KINDS_WITH_INCOMING else ["incoming_secret"]
        dropped += ["topics"] if kind in Sink.TICKETS else []
        for name in dropped:
            del self.fields[name]
        if kind in SECRETS:
            self.fields["secret"].help_text = SECRETS[Sink.Kind(kind)]
            self.fields["secret"].required = kind != Sink.Kind.LOKI
        for name in options.known(kind):
            label, text = OPTION_LABELS[name]
            text = _USER.get(kind, text) if name == "user" else text
            self.fields[name] = forms.CharField(
                label=label,
                help_text=text,
                required=name in options.REQUIRED.get(kind, ()),
                max_length=options.longest(name),
                widget=_line(),
            )
        self.fields["address"].help_text = ADDRESSES[Sink.Kind(kind)]
        if sink is not None:
            for name in {"address", "secret", "incoming_secret"} & set(self.fields):
                self.fields[name].required, self.fields[name].help_text = False, KEEP_VALUE_HINT

    def settings(self) -> dict[str, Any]:
        """The settings for the service; a blank address or secret keeps its current value."""
        given: dict[str, Any] = {
            name: self.cleaned_data[name]
            for name in ("address", "secret", "incoming_secret", "topics")
            if self.cleaned_data.get(name)
        }
        given["options"] = {name: self.cleaned_data[name] for name in options.known(self.kind)}
        return given | ({"enabled": self.cleaned_data["enabled"] == "yes"} if "enabled" in self.cleaned_data else {})
