"""Redis as the broker: a worker survives the loss of its connection.

When kombu's channel loses its connection, it tries to restore unacknowledged messages and to acknowledge finished ones
on the closed connection. This raises an exception that Celery does not expect, and the worker exits (kombu 5.7). The
portal can skip both steps without loss: the rows are the queue, and the sweep finds whatever is due.

Socket time-outs protect threads from a Redis that accepts connections but does not answer.
"""

from kombu.transport import TRANSPORT_ALIASES, redis


class Channel(redis.Channel):
    """A channel that restores and acknowledges nothing after its connection is lost."""

    do_restore = False
    socket_timeout = 3.0  # longer than kombu's brpop_timeout (1 s), which bounds a worker's blocking read
    socket_connect_timeout = 2.0

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledges a message, unless the channel is closed."""
        if not self.closed:
            super().basic_ack(delivery_tag, multiple=multiple)


class Transport(redis.Transport):
    """kombu's Redis transport with this channel."""

    Channel = Channel


def install() -> None:
    """Registers this transport for ``redis://`` and ``rediss://``."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{Transport.__module__}:{Transport.__qualname__}"
