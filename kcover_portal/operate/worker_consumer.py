"""Celery's consumer, with heartbeats that its event loop hands to the pool."""

from typing import Any

from celery.worker import consumer

from kcover_portal.operate import heartbeats


class Consumer(consumer.Consumer):
    """A consumer that shows with each heartbeat that its loop turns and that a thread of the pool is free."""

    def register_with_event_loop(self, hub: Any) -> None:
        """Called for each connection to the broker. Celery cancels the timer with the connection."""
        super().register_with_event_loop(hub)
        hub.call_repeatedly(heartbeats.EVERY_SECONDS, self._hand_to_pool)

    def ensure_connected(self, conn: Any) -> Any:
        """Waits for the broker."""
        return super().ensure_connected(heartbeats.while_connecting(conn))

    def _hand_to_pool(self) -> None:
        self.pool.apply_async(heartbeats.touch, callback=lambda _: None)
