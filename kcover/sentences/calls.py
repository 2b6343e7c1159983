"""Calls to other systems: their failures, and the results of notifications."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Any call over HTTP.
    "host_answered": _("{host} answered HTTP {status}."),
    "host_answered_because": _("{host} answered HTTP {status}: {why}"),
    "host_unreachable": _("The call failed: {error}"),
    "host_not_answering": _("{host} does not answer: {error}"),
    "host_too_slow": _("{host} took longer than {seconds} s."),
    "host_without_address": _("{host} does not resolve to an IP address."),
    "host_without_address_because": _("{host} does not resolve to an IP address: {error}"),
    "dns_not_answering": _("the DNS resolver does not answer"),
    "address_blocked": _("{host} is a blocked address."),
    "address_not_http": _("{url} is not an HTTP address."),
    "answer_too_large": _("{host} answered with more than {bytes} bytes."),
    "answer_not_json": _("{host} did not answer with JSON: {error}"),
    # A delivery of a notification.
    "answered": _("Answered HTTP {status}."),
    "events_accepted": _("{count} events were accepted."),
    "events_rejected": _("{count} of {total} events were rejected."),
    "events_sent_so_far": _("{sent} of {total} events were sent so far."),
    "no_events": _("No event required a page."),
    "service_rejected": _("{host} rejected the message: {code} {text}"),
    "mail_accepted": _("Accepted by the mail server."),
    "mail_server_unset": _("KCOVER_MAIL_URL is not set: there is no mail server."),
    "mail_recipients_rejected": _("{host} rejected every recipient."),
    "channel_off": _("The channel is switched off or was deleted."),
    "channel_deleted": _("The channel was deleted."),
    "question_settled": _("The approval request is closed."),
    "workers_died": _("Given up: the worker died during each attempt."),
}
