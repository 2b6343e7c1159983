"""Forms of notifications: a channel of one kind, and a route to a channel."""

from typing import Any

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _, gettext_lazy

from kcover.notify import events
from kcover_portal.accounts.models import User
from kcover_portal.console import presentation
from kcover_portal.console.forms import Somewhere
from kcover_portal.fleet.models import Cluster
from kcover_portal.notify.models import Channel, Route
from kcover_portal.notify.senders import pagers
from kcover_portal.notify.services import channels

ADDRESSES = {  # the form of the address of each kind, and where people get it
    Channel.Kind.WEBHOOK: gettext_lazy(
        "Receives signed JSON by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."
    ),
    Channel.Kind.SLACK: gettext_lazy("The address of an incoming webhook: https://hooks.slack.com/services/…"),
    Channel.Kind.TEAMS: gettext_lazy("The address of a workflow that posts to a channel when a webhook is received."),
    Channel.Kind.DINGTALK: gettext_lazy(
        "The address of a custom robot: https://oapi.dingtalk.com/robot/send?access_token=…"
    ),
    Channel.Kind.FEISHU: gettext_lazy("The address of a custom bot: https://open.feishu.cn/open-apis/bot/v2/hook/…"),
    Channel.Kind.WECOM: gettext_lazy(
        "The address of a group robot: https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…"
    ),
    Channel.Kind.PAGERDUTY: gettext_lazy(
        "Leave blank for https://events.pagerduty.com. European accounts: https://events.eu.pagerduty.com"
    ),
    Channel.Kind.OPSGENIE: gettext_lazy(
        "Leave blank for https://api.opsgenie.com. European accounts: https://api.eu.opsgenie.com"
    ),
    Channel.Kind.ALERTMANAGER: gettext_lazy("The address of Alertmanager, e.g. http://alertmanager.monitoring:9093"),
}
KEYS = {  # where people get a pager's key
    Channel.Kind.PAGERDUTY: gettext_lazy("The integration key of an Events API v2 integration: 32 letters and digits."),
    Channel.Kind.OPSGENIE: gettext_lazy("The key of an API integration, without the GenieKey prefix."),
    Channel.Kind.ALERTMANAGER: gettext_lazy(
        "A bearer token, or USER:PASSWORD for basic authentication. Leave blank if it needs none."
    ),
}
KEEP_VALUE_HINT = gettext_lazy("Leave blank to keep the current value, which is never shown.")


def _line(**more: str) -> forms.TextInput:
    return forms.TextInput(attrs={"class": "form-control", "autocomplete": "off", "spellcheck": "false", **more})


def _hidden() -> forms.PasswordInput:
    return forms.PasswordInput(attrs={"class": "form-control", "autocomplete": "new-password"})


def _seconds(label: Any, most: int, text: Any, *, required: bool = True) -> forms.IntegerField:
    widget = forms.NumberInput(attrs={"class": "form-control"})
    return forms.IntegerField(
        label=label, min_value=0, max_value=most, help_text=text, widget=widget, required=required
    )


def _yes_or_no(label: Any, text: Any = "", *, required: bool = True) -> forms.ChoiceField:
    choices = [("no", gettext_lazy("no")), ("yes", gettext_lazy("yes"))]
    widget = forms.Select(attrs={"class": "form-select"})
    return forms.ChoiceField(label=label, choices=choices, widget=widget, help_text=text, required=required)


