"""Notifications: collect events, render and send messages, and manage channels and routes."""

from kcover_portal.notify.services.channels import (
    CHANNELS as CHANNELS,
    delete_route as delete_route,
    make_route as make_route,
)
from kcover_portal.notify.services.deliveries import (
    again as again,
    prune as prune,
    send as send,
    sweep as sweep,
    test as test,
)
from kcover_portal.notify.services.namespace_routes import (
    delete_namespace_route as delete_namespace_route,
    make_namespace_route as make_namespace_route,
)
from kcover_portal.notify.services.open_alerts import repeat as repeat
