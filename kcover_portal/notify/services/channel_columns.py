"""The settings of a channel, with the words of the console. What an address and a secret are differs by kind."""

from collections.abc import Mapping
from typing import Final

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from kcover import reasons
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import pagers
from kcover_portal.settings_rows import Choice, Flag, Number, Person, Recipients, Secret, Text
from kcover_portal.settings_rows.columns import Words

MAX_RECIPIENTS: Final = 20
# Kinds that may have a secret beside their address: a signing key, or a pager's key.
SIGNS: Final = (Channel.Kind.WEBHOOK, Channel.Kind.DINGTALK, Channel.Kind.FEISHU, *Channel.PAGERS)
_ADDRESSED: Final = [kind for kind in Channel.Kind.values if kind != Channel.Kind.MAIL]
_WRITTEN: Final = [kind for kind in Channel.Kind.values if kind not in Channel.PAGERS]  # people read its messages
ADDRESSES: Final[Mapping[str, Words]] = {  # the form of the address of each kind, and where people get it
    Channel.Kind.WEBHOOK: _("Receives signed JSON by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."),
    Channel.Kind.SLACK: _("The address of an incoming webhook: https://hooks.slack.com/services/…"),
    Channel.Kind.TEAMS: _("The address of a workflow that posts to a channel when a webhook is received."),
    Channel.Kind.DINGTALK: _("The address of a custom robot: https://oapi.dingtalk.com/robot/send?access_token=…"),
    Channel.Kind.FEISHU: _("The address of a custom bot: https://open.feishu.cn/open-apis/bot/v2/hook/…"),
    Channel.Kind.WECOM: _("The address of a group robot: https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=…"),
    Channel.Kind.PAGERDUTY: _(
        "Leave blank for https://events.pagerduty.com. European accounts: https://events.eu.pagerduty.com"
    ),
    Channel.Kind.OPSGENIE: _(
        "Leave blank for https://api.opsgenie.com. European accounts: https://api.eu.opsgenie.com"
    ),
    Channel.Kind.ALERTMANAGER: _("The address of Alertmanager, e.g. http://alertmanager.monitoring:9093"),
}
KEYS: Final[Mapping[str, Words]] = {  # where people get a pager's key
    Channel.Kind.PAGERDUTY: _("The integration key of an Events API v2 integration: 32 letters and digits."),
    Channel.Kind.OPSGENIE: _("The key of an API integration, without the GenieKey prefix."),
    Channel.Kind.ALERTMANAGER: _(
        "A bearer token, or USER:PASSWORD for basic authentication. Leave blank if it needs none."
    ),
}


def _has_default(kind: str) -> bool:
    """Returns whether it is a pager at a known address, which needs only a key."""
    return kind in Channel.PAGERS and bool(pagers.SERVICES[kind].url)


COLUMNS: Final = (
    Secret(
        name="url",
        label=_("Address"),
        hint=lambda kind: ADDRESSES[kind],
        kinds=_ADDRESSED,
        required=lambda kind: not _has_default(kind),
        most=1000,
    ),
    Secret(
        name="secret",
        label=lambda kind: _("Integration key") if _has_default(kind) else _("Secret"),
        hint=lambda kind: KEYS.get(kind, _("Used to sign messages.")),
        kinds=SIGNS,
        required=lambda kind: kind == Channel.Kind.WEBHOOK or _has_default(kind),
        most=4000,
    ),
    Recipients(
        name="recipients",
        label=_("Recipients"),
        hint=_("E-mail addresses, separated by commas."),
        kinds=[Channel.Kind.MAIL],
        required=True,
        most=MAX_RECIPIENTS,
    ),
    Choice(name="language", label=_("Language"), required=True, choices=settings.LANGUAGES, initial="en"),
    Person(
        name="person",
        label=_("Delivers to a single person"),
        hint=_(
            "Approval requests carry a link that answers in this person's name. Leave empty if others read the channel."
        ),
        kinds=[kind for kind in _WRITTEN if kind != Channel.Kind.WEBHOOK],
    ),
    Number(
        name="batching",
        label=_("Batch for (s)"),
        hint=_("Events within this time become one message."),
        required=True,
        initial=10,
        most=3600,
    ),
    Number(
        name="min_interval",
        label=_("Minimum interval (s)"),
        hint=_("Minimum time between messages."),
        required=True,
        initial=60,
        most=86_400,
    ),
    Number(
        name="remind",
        label=_("Approval reminder (s)"),
        hint=_(
            "Sends an open approval request once more after this time. Blank: after half of its lifetime. 0: never."
        ),
        kinds=_WRITTEN,
        most=30 * 86_400,
        null=True,
        outside=lambda most: reasons.of("remind_out_of_range", most=most),
    ),
    Text(
        name="quiet_hours",
        label=_("Quiet hours"),
        hint=_("For example Mon-Fri 22:00-07:00; Sat-Sun 00:00-24:00. Only urgent events are sent in this time."),
        kinds=_WRITTEN,
        most=200,
    ),
    Text(
        name="digest_at",
        label=_("Daily digest at"),
        hint=_("For example 08:30. Events that are not urgent become one message a day. Blank: at once."),
        kinds=_WRITTEN,
        most=5,
    ),
    Text(
        name="time_zone",
        label=_("Time zone"),
        hint=_("Of quiet hours and digest, e.g. Asia/Shanghai. Blank: the time zone of the portal."),
        kinds=_WRITTEN,
        most=60,
    ),
    Flag(
        name="for_owners",
        label=_("Owners of jobs may use it"),
        hint=_(
            "They name it in the annotation kcover.io/notify of a job. It gets messages before and after the job moves."
        ),
        kinds=_WRITTEN,
        optional=True,
    ),
    Flag(name="enabled", label=_("Enabled")),
)