class ChannelForm(forms.Form):
    """A channel of one kind; new if ``channel`` is None. Address and secret are never shown."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=63,
        widget=_line(),
        help_text=gettext_lazy("The name that rules use, e.g. on-call. Cannot be changed later."),
    )
    url = forms.CharField(label=gettext_lazy("Address"), max_length=1000, widget=_hidden())
    secret = forms.CharField(label=gettext_lazy("Secret"), max_length=4000, widget=_hidden())
    recipients = forms.CharField(
        label=gettext_lazy("Recipients"),
        max_length=4000,
        widget=_line(),
        help_text=gettext_lazy("E-mail addresses, separated by commas."),
    )
    language = forms.ChoiceField(
        label=gettext_lazy("Language"),
        choices=settings.LANGUAGES,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    person = forms.ModelChoiceField(
        User.objects.filter(is_active=True).order_by("username"),
        label=gettext_lazy("Delivers to a single person"),
        required=False,
        to_field_name="username",
        empty_label=gettext_lazy("no one"),
        widget=forms.Select(attrs={"class": "form-select"}),
        help_text=gettext_lazy(
            "Approval requests carry a link that answers in this person's name. Leave empty if others read the channel."
        ),
    )
    batching = _seconds(
        gettext_lazy("Batch for (s)"),
        channels.MAX_BATCHING,
        gettext_lazy("Events within this time become one message."),
    )
    min_interval = _seconds(
        gettext_lazy("Minimum interval (s)"),
        channels.MAX_INTERVAL,
        gettext_lazy("Minimum time between messages."),
    )
    remind = _seconds(
        gettext_lazy("Approval reminder (s)"),
        channels.MAX_REMIND,
        gettext_lazy(
            "Sends an open approval request once more after this time. Blank: after half of its lifetime. 0: never."
        ),
        required=False,
    )
    quiet_hours = forms.CharField(
        label=gettext_lazy("Quiet hours"),
        max_length=200,
        required=False,
        widget=_line(),
        help_text=gettext_lazy(
            "For example Mon-Fri 22:00-07:00; Sat-Sun 00:00-24:00. Only urgent events are sent in this time."
        ),
    )
    digest_at = forms.CharField(
        label=gettext_lazy("Daily digest at"),
        max_length=5,
        required=False,
        widget=_line(),
        help_text=gettext_lazy(
            "For example 08:30. Events that are not urgent become one message a day. Blank: at once."
        ),
    )
    time_zone = forms.CharField(
        label=gettext_lazy("Time zone"),
        max_length=60,
        required=False,
        widget=_line(),
        help_text=gettext_lazy("Of quiet hours and digest, e.g. Asia/Shanghai. Blank: the time zone of the portal."),
    )
    for_owners = _yes_or_no(
        gettext_lazy("Owners of jobs may use it"),
        gettext_lazy(
            "They name it in the annotation kcover.io/notify of a job. It gets messages before and after the job moves."
        ),
        required=False,
    )
    enabled = _yes_or_no(gettext_lazy("Enabled"))
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=500,
        widget=_line(),
        help_text=gettext_lazy("Recorded in the audit log."),
    )

    def __init__(self, data: Any = None, *, kind: str, channel: Channel | None = None) -> None:
        first = {"language": "en", "batching": 10, "min_interval": 60, "enabled": "yes", "for_owners": "no"}
        super().__init__(data, initial=first if channel is None else _initial(channel))
        self.kind = kind
        mail = kind == Channel.Kind.MAIL
        dropped = ["url", "secret"] if mail else ["recipients"]
        dropped += ["enabled", "reason"] if channel is None else ["name"]
        dropped += [] if kind in channels.SIGNS else ["secret"]
        dropped += ["person"] if kind == Channel.Kind.WEBHOOK or kind in Channel.PAGERS else []
        dropped += ["remind", "for_owners", "quiet_hours", "digest_at", "time_zone"] if kind in Channel.PAGERS else []
        for name in set(dropped):
            del self.fields[name]
        if not mail:
            self.fields["url"].help_text = ADDRESSES[Channel.Kind(kind)]
        if "secret" in self.fields:
            self.fields["secret"].required = kind == Channel.Kind.WEBHOOK
            self.fields["secret"].help_text = _("Used to sign messages.")
        if kind in Channel.PAGERS:
            has_default = bool(pagers.SERVICES[kind].url)
            self.fields["url"].required = not has_default
            self.fields["secret"].required = has_default
            self.fields["secret"].label = _("Integration key") if has_default else _("Secret")
            self.fields["secret"].help_text = KEYS[Channel.Kind(kind)]
        if channel is not None:
            for name in ("url", "secret"):
                if name in self.fields:
                    self.fields[name].required, self.fields[name].help_text = False, KEEP_VALUE_HINT

    def settings(self) -> dict[str, Any]:
        """The settings for the service; a blank address or secret keeps its current value."""
        given = {name: value for name, value in self.cleaned_data.items() if name not in ("name", "reason")}
        if "recipients" in given:
            given["recipients"] = [address.strip() for address in given["recipients"].split(",") if address.strip()]
        if not given.get("for_owners"):
            given.pop("for_owners", None)
        given |= {name: given[name] == "yes" for name in ("for_owners", "enabled") if name in given}
        return {name: value for name, value in given.items() if name not in ("url", "secret") or value}


class NamespaceRouteForm(forms.Form):
    """The namespaces of a cluster whose jobs a channel for owners hears of."""

    channel = forms.ModelChoiceField(
        Channel.objects.filter(for_owners=True).order_by("name"),
        label=gettext_lazy("Channel"),
        to_field_name="name",
        widget=forms.Select(attrs={"class": "form-select"}),
        help_text=gettext_lazy("Only channels that owners of jobs may use."),
    )
    cluster = forms.ModelChoiceField(
        Cluster.objects.order_by("name"),
        label=gettext_lazy("Cluster"),
        to_field_name="name",
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    namespace = forms.CharField(
        label=gettext_lazy("Namespace"),
        max_length=63,
        widget=_line(),
        help_text=gettext_lazy("A name, or a pattern such as team-*. The most specific one counts."),
    )


def _initial(channel: Channel) -> dict[str, Any]:
    return {
        "recipients": ", ".join(channel.recipients),
        "language": channel.language,
        "person": channel.person,
        "batching": channel.batching,
        "min_interval": channel.min_interval,
        "remind": channel.remind,
        "for_owners": "yes" if channel.for_owners else "no",
        "quiet_hours": channel.quiet_hours,
        "digest_at": channel.digest_at,
        "time_zone": channel.time_zone,
        "enabled": "yes" if channel.enabled else "no",
    }


class RouteForm(Somewhere):
    """The events that go to a channel."""

    channel = forms.ModelChoiceField(
        Channel.objects.order_by("name"),
        label=gettext_lazy("Channel"),
        to_field_name="name",
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    kinds = forms.MultipleChoiceField(label=gettext_lazy("Events"), initial=list(events.URGENT_KINDS))
    least = forms.ChoiceField(
        label=gettext_lazy("Incidents from severity"),
        choices=[
            ("", gettext_lazy("any")),
            *((name, presentation.of("severity", name).label) for name, _label in Route.SEVERITIES),
        ],
        required=False,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    field_order = ("channel", "kinds", "cluster", "least")

    def __init__(self, data: Any = None, *, clusters: QuerySet[Cluster], channel: str = "") -> None:
        super().__init__(data, initial={"channel": channel})
        field, kinds = self.fields["cluster"], self.fields["kinds"]
        assert isinstance(field, forms.ModelChoiceField)
        assert isinstance(kinds, forms.MultipleChoiceField)
        field.queryset = clusters.order_by("name")
        kinds.choices = [(kind, kind) for kind in events.KINDS]

    def offered(self) -> list[tuple[str, Any, bool]]:
        """Every kind of event: (name, title, selected)."""
        chosen = self["kinds"].value() or []
        return [(kind, presentation.event_kind(kind), kind in chosen) for kind in events.KINDS]
