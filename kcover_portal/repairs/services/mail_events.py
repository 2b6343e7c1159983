"""Replies by mail about repairs, which a gateway of the mail server passes on: who may send them, and what they do."""

import hashlib
import json
import logging
from datetime import datetime
from typing import Any

from kcover import audit, reasons
from kcover.repairs import mail_replies
from kcover.repairs.mail_replies import Reply
from kcover.values.quote import short_text
from kcover_portal.accounts.services import failed_attempts
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import mail_tokens
from kcover_portal.lib import outgoing
from kcover_portal.repairs.services import vendor_events
from kcover_portal.repairs.services.vendor_events import TIMESTAMP, EventForbidden, Signed, count_failure

log = logging.getLogger(__name__)


def authenticate(request: Signed, *, now: datetime) -> Sink:
    """The sink whose gateway signed the request. Raises EventForbidden, Throttled and SecretUnreadable."""
    sink = audit_stream.receiving(request.name, Sink.Kind.MAIL)
    signed = mail_tokens.is_signed(
        sink, name=request.name, timestamp=request.timestamp, body=request.body, header=request.signature
    )
    invalid = reasons.of("mail_signature_invalid", header=outgoing.SIGNATURE, timestamp=TIMESTAMP)
    if sink is None or not signed:
        count_failure(request.name, address=request.address, exists=sink is not None, now=now)
        raise EventForbidden(invalid)
    vendor_events.check_time(request.timestamp, now=now, invalid=invalid)
    return sink


def take(sink: Sink, reply: Reply, *, address: str, now: datetime) -> dict[str, Any]:
    """Carries out a reply once, and returns the answer; that of the first time if the mail comes again.

    Raises EventForbidden for a wrong token or sender, and what ``vendor_events.take`` raises. ``address``: the
    gateway's, for the audit log.
    """
    _check_sender(sink, reply, address=address, now=now)
    document = {
        "sender": reply.sender,
        "repair": reply.repair,
        "event": reply.event.value,
        "details": reply.details,
        "comment": reply.comment,
    }
    digest = hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()
    event = vendor_events.Event(
        delivery="mail:" + (hashlib.sha256(reply.name.encode()).hexdigest() if reply.name else digest),
        event=reply.event,
        repair=reply.repair,
        comment=reply.comment,
        sender=reply.sender,
        details=reply.details,
        columns=vendor_events.columns_of(reply.details),
    )
    return vendor_events.take(sink, event, digest=digest, now=now)


def _check_sender(sink: Sink, reply: Reply, *, address: str, now: datetime) -> None:
    """Raises EventForbidden unless the token is the repair's and the sender is on the sink's list.

    The audit log counts the failures. They do not delay the gateway, which passes on everybody's mails.
    """
    problem = None
    if not mail_tokens.is_token(sink, reply.repair, reply.token):
        problem = reasons.of("mail_token_wrong", repair=str(reply.repair))
    elif not is_allowed(sink.options.get("senders", ""), reply.sender):
        problem = reasons.of("mail_sender_unknown", sender=short_text(reply.sender))
    if problem is not None:
        failed_attempts.note(
            audit.VendorSignatureFailed, sink.name, address=address, refused=False, exists=True, now=now
        )
        raise EventForbidden(problem)


def is_allowed(senders: str, sender: str) -> bool:
    """Returns whether a list such as ``ann@acme.example; @rma.example`` has the sender, or its domain."""
    known = {one.strip().lower() for one in senders.split(";")}
    return sender in known or f"@{sender.rpartition('@')[2]}" in known


def read(body: bytes, *, sink: Sink) -> Reply:
    """Reads a mail. Raises ReplyInvalid, and logs it: the gateway may drop the answer."""
    try:
        return mail_replies.read(body)
    except mail_replies.ReplyInvalid as error:
        log.warning("sink %s: a mail is no reply: %s", sink.name, error)
        raise
