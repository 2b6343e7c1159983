"""Bind namespaces of a cluster to a channel that is released for the owners of jobs. Both acts are in the audit log."""

import re
from datetime import datetime
from typing import Any, Final

from django.db import IntegrityError, transaction

from kcover import audit, reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify.models import Channel, NamespaceRoute
from kcover_portal.notify.services import channels

NAMESPACE: Final = re.compile(r"[a-z0-9*]([-a-z0-9*]{0,61}[a-z0-9*])?")
MAX_STARS: Final = 3


def make_namespace_route(
    channel: Channel, *, cluster: Cluster, namespace: str, actor: str, now: datetime
) -> NamespaceRoute:
    """Sends news about jobs in these namespaces to the channel. Raises FieldError."""
    if not NAMESPACE.fullmatch(namespace) or namespace.count("*") > MAX_STARS:
        raise FieldError("namespace", reasons.of("namespace_pattern_invalid", most=MAX_STARS))
    if not channel.for_owners:
        raise FieldError("channel", reasons.of("channel_not_released", channel=channel.name))
    row = NamespaceRoute(channel=channel, cluster=cluster, namespace=namespace, created_by=actor, created_at=now)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            channels.note(channel, audit.NamespaceRouteCreated(**_fields(row)), actor=actor, now=now)
    except IntegrityError as error:
        taken = reasons.of("namespace_route_exists", namespace=namespace, cluster=cluster.name)
        raise FieldError("namespace", taken) from error
    return row


def delete_namespace_route(route: NamespaceRoute, *, actor: str, reason: str, now: datetime) -> None:
    """Deletes the binding. Messages that are already queued are still sent."""
    with transaction.atomic():
        act = audit.NamespaceRouteDeleted(**_fields(route), reason=reason)
        route.delete()
        channels.note(route.channel, act, actor=actor, now=now)


def _fields(row: NamespaceRoute) -> dict[str, Any]:
    return {
        "channel": row.channel.name,
        "route": row.pk,
        "cluster": row.cluster.name,
        "namespace": row.namespace,
    }
