"""The settings of a sink, with the words of the console. Addresses, secrets and options differ by kind."""

from collections.abc import Mapping, Sequence
from typing import Final

from django.utils.translation import gettext_lazy as _

from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import healing, topics
from kcover_portal.audit_stream.services import kinds, options
from kcover_portal.settings_rows import Flag, Options, Secret, Several, Text
from kcover_portal.settings_rows.columns import Words

ADDRESSES: Final[Mapping[str, Words]] = {
    Sink.Kind.FILE: _("The name of a file in KCOVER_AUDIT_FOLDER, e.g. audit.jsonl."),
    Sink.Kind.SYSLOG: _("tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT. UDP may lose records."),
    Sink.Kind.WEBHOOK: _("Receives signed JSON by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."),
    Sink.Kind.CLOUDEVENTS: _(
        "Receives batches of CloudEvents 1.0 by POST. X-Kcover-Signature is the HMAC-SHA-256 of the body."
    ),
    Sink.Kind.LOKI: _("The address of Loki, e.g. https://loki.example. /loki/api/v1/push is appended."),
    Sink.Kind.BUCKET: _("https://HOST/BUCKET/PREFIX. Each batch becomes an object of JSON Lines."),
    Sink.Kind.MAIL: _("Recipients of the mails, separated by commas."),
    Sink.Kind.JIRA: _("The address of the Jira Cloud site, e.g. https://ops.atlassian.net."),
}
SECRETS: Final[Mapping[str, Words]] = {
    Sink.Kind.LOKI: _("The bearer token, or the password of the user. Leave blank if Loki asks for none."),
    Sink.Kind.BUCKET: _("ACCESS_KEY:SECRET_KEY. The key needs the right to put objects."),
    Sink.Kind.JIRA: _("The API token of the user, or a bearer token without a user."),
}
USERS: Final[Mapping[str, Words]] = {
    Sink.Kind.LOKI: _("For HTTP basic authentication. Blank: the secret is a bearer token."),
    Sink.Kind.JIRA: _("The e-mail address of the account to which the token belongs. Blank: a bearer token."),
}
OPTIONS: Final[Mapping[str, tuple[Words, Words]]] = {
    "project": (_("Project"), _("The key of the project in which issues are created, e.g. OPS.")),
    "issue_type": (_("Issue type"), _("Blank: Task.")),
    "labels": (_("More labels"), _("Separated by spaces. Each issue also has the label kcover.")),
    "close_transition": (
        _("Transition at the end"),
        _("The name of the transition that closes an issue, e.g. Done. Blank: issues are left open."),
    ),
    "reply_to": (_("Reply to"), _("The address that gets the replies. Blank: the sender of the mails.")),
    "senders": (
        _("Allowed senders of replies"),
        _("Addresses, or domains such as @acme.example, with semicolons between them."),
    ),
    "states": (
        _("States"),
        _(
            "What a new state of an issue means for its repair, e.g. In Progress=accepted; Done=returned. "
            "States of repairs: accepted, in_repair, returned, refused."
        ),
    ),
    "tenant": (_("Tenant"), _("Sent as X-Scope-OrgID. Blank: none.")),
    "user": (_("User"), ""),
    "region": (_("Region"), _("Blank: us-east-1.")),
    "vendor": (
        _("Vendor"),
        _(
            "This vendor may send signed events about its repairs. Use the name as it is on the repairs. "
            "Leave blank for none."
        ),
    ),
    "vendors": (
        _("Only the repairs of"),
        _("Names of vendors with semicolons between them. Blank: the repairs of all vendors."),
    ),
}
TOPICS: Final[Mapping[str, Words]] = {
    topics.AUDIT: _("Audit log: every entry"),
    healing.HEALING: _("Healing records: one record for each rescue that ended"),
    topics.TICKETS: _("Tickets: one record for each act on a repair"),
}


def _options_of(kind: str) -> Sequence[Text]:
    return [
        Text(
            name=name,
            label=OPTIONS[name][0],
            hint=USERS[kind] if name == "user" else OPTIONS[name][1],
            required=name in options.REQUIRED.get(kind, ()),
            most=options.longest(name),
        )
        for name in options.known(kind)
    ]


COLUMNS: Final = (
    Text(
        name="address",
        label=_("Address"),
        hint=lambda kind: ADDRESSES[kind],
        required=True,
        most=1000,
        blank=False,
        kept=True,
    ),
    Secret(
        name="secret",
        label=_("Secret"),
        hint=lambda kind: SECRETS.get(kind, _("Used to sign messages.")),
        kinds=kinds.KINDS_WITH_SECRET,
        required=lambda kind: kind != Sink.Kind.LOKI,
        most=kinds.LONGEST_SECRET,
    ),
    Secret(
        name="incoming_secret",
        stored="incoming_key",
        label=_("Secret for incoming messages"),
        hint=_("Checks the signature of what arrives, at least 16 characters. Blank: nothing is accepted."),
        help="of Jira and mail: signs what arrives",
        kinds=kinds.KINDS_WITH_INCOMING,
        most=kinds.LONGEST_SECRET,
    ),
    Several(
        name="topics",
        label=_("Records"),
        kinds=[kind for kind in Sink.Kind.values if kind not in Sink.TICKETS],
        choices=[(name, TOPICS[name]) for name in TOPICS],
        initial=[topics.AUDIT],
        most=20,
    ),
    Options(name="options", parts=_options_of),
    Flag(name="enabled", label=_("Enabled")),
)
