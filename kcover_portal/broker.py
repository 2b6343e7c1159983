"""Redis as the broker: losing it costs the worker its connection, not its life.

kombu's channel, when its connection is lost, wants to put unacknowledged messages back and to acknowledge those that
are done, both on the connection that is no more: it raises what Celery does not expect, and the worker ends (kombu
5.7). Nothing is lost by leaving both out: the rows are the queue, and the sweep finds whatever is due.
"""

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    """A channel that is let go of as it is."""

    do_restore = False

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledges, unless the channel is closed: its messages went with the connection."""
        if not self.closed:
            super().basic_ack(delivery_tag, multiple=multiple)


class Transport(redis.Transport):
    """kombu's, with that channel."""

    Channel = Channel


def install() -> None:
    """Lets ``redis://`` and ``rediss://`` mean this transport."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{Transport.__module__}:{Transport.__qualname__}"
