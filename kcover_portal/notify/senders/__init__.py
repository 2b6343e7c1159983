"""The kinds of channels, a module for each way of sending. ``docs/recipes.md`` says how to add one.

Belongs here: what a service expects, and how its answer is read. Never here: what is sent, to whom, and when it is
retried.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kcover import reasons
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.notify.models import Channel
from kcover_portal.notify.senders import chat, mail, pagers, webhook
from kcover_portal.notify.senders.message import Message as Message, PagerEvent as PagerEvent, SendError as SendError


def page(channel: Channel, event: PagerEvent, *, key: str) -> reasons.Reason:
    """Sends a pager one event, once; ``key`` names the delivery. Returns its answer. Raises SendError."""
    with _readable():
        return pagers.send(channel, event, key=key)


def send_alerts(channel: Channel, alerts: Sequence[Mapping[str, Any]], *, key: str) -> reasons.Reason:
    """Sends alerts to an Alertmanager, once. Raises SendError."""
    with _readable():
        return pagers.send_alerts(channel, alerts, key=key)


def send(channel: Channel, message: Message) -> reasons.Reason:
    """Sends the message once; returns the other side's answer in a few words. Raises SendError."""
    with _readable():
        if channel.kind == Channel.Kind.MAIL:
            return mail.send(channel, message)
        if channel.kind == Channel.Kind.WEBHOOK:
            return webhook.send(channel, message)
        return chat.send(channel, message)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """A channel whose secret cannot be read is tried again, because its key may come back. Raises SendError."""
    try:
        yield
    except SecretUnreadable as unreadable:
        raise SendError(unreadable.reason, later=True) from unreadable
