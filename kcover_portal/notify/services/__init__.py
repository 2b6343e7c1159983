"""Telling people: what came about is collected, composed, sent, and settled; channels and routes are arranged."""

from kcover_portal.notify.services.arranging import (
    Refused,
    change_channel,
    delete_channel,
    delete_route,
    make_channel,
    make_route,
)
from kcover_portal.notify.services.sending import again, prune, send, sweep, test

__all__ = [
    "Refused",
    "again",
    "change_channel",
    "delete_channel",
    "delete_route",
    "make_channel",
    "make_route",
    "prune",
    "send",
    "sweep",
    "test",
]
