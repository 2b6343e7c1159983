"""A program that is told: the signed JSON of ``outgoing``, the same key for every try of one delivery."""

from typing import Any, Final
from urllib.parse import urlsplit

from kcover_portal import outgoing
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders.message import Message, NotTaken

SECONDS: Final = 10.0
DELIVERY: Final = "X-Kcover-Delivery"
LATER: Final = (408, 425, 429)  # and everything from 500 on: it was not taken, and may be another time


def send(channel: Channel, message: Message) -> str:
    """Posts the document; any status from 200 to 299 means that it was taken. Raises NotTaken."""
    reply = post(channel.url, message.document, secret=channel.secret, key=message.key, most=0)
    return f"answers {reply.status}"


def post(url: str, document: Any, *, secret: str, key: str, most: int) -> outgoing.Reply:
    """One POST through the portal's own client: addresses looked at, no redirect followed. Raises NotTaken."""
    host = urlsplit(url).hostname or "the address"
    try:
        reply = outgoing.send(url, document, secret=secret, seconds=SECONDS, headers={DELIVERY: key}, most=most)
    except outgoing.Silent as silence:
        raise NotTaken(str(silence), later=True) from silence
    if not 200 <= reply.status < 300:
        raise NotTaken(f"{host} answers {reply.status}", later=reply.status >= 500 or reply.status in LATER)
    return reply
