"""Incidents of GPUs that pods cannot get: the device plugin counts fewer of them as healthy than the node has.

That is the sign that every device plugin gives for a sick GPU. It counts once it has lasted: a plugin that starts, as
after a boot or an upgrade, takes a minute or two to name its GPUs. While a rescue works on the node its verification
waits for them instead.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import closure, record_faults
from kcover_portal.incidents.services.portal_fault import PortalFault

KIND: Final = "other"
CODE: Final = "gpus_unallocatable"
LASTS: Final = timedelta(minutes=5)
STEADY: Final = timedelta(minutes=5)  # for which the API server must have answered
MAX_OPENED: Final = 200  # incidents of one sweep; the next one is soon


def check(*, busy: QuerySet[Any], now: datetime) -> None:
    """Opens and closes incidents by what the nodes show. ``busy``: the keys of nodes that a rescue works on."""
    _close(now=now)
    _open(busy, now=now)


def _open_now() -> QuerySet[Incident]:
    return Incident.objects.filter(kind=KIND, code=CODE, state=Incident.State.OPEN, node__isnull=False)


def _open(busy: QuerySet[Any], *, now: datetime) -> None:
    long_ago = Q(unallocatable_since__lte=now - LASTS) & (Q(ready_since=None) | Q(ready_since__lte=now - LASTS))
    known = Exists(_open_now().filter(node=OuterRef("pk")))
    reachable = fleet.reachable_without_gap(since=now - STEADY, now=now)
    rows = Node.objects.filter(long_ago, in_cluster=True, ready=True, unallocatable__gt=0, cluster__in=reachable)
    rows = rows.exclude(known).exclude(pk__in=busy).select_related("cluster").order_by("unallocatable_since")
    for node in rows[:MAX_OPENED]:
        because = reasons.of("gpus_unallocatable", missing=node.unallocatable, count=node.gpus)
        seen = PortalFault(kind=KIND, code=CODE, because=because, source="portal")
        with transaction.atomic():
            record_faults.keep_fault(node, seen, boot_id=node.boot_id, now=now)


def _close(*, now: datetime) -> None:
    gone = _open_now().filter(node__in_cluster=False).values_list("pk", flat=True)
    closure.close(list(gone), because=reasons.of("node_gone"), actor="system", now=now)
    reachable = Q(node__cluster__watched_at__gte=now - fleet.OUT_OF_REACH_AFTER)
    whole = _open_now().filter(reachable, node__unallocatable=0, node__ready=True, node__gpus__gt=0)
    because = reasons.of("gpus_allocatable")
    closure.close(list(whole.values_list("pk", flat=True)), because=because, actor="system", now=now)
