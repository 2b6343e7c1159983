"""Notifications: collect events, render and send messages, and manage channels and routes."""

from kcover_portal.notify.services.channels import (
    change_channel,
    delete_channel,
    delete_route,
    make_channel,
    make_route,
)
from kcover_portal.notify.services.deliveries import again, prune, send, sweep, test
from kcover_portal.notify.services.namespace_routes import delete_namespace_route, make_namespace_route
from kcover_portal.notify.services.open_alerts import repeat

__all__ = [
    "again",
    "change_channel",
    "delete_channel",
    "delete_namespace_route",
    "delete_route",
    "make_channel",
    "make_namespace_route",
    "make_route",
    "prune",
    "repeat",
    "send",
    "sweep",
    "test",
]
