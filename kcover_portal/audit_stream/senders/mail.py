"""Repairs as mails: one thread a repair. A record that is sent again has the same Message-ID."""

from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from kcover.repairs import mail_replies, ticket_text
from kcover_portal import encryption
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import mail_tokens
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.audit_stream.senders.delivery_error import DeliveryError
from kcover_portal.lib import outgoing_mail

HOW_TO_ANSWER: Final = (
    "To answer, write one of these words into the first line of your reply: accept, hand-over, return, refuse, update.",
    'Lines such as "Ticket: RMA-7", "Due: 2026-12-01", "Owner: Ann", "Action: replaced", "Serial: 1652" (of the part)',
    'or "Machine serial: SN7" may follow.',
    "Everything else is a comment. Only plain text is read.",
)


def tell(sink: Sink, record: Record) -> None:
    """Sends one record to all recipients. Raises DeliveryError and SecretUnreadable."""
    document = record.document
    answered = encryption.is_set(sink, "incoming_key")
    token = mail_tokens.token_of(sink, document["repair"]) if answered else ""
    first = _message_id(sink, f"repair {document['repair']}")
    is_first = document["event"] == "open"
    headers = {
        "Message-ID": first if is_first else _message_id(sink, str(record.line()["id"])),
        "Auto-Submitted": "auto-generated",
        **({} if is_first else {"In-Reply-To": first, "References": first}),
    }
    mail = EmailMessage(
        subject=f"{_tag(document['repair'], token)} {ticket_text.summary(document)}",
        body=_body(document, answered=answered),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=recipients(sink),
        reply_to=[sink.options["reply_to"]] if sink.options.get("reply_to") else None,
        headers=headers,
        connection=get_connection(),
    )
    try:
        outgoing_mail.send(mail)
    except outgoing_mail.MailRefused as error:
        raise DeliveryError(error.reason, lasting=error.of_this_mail) from error


def recipients(sink: Sink) -> list[str]:
    """The addresses of the sink, which are separated by commas. Raises SecretUnreadable."""
    return [one.strip() for one in sink.address.split(",") if one.strip()]


def _tag(repair: int, token: str) -> str:
    return f"[kcover {repair}.{token}]" if token else "[kcover]"


def _body(document: dict[str, Any], *, answered: bool) -> str:
    link = f"{settings.KCOVER_PUBLIC_URL}/repairs/{document['repair']}/" if settings.KCOVER_PUBLIC_URL else ""
    lines = [mail_replies.MARK, ""] if answered else []
    lines += [ticket_text.headline(document), ""]
    lines += [f"{label}: {value}" for label, value in ticket_text.facts(document)]
    lines += ["", link] if link else []
    lines += ["", *HOW_TO_ANSWER] if answered and not ticket_text.has_ended(document) else []
    return "\n".join(lines) + "\n"


def _message_id(sink: Sink, name: str) -> str:
    return f"<{sink.digest_of(name)[:32]}@kcover-portal>"
