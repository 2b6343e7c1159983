"""Redis as the broker: losing it costs the worker its connection, not its life.

kombu's channel, when its connection is lost, wants to put unacknowledged messages back and to acknowledge those that
are done, both on the connection that is no more: it raises what Celery does not expect, and the worker ends (kombu
5.7). Nothing is lost by leaving both out: the rows are the queue, and the sweep finds whatever is due.

A Redis that takes connections and does not answer costs its time limits, not for ever the thread that writes to it.
"""

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    """A channel that is let go of as it is."""

    do_restore = False
    socket_timeout = 3.0  # longer than kombu's brpop_timeout (1 s), in which a worker's blocking read has its answer
    socket_connect_timeout = 2.0

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
