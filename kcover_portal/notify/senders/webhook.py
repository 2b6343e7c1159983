"""Webhooks: the signed JSON of ``outgoing``, with the same key for every attempt of one delivery."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kcover import reasons
from kcover_portal.lib import outgoing
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders.message import Message, SendError

SECONDS: Final = 10.0
DELIVERY: Final = "X-Kcover-Delivery"
RETRYABLE: Final = (408, 425, 429)  # and every status from 500 on


def send(channel: Channel, message: Message) -> reasons.Reason:
    """Posts the document; any status from 200 to 299 means that it was accepted. Raises SendError."""
    reply = post(channel.url, message.document, secret=channel.secret, key=message.key, most=0)
    return reasons.of("answered", status=str(reply.status))


def post(
    url: str,
    document: Any,
    *,
    secret: str,
    key: str,
    most: int,
    headers: Mapping[str, str] = outgoing.NO_HEADERS,
    why: Callable[[bytes], str] | None = None,
) -> outgoing.RawResponse:
    """One POST through the portal's own client: it checks addresses and follows no redirect. Raises SendError.

    ``why`` reads the reason from the body of a refusal.
    """
    host = urlsplit(url).hostname or "the address"
    try:
        reply = outgoing.send(
            url, document, secret=secret, seconds=SECONDS, headers={**headers, DELIVERY: key}, most=most
        )
    except outgoing.NoResponse as silence:
        raise SendError(silence.reason, later=True) from silence
    if not 200 <= reply.status < 300:
        explanation = why(reply.data) if why else ""
        refused = reasons.with_why("host_answered", explanation, host=host, status=str(reply.status))
        later = reply.status >= 500 or reply.status in RETRYABLE
        raise SendError(refused, later=later, wait=reply.wait)
    return reply
