"""The kinds of channels, a module for each way of sending. ``docs/recipes.md`` says how to add one.

Belongs here: what a service wants to get, and how its answer is read. Never here: what is told, to whom, and when it is
tried again.
"""

from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import chat, mail, pagers, webhook
from kcover_portal.notify.senders.message import Event, Message, NotTaken

__all__ = ["Event", "Message", "NotTaken", "page", "send"]


def page(channel: Channel, event: Event, *, key: str) -> str:
    """Gives a pager one event, once; ``key`` names the delivery. Returns what it said. Raises NotTaken."""
    return pagers.send(channel, event, key=key)


def send(channel: Channel, message: Message) -> str:
    """Sends once and returns what the other side said to it, in a few words. Raises NotTaken."""
    if channel.kind == Channel.Kind.MAIL:
        return mail.send(channel, message)
    if channel.kind == Channel.Kind.WEBHOOK:
        return webhook.send(channel, message)
    return chat.send(channel, message)
